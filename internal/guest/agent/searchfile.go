package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"

	guestv1 "agentbox/internal/gen/guest/v1"
)

const (
	// longLine is how much of one line is searched.
	longLine = 64 << 10
	// sniff is how much of a file is looked at before it is searched: one that
	// holds NUL there is no text.
	sniff = 8 << 10
)

// lines goes through the lines of one file.
type lines struct {
	s      *searcher
	rel    string
	r      *bufio.Reader
	number uint64
	offset uint64 // of the line in the file

	found  int                    // matches in this file
	before [][]byte               // the lines before, as many as are asked for
	open   []*guestv1.SearchMatch // matches that want lines after them
}

// file searches one file to its end, or to where it is no text.
func (s *searcher) file(ctx context.Context, rel string, f io.Reader) error {
	l := &lines{s: s, rel: rel, r: bufio.NewReaderSize(f, longLine)}
	head, err := l.r.Peek(sniff)
	if err != nil && err != io.EOF {
		return s.skips.failed(rel, err)
	}
	if bytes.IndexByte(head, 0) >= 0 {
		s.a.Binary++
		return nil
	}
	s.a.Files++
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, size, err := l.next()
		if len(line) > 0 {
			if bytes.IndexByte(line, 0) >= 0 {
				s.a.Binary++
				return nil
			}
			l.number++
			if err := l.line(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))); err != nil {
				return err
			}
			l.offset += size
		}
		switch {
		case errors.Is(err, io.EOF), l.enough():
			return nil
		case err != nil:
			return s.skips.failed(rel, err)
		}
	}
}

func (l *lines) enough() bool {
	most := int(l.s.q.GetLimitPerFile())
	return most > 0 && l.found >= most && len(l.open) == 0
}

// next reads a line, with its end. Of one that is too long it is the beginning;
// size is that of all of it.
func (l *lines) next() (line []byte, size uint64, err error) {
	line, err = l.r.ReadSlice('\n')
	size = uint64(len(line))
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, size, err
	}
	l.s.a.LongLines++
	line = bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		var rest []byte
		rest, err = l.r.ReadSlice('\n')
		size += uint64(len(rest))
	}
	return line, size, err
}

func (l *lines) line(text []byte) error {
	around := int(l.s.q.GetContext())
	var cut []byte // for context
	if around > 0 {
		cut = bytes.Clone(text[:min(len(text), l.s.maxLine)])
	}
	still := l.open[:0]
	for _, m := range l.open {
		if m.After = append(m.After, cut); len(m.After) < around {
			still = append(still, m)
		}
	}
	l.open = still
	most := int(l.s.q.GetLimitPerFile())
	if at := l.s.re.FindIndex(text); at != nil && (most == 0 || l.found < most) {
		m := l.match(text, at)
		if err := l.s.add(m); err != nil {
			return err
		}
		l.found++
		if around > 0 {
			l.open = append(l.open, m)
		}
	}
	if around > 0 {
		l.before = append(l.before, cut)
		l.before = l.before[max(len(l.before)-around, 0):]
	}
	return nil
}

// match describes one matching line: all of it, or what is around the match.
func (l *lines) match(text []byte, at []int) *guestv1.SearchMatch {
	start := 0
	if most := l.s.maxLine; len(text) > most {
		start = min(max(at[0]-most/4, 0), len(text)-most)
	}
	end := min(start+l.s.maxLine, len(text))
	return &guestv1.SearchMatch{
		Path: []byte(l.rel), Line: l.number, Offset: l.offset, Start: uint32(at[0]), End: uint32(at[1]),
		Text: bytes.Clone(text[start:end]), TextStart: uint32(start), Cut: end-start < len(text),
		Before: append([][]byte(nil), l.before...),
	}
}
