package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/procapi"
	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

// inside does for programs in the sandbox what the agent does for its host, with the
// rights of the default user. Of what commands share it leaves the host a part:
// places, and memory for output.
type inside struct {
	execs  *execs
	files  *files
	places slots
	held   atomic.Int64 // memory that was reserved
}

func newInside(m *execs, f Files, places int) *inside {
	return &inside{execs: m, files: newFiles(f), places: make(slots, places)}
}

// Run implements procapi.Sandbox.
func (s *inside) Run(ctx context.Context, c procapi.Command, stdout, stderr io.Writer) (res *sandbox.Result, err error) {
	began := time.Now()
	waiting := ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	err = s.places.do(waiting, func() (err error) {
		q := &guestv1.ExecRequest{
			ExecId: passingID(), Argv: [][]byte{[]byte("/bin/sh"), []byte("-c"), []byte(c.Line)}, Dir: []byte(c.Dir), MaxOutput: c.MaxOutput, Lossless: true,
		}
		if c.Timeout > 0 {
			q.TimeoutNs = max(int64(c.Timeout-time.Since(began)), 1)
		}
		res, err = s.run(ctx, q, [2]io.Writer{stdout, stderr})
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // there was no place in time
		return &sandbox.Result{Outcome: sandbox.TimedOut, Signal: int(syscall.SIGKILL)}, nil
	}
	return res, err
}

// passingID is an id that no command of the host has.
func passingID() string {
	var r [10]byte
	_, _ = rand.Read(r[:])
	return "inside-" + hex.EncodeToString(r[:])
}

func (s *inside) run(ctx context.Context, q *guestv1.ExecRequest, to [2]io.Writer) (*sandbox.Result, error) {
	e, rd, err := s.execs.begin(q, true, true)
	if err != nil {
		return nil, err
	}
	defer s.execs.discard(e)
	gone := func() {
		rd.leave(true)
		e.end(guestv1.Outcome_OUTCOME_CANCELED, "its client went away")
	}
	stop := context.AfterFunc(ctx, gone)
	defer stop()
	lost, err := rd.copy(to)
	if err != nil {
		gone()
	}
	<-e.finished
	rd.detach(false)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	r := guest.ResultOf(e.id, e.info().GetResult())
	r.StdoutTruncated, r.StderrTruncated = r.StdoutTruncated || lost[stdout], r.StderrTruncated || lost[stderr]
	return &r, nil
}

// copy passes output on until the command has ended, or the client is gone.
func (rd *reader) copy(to [2]io.Writer) (lost [2]bool, err error) {
	buf := smallPieces.Get().(*[]byte)
	defer smallPieces.Put(buf)
	for {
		i, n, gap := rd.read(*buf)
		if n == 0 && !gap {
			return lost, nil
		}
		lost[i] = lost[i] || gap
		if _, err := to[i].Write((*buf)[:n]); err != nil {
			return lost, err
		}
	}
}

// Open implements procapi.Sandbox.
func (s *inside) Open(ctx context.Context, path string) (r io.ReadCloser, size int64, err error) {
	err = s.files.work.do(ctx, func() error {
		f, i, err := s.files.open(wording.Readable, "", path)
		r, size = f, i.GetSize()
		return err
	})
	return r, size, err
}

// Write implements procapi.Sandbox.
func (s *inside) Write(ctx context.Context, path string, appending bool, content io.Reader) error {
	return s.files.work.do(ctx, func() error {
		return s.files.write(wording.Writable, "", &upload{path: path, append: appending, atomic: !appending, parents: true}, content)
	})
}

// Reserve implements procapi.Sandbox. Programs inside may have half of what all
// output may take.
func (s *inside) Reserve(n int64) bool {
	if s.held.Add(n) > s.execs.budget.Load()/2 {
		s.held.Add(-n)
		return false
	}
	s.execs.held.Add(n)
	return true
}

// Release implements procapi.Sandbox.
func (s *inside) Release(n int64) {
	s.held.Add(-n)
	s.execs.held.Add(-n)
}

// Rest implements procapi.Sandbox.
func (s *inside) Rest() { s.execs.rest() }
