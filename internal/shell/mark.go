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
func newMark() string { return "\x1e" + ids.Hex(16) }

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
	mark  string
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

func newScanner(mark string, w io.Writer, limit int64) *scanner {
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
		i := bytes.Index(s.held, []byte(s.mark))
		if i < 0 {
			keep := s.overlap()
			s.pass(s.held[:len(s.held)-keep])
			s.held = append([]byte(nil), s.held[len(s.held)-keep:]...)
			return len(p), nil
		}
		s.pass(s.held[:i])
		s.seen, s.held = true, append([]byte(nil), s.held[i+len(s.mark):]...)
	}
	if i := bytes.IndexByte(s.held, '\n'); i >= 0 || len(s.held) > maxStatus {
		s.status, _ = strconv.Atoi(string(s.held[:max(i, 0)])) // nothing stands on the second stream
		s.closed = true
		close(s.found)
	}
	return len(p), nil
}

// overlap is how many bytes at the end of held the mark may begin with.
func (s *scanner) overlap() int {
	for n := min(len(s.mark)-1, len(s.held)); n > 0; n-- {
		if bytes.HasSuffix(s.held, []byte(s.mark[:n])) {
			return n
		}
	}
	return 0
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
