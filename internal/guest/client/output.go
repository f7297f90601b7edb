package client

import (
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// sink takes one output stream. Only the goroutine that reads the guest's
// frames uses it.
type sink struct {
	w         io.Writer // nil: keep the bytes
	limit     int64     // most bytes to keep or pass on; negative: no limit
	n         int64
	kept      []byte
	truncated bool
}

func newSink(w io.Writer, limit int64) *sink { return &sink{w: w, limit: limit} }

// write takes bytes as far as the limit allows, which holds whatever the guest
// sends.
func (s *sink) write(b []byte) {
	if s.limit >= 0 && s.n+int64(len(b)) > s.limit {
		b, s.truncated = b[:s.limit-s.n], true
	}
	s.n += int64(len(b))
	if s.w == nil {
		s.keep(b)
		return
	}
	if len(b) == 0 {
		return
	}
	if _, err := s.w.Write(b); err != nil {
		s.w, s.truncated = io.Discard, true
	}
}

// keep grows in large steps up to the limit: append's small ones would leave
// several times the output behind as garbage, and copy it as often.
func (s *sink) keep(b []byte) {
	if need := len(s.kept) + len(b); need > cap(s.kept) {
		size := max(4*cap(s.kept), need)
		if s.limit >= 0 {
			size = min(size, int(s.limit))
		}
		s.kept = append(make([]byte, 0, size), s.kept...)
	}
	s.kept = append(s.kept, b...)
}

func (s *sink) fill(b *[]byte, truncated *bool) {
	*b = s.kept
	*truncated = *truncated || s.truncated
}

// execRequest is a command as the guest takes it, with the host's defaults.
func execRequest(id string, c sandbox.Command) (*guestv1.ExecRequest, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if (len(c.Argv) > 0) == (c.Shell != "") {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "exactly one of argv and shell must be given")
	}
	q := &guestv1.ExecRequest{
		ExecId: id, Shell: []byte(c.Shell), Dir: []byte(c.Dir), User: c.User,
		Stdin: c.Stdin || c.TTY, Tty: c.TTY, Cols: uint32(c.Cols), Rows: uint32(c.Rows),
		Keep: c.OnDisconnect == sandbox.Keep || c.Background, Lossless: !c.Background,
	}
	for _, a := range c.Argv {
		q.Argv = append(q.Argv, []byte(a))
	}
	for _, e := range c.Env {
		q.Env = append(q.Env, []byte(e))
	}
	timeout, err := bounded("timeout", int64(c.Timeout), int64(sandbox.DefaultTimeout), int64(sandbox.MaxTimeout), func(n int64) string { return time.Duration(n).String() })
	if err != nil {
		return nil, err
	}
	q.TimeoutNs = timeout
	q.MaxOutput, err = bounded("max_output", c.MaxOutput, sandbox.DefaultMaxOutput, sandbox.MaxMaxOutput, func(n int64) string { return fmt.Sprint(n) })
	return q, err
}

// bounded is v with its default for 0 and none (0) for negative values.
func bounded(field string, v, byDefault, most int64, show func(int64) string) (int64, error) {
	switch {
	case v == 0:
		return byDefault, nil
	case v < 0:
		return 0, nil
	case v > most:
		return 0, &sandbox.InvalidError{Field: field, Value: show(v), Allowed: "at most " + show(most)}
	}
	return v, nil
}

// Stdin is the command's standard input; closing it is end-of-file. Only useful
// when the command was started with Stdin or TTY.
func (p *Process) Stdin() io.WriteCloser { return stdin{p} }

type stdin struct{ p *Process }

func (s stdin) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), guest.MaxFrame)]
		if err := s.p.send(guest.FrameStdin, part); err != nil {
			return n, err
		}
		n += len(part)
		b = b[len(part):]
	}
	return n, nil
}

func (s stdin) Close() error { return s.p.send(guest.FrameStdinEOF, nil) }
