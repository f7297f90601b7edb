package shell

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"

	"agentbox/internal/ids"
)

// newMark draws a mark. It begins with a byte that texts don't have, so that
// little is held back as a possible mark.
func newMark() string { return string(markByte) + ids.Hex(markDigits/2) }

const (
	markByte   = '\x1e'
	markDigits = 32
)

// pattern tells where a mark stands.
type pattern interface {
	// find is the mark's place in b, from begin up to end; begin is -1 for none.
	find(b []byte) (begin, end int)
	// overlap is how many bytes at the end of b a mark may begin with.
	overlap(b []byte) int
}

// exactly is one mark.
type exactly string

func (m exactly) find(b []byte) (begin, end int) {
	begin = bytes.Index(b, []byte(m))
	return begin, begin + len(m)
}

func (m exactly) overlap(b []byte) int {
	for n := min(len(m)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, []byte(m[:n])) {
			return n
		}
	}
	return 0
}

// anyMark is every mark, for those who don't know which was drawn.
type anyMark struct{}

func (anyMark) find(b []byte) (begin, end int) {
	for at := 0; ; at++ {
		i := bytes.IndexByte(b[at:], markByte)
		if i < 0 {
			return -1, -1
		}
		at += i
		if end := at + 1 + markDigits; end <= len(b) && isHex(b[at+1:end]) {
			return at, end
		}
	}
}

func (anyMark) overlap(b []byte) int {
	i := bytes.LastIndexByte(b, markByte)
	if i < 0 || len(b)-i > markDigits || !isHex(b[i+1:]) {
		return 0
	}
	return len(b) - i
}

func isHex(b []byte) bool { return len(bytes.Trim(b, "0123456789abcdef")) == 0 }

// lines are what the shell is told: to run a command, with an empty input, and
// to print the mark on both streams, with the status on the first. "command"
// keeps a syntax error from ending the shell.
func lines(line, mark string) string {
	return "command eval " + quote(line) + " </dev/null\n" +
		"printf '%s%d\\n' '" + mark + "' \"$?\"; printf '%s\\n' '" + mark + "' >&2\n"
}

// quote makes one word of a text.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// scanner passes on the bytes before a mark, up to a limit. Another goroutine
// than the one that waits writes to it.
type scanner struct {
	mark  pattern
	w     io.Writer
	limit int64         // bytes that are passed on; negative: all
	found chan struct{} // closed when the line of the mark is complete

	mu        sync.Mutex
	held      []byte // what could be the begin of the mark; from the mark on, its line
	seen      bool
	closed    bool
	truncated bool
	status    int
}

func newScanner(mark pattern, w io.Writer, limit int64) *scanner {
	return &scanner{mark: mark, w: w, limit: limit, found: make(chan struct{})}
}

// maxStatus bounds the line of a mark behind the mark.
const maxStatus = 16

// Write implements io.Writer.
func (s *scanner) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return len(p), nil
	}
	s.held = append(s.held, p...)
	if !s.seen {
		i, end := s.mark.find(s.held)
		if i < 0 {
			keep := s.mark.overlap(s.held)
			s.pass(s.held[:len(s.held)-keep])
			s.held = append([]byte(nil), s.held[len(s.held)-keep:]...)
			return len(p), nil
		}
		s.pass(s.held[:i])
		s.seen, s.held = true, append([]byte(nil), s.held[end:]...)
	}
	if i := bytes.IndexByte(s.held, '\n'); i >= 0 || len(s.held) > maxStatus {
		s.status, _ = strconv.Atoi(string(s.held[:max(i, 0)])) // nothing stands on the second stream
		s.closed = true
		close(s.found)
	}
	return len(p), nil
}

func (s *scanner) pass(p []byte) {
	if s.limit >= 0 && int64(len(p)) > s.limit {
		p, s.truncated = p[:s.limit], true
	}
	if len(p) == 0 {
		return
	}
	if s.limit >= 0 {
		s.limit -= int64(len(p))
	}
	if _, err := s.w.Write(p); err != nil {
		s.w, s.truncated = io.Discard, true
	}
}

// stop passes on what is held, if no mark came, and takes no more.
func (s *scanner) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && !s.seen {
		s.pass(s.held)
	}
	s.closed = true
}
