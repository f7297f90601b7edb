package manager

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// Execs lists the commands of the caller's sandbox that run or ended not long
// ago, oldest first.
func (m *Manager) Execs(ctx context.Context, c sandbox.Caller, id string) ([]client.ExecInfo, error) {
	l, err := m.peek(ctx, c, id)
	if err != nil {
		return nil, fmt.Errorf("list commands: %w", err)
	}
	all, err := l.Session().Execs(ctx)
	for i := range all {
		l.Judge(ctx, &all[i].Result)
	}
	return all, err
}

// ExecInfo describes a command. With output the result has the text that is
// still there.
func (m *Manager) ExecInfo(ctx context.Context, c sandbox.Caller, id, execID string, output bool) (client.ExecInfo, error) {
	l, err := m.peek(ctx, c, id)
	if err != nil {
		return client.ExecInfo{}, fmt.Errorf("describe exec %s: %w", execID, err)
	}
	info, err := l.Session().WaitExec(ctx, execID, time.Nanosecond, output)
	if err == nil {
		l.Judge(ctx, &info.Result)
	}
	return info, err
}

// WaitExec waits until a command has ended or the time is over, 0 for as long as
// ctx allows, and describes it.
func (m *Manager) WaitExec(ctx context.Context, c sandbox.Caller, id, execID string, timeout time.Duration, output bool) (client.ExecInfo, error) {
	l, err := m.Acquire(ctx, c, id)
	if err != nil {
		return client.ExecInfo{}, err
	}
	defer l.Release()
	info, err := l.Session().WaitExec(ctx, execID, timeout, output)
	if err != nil {
		return info, m.explain(l, err)
	}
	l.live.Judge(ctx, &info.Result)
	return info, nil
}

// SignalExec sends a signal to the first process of a command, or to all of
// them. SIGKILL to all makes the outcome Canceled.
func (m *Manager) SignalExec(ctx context.Context, c sandbox.Caller, id, execID string, signal int, tree bool) error {
	l, err := m.Acquire(ctx, c, id)
	if err != nil {
		return err
	}
	defer l.Release()
	return l.Session().SignalExec(ctx, execID, signal, tree)
}

// WriteExec writes to the input of a command that runs, and ends it with eof. It
// returns when the command's input has taken all, so that what comes next comes
// behind it.
func (m *Manager) WriteExec(ctx context.Context, c sandbox.Caller, id, execID string, r io.Reader, eof bool) error {
	return m.visit(ctx, c, id, execID, func(p *client.Process) error {
		w := p.Stdin()
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
		if eof {
			return w.Close()
		}
		return nil
	})
}

// ResizeExec sets the size of a command's terminal.
func (m *Manager) ResizeExec(ctx context.Context, c sandbox.Caller, id, execID string, cols, rows uint16) error {
	return m.visit(ctx, c, id, execID, func(p *client.Process) error { return p.Resize(cols, rows) })
}

// visit attaches to a command that runs, for one thing to be done with it. Others
// wait for the command's end.
func (m *Manager) visit(ctx context.Context, c sandbox.Caller, id, execID string, f func(*client.Process) error) error {
	info, err := m.ExecInfo(ctx, c, id, execID, false)
	if err != nil {
		return err
	}
	if info.Result.Outcome != sandbox.Running {
		return fmt.Errorf("exec %s has ended: %w", execID, errdefs.ErrFailedPrecondition)
	}
	l, err := m.Acquire(ctx, c, id)
	if err != nil {
		return err
	}
	defer l.Release()
	p, err := l.Session().Attach(ctx, execID, info.StdoutEnd, info.StderrEnd, client.Output{Stdout: io.Discard, Stderr: io.Discard})
	if err != nil {
		return m.explain(l, err)
	}
	if err := f(p); err != nil {
		p.Abandon()
		return err
	}
	return p.Leave(ctx)
}

// Stream names an output stream of a command.
type Stream int

// Streams.
const (
	Stdout Stream = iota
	Stderr
)

// OffsetError says that output is not there: errdefs.IsOutOfRange. First is the
// first byte that is, End comes after the last.
type OffsetError struct{ Offset, First, End int64 }

func (e *OffsetError) Error() string {
	return fmt.Sprintf("there is no output at offset %d: it begins at %d and ends at %d", e.Offset, e.First, e.End)
}

// OutOfRange marks the error for errdefs.
func (*OffsetError) OutOfRange() {}

// Output writes the output of a command from an offset on to w: what is there
// now or, to follow it, all until the command's end. An offset that is not there
// any more, or not yet, is an *OffsetError.
func (m *Manager) Output(ctx context.Context, c sandbox.Caller, id, execID string, s Stream, offset int64, follow bool, w io.Writer) error {
	info, err := m.ExecInfo(ctx, c, id, execID, false)
	if err != nil {
		return err
	}
	at := [2]int64{info.StdoutEnd, info.StderrEnd}
	first, end := info.StdoutFirst, info.StdoutEnd
	if s == Stderr {
		first, end = info.StderrFirst, info.StderrEnd
	}
	if offset < first || offset > end {
		return &OffsetError{offset, first, end}
	}
	if info.Result.Outcome != sandbox.Running {
		follow = false
	}
	if !follow && offset == end {
		return nil
	}
	at[s] = offset
	cut := &cutWriter{w: w, left: end - offset, full: make(chan struct{})}
	out := [2]io.Writer{io.Discard, io.Discard}
	out[s] = io.Writer(cut)
	if follow {
		out[s] = w
	}
	e, err := m.Attach(ctx, c, id, execID, at[Stdout], at[Stderr], client.Output{Stdout: out[Stdout], Stderr: out[Stderr]})
	if err != nil {
		return err
	}
	defer e.Abandon()
	select {
	case <-cut.full:
		return cut.err
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// cutWriter passes on a number of bytes and drops the rest.
type cutWriter struct {
	w    io.Writer
	left int64
	err  error
	full chan struct{} // closed when all was passed on, or err is set
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if c.left == 0 || c.err != nil {
		return len(p), nil
	}
	n := min(int64(len(p)), c.left)
	_, c.err = c.w.Write(p[:n])
	c.left -= n
	if c.left == 0 || c.err != nil {
		close(c.full)
	}
	return len(p), nil
}
