package egress

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
)

// maxAnswerFields is how many lines the heads of an answer may have together, the
// answers before it included: each costs far more in memory than on the wire, and many
// answers may stop in the middle of theirs at once. Big sites have a few hundred.
const maxAnswerFields = 1 << 10

// headLines counts the lines of an answer's head while it comes.
type headLines struct {
	lines  int
	line   []byte // the one that is not whole: no more of it than is needed
	status string // beginning of the status line
	over   bool   // the head
}

// take counts the lines in the next part of an answer. It reports whether they are few
// enough.
func (h *headLines) take(p []byte) bool {
	for len(p) > 0 && !h.over {
		part, rest, whole := bytes.Cut(p, []byte("\n"))
		h.line = append(h.line, part[:min(len(part), maxStatus-len(h.line))]...)
		if p = rest; !whole {
			break
		}
		h.lines++
		h.end(h.line)
		h.line = h.line[:0]
	}
	return h.lines <= maxAnswerFields
}

// maxStatus is how much of a line is looked at.
const maxStatus = 64

// end takes a line.
func (h *headLines) end(line []byte) {
	switch {
	case h.status == "":
		h.status = string(line)
	case string(bytes.TrimSuffix(line, []byte("\r"))) == "":
		h.over = !isInterim(h.status)
		h.status = ""
	}
}

// isInterim reports whether another head follows the one with a status line. One that
// is no status line has the parser fail.
func isInterim(line string) bool {
	_, status, _ := strings.Cut(line, " ")
	status = strings.TrimLeft(status, " ")
	return strings.HasPrefix(status, "1") && !strings.HasPrefix(status, "101")
}

// answers is a connection to a server for a Transport.
type answers struct {
	net.Conn // up, or TLS over it
	up       *upstream
	head     headLines
	failed   atomic.Pointer[error] // of a read
}

func (a *answers) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	if !a.head.take(p[:n]) {
		n, err = 0, errAnswerHead
	}
	if err != nil {
		a.failed.Store(&err)
	}
	return n, err
}

// because adds to the error of a request why no more was read: the parser may have
// failed by the part that it had.
func (a *answers) because(err error) error {
	if a == nil || err == nil {
		return err
	}
	if why := a.failed.Load(); why != nil {
		return fmt.Errorf("%w: %w", err, *why)
	}
	return err
}

// CloseWrite is for what an upgrade made of the connection.
func (a *answers) CloseWrite() error { return closeWrite(a.Conn) }
