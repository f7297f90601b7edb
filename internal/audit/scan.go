package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"agentbox/internal/sandbox"
)

// scan is a place in the log and a direction. What is on one side of offset in
// file seqs[at], and the files beyond, are still to be read.
type scan struct {
	log     *Log
	forward bool
	seqs    []uint64
	at      int
	offset  int64
	end     int64 // of the newest file, as far as it is whole
}

// scanAt finds the place where a query begins or goes on.
func (l *Log) scanAt(q Query) (*scan, error) {
	l.mu.Lock()
	seqs, err := l.segments()
	s := &scan{log: l, forward: q.OldestFirst, seqs: seqs, end: l.size}
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if len(seqs) == 0 { // somebody removed them
		return s, nil
	}
	if q.Cursor == "" {
		if !s.forward {
			s.at = len(seqs) - 1
			s.offset, err = s.size()
		}
		return s, err
	}
	seq, offset, ok := parseCursor(q.Cursor)
	if !ok {
		return nil, &sandbox.InvalidError{Field: "cursor", Value: q.Cursor, Allowed: "next_cursor of the page before"}
	}
	at, found := slices.BinarySearch(seqs, seq)
	switch {
	case found:
		s.at, s.offset = at, offset
	case s.forward && at < len(seqs): // its file is gone: go on with the oldest
		s.at = at
	default:
		s.seqs = nil
	}
	return s, nil
}

func parseCursor(c string) (seq uint64, offset int64, ok bool) {
	a, b, ok := strings.Cut(c, ".")
	seq, err := strconv.ParseUint(a, 10, 64)
	offset, err2 := strconv.ParseInt(b, 10, 64)
	return seq, offset, ok && err == nil && err2 == nil && offset >= 0
}

// size is how much of the file at hand there is to read.
func (s *scan) size() (int64, error) {
	if s.at == len(s.seqs)-1 {
		return s.end, nil
	}
	info, err := os.Stat(s.log.path(s.seqs[s.at]))
	if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// bounds finds the next part to read, in the next file if this one is done.
func (s *scan) bounds() (from, to int64, ok bool, err error) {
	for s.at >= 0 && s.at < len(s.seqs) {
		size, err := s.size()
		if err != nil {
			return 0, 0, false, err
		}
		s.offset = min(s.offset, size)
		switch {
		case s.forward && s.offset < size:
			return s.offset, min(s.offset+window, size), true, nil
		case s.forward:
			s.at, s.offset = s.at+1, 0
		case s.offset > 0:
			return max(0, s.offset-window), s.offset, true, nil
		default:
			s.at, s.offset = s.at-1, math.MaxInt64
		}
	}
	return 0, 0, false, nil
}

// next gives the records of one window to take, until it has enough. The place
// is then behind the last one.
func (s *scan) next(take func(Record) (enough bool)) error {
	from, to, ok, err := s.bounds()
	if err != nil || !ok {
		return err
	}
	data, err := s.read(from, to)
	if err != nil {
		return err
	}
	lines := s.whole(data, from)
	if !s.forward {
		slices.Reverse(lines)
		s.offset = from // also past what is no line
	} else {
		s.offset = to
	}
	for _, l := range lines {
		var r Record
		enough := json.Unmarshal(data[l.start:l.end], &r) == nil && take(r) // what a crash cut is no record
		if s.forward {
			s.offset = from + int64(l.end)
		} else {
			s.offset = from + int64(l.start)
		}
		if enough {
			break
		}
	}
	return nil
}

func (s *scan) read(from, to int64) ([]byte, error) {
	f, err := os.Open(s.log.path(s.seqs[s.at]))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, to-from)
	n, err := f.ReadAt(data, from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

type line struct{ start, end int } // in the window

// whole finds the lines that begin and end in the window; the one at its far
// edge may go on beyond, and is left to the next window.
func (s *scan) whole(data []byte, from int64) []line {
	var lines []line
	for start := 0; start < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
			end = start + i + 1
		}
		lines = append(lines, line{start, end})
		start = end
	}
	full := len(data) == window
	switch {
	case !full || len(lines) == 0:
	case s.forward && data[len(data)-1] != '\n':
		lines = lines[:len(lines)-1]
	case !s.forward && from > 0:
		lines = lines[1:]
	}
	return lines
}
