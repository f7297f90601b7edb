package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Output says where a command's output goes. With a writer every byte comes, and
// the command waits while the writer is slow; up to MaxOutput bytes if the
// command has that set. Without one, the result holds up to MaxOutput bytes.
// A writer that fails only ends its own output: the command runs on.
type Output struct{ Stdout, Stderr io.Writer }

// hostGrace is how much later than the guest the host ends a command, and how
// long it then waits for the result.
const hostGrace = 2 * time.Second

// Process is a command that this client follows.
type Process struct {
	s    *Session
	id   string
	conn *stream

	write    sync.Mutex // one frame at a time
	started  chan struct{}
	done     chan struct{}
	began    time.Time
	result   *sandbox.Result // set before done is closed, also beside err
	err      error
	out      [2]*sink
	limit    time.Duration // 0: none
	deadline *time.Timer   // runs as soon as there is a stream to end
	late     chan struct{} // closed when the guest missed the deadline

	end   sync.Mutex // held while done is closed
	after []func()   // what follows the end
}

// ID of the command, with which any session can find it again.
func (p *Process) ID() string { return p.id }

// Start runs a command and returns as soon as it runs, or waits for a free
// place in the guest.
func (s *Session) Start(ctx context.Context, id string, c sandbox.Command, out Output) (*Process, error) {
	q, err := execRequest(id, c)
	if err != nil {
		return nil, fmt.Errorf("start a command: %w", err)
	}
	p := s.newProcess(id, c.MaxOutput, out)
	p.limit = time.Duration(q.TimeoutNs)
	if err := p.begin(ctx, guest.PathExec, guest.FrameExec, q); err != nil {
		return nil, fmt.Errorf("start a command: %w", err)
	}
	return p, nil
}

// Attach follows a command that runs, or ended not long ago, from the given
// offsets of its output on. Bytes that the guest no longer holds are left out:
// the result then says that the output is truncated.
func (s *Session) Attach(ctx context.Context, id string, stdoutOff, stderrOff int64, out Output) (*Process, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	p := s.newProcess(id, 0, out)
	q := &guestv1.AttachRequest{ExecId: id, StdoutOffset: stdoutOff, StderrOffset: stderrOff, Lossless: true}
	if err := p.begin(ctx, guest.PathAttach, guest.FrameAttach, q); err != nil {
		return nil, fmt.Errorf("attach to exec %s: %w", id, err)
	}
	return p, nil
}

// Run runs a command to its end with the given input, nil for none. When the
// context ends first, the command is killed and the error is the context's.
func (s *Session) Run(ctx context.Context, c sandbox.Command, stdin io.Reader) (*sandbox.Result, error) {
	c.Stdin = stdin != nil
	p, err := s.Start(ctx, ids.Hex(runIDLen), c, Output{})
	if err != nil {
		return nil, err
	}
	if stdin != nil {
		go p.feed(stdin)
	}
	r, err := p.Wait(ctx)
	if err != nil && ctx.Err() != nil {
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), hostGrace)
		defer cancel()
		_ = p.Kill(kill)
		p.abandon()
	}
	return r, err
}

// runIDLen is the random bytes in the id of a command that Run makes.
const runIDLen = 12

// feed copies input; a command that does not want it all is no error.
func (p *Process) feed(r io.Reader) {
	w := p.Stdin()
	_, _ = io.Copy(w, r)
	_ = w.Close()
}

func (s *Session) newProcess(id string, maxOutput int64, out Output) *Process {
	p := &Process{s: s, id: id, began: time.Now(), started: make(chan struct{}), done: make(chan struct{}), late: make(chan struct{})}
	limit := maxOutput
	if limit == 0 {
		limit = sandbox.DefaultMaxOutput
	}
	p.out[0], p.out[1] = newSink(out.Stdout, limit), newSink(out.Stderr, limit)
	return p
}

// begin opens the stream, sends the first frame and waits until the command is
// there.
func (p *Process) begin(ctx context.Context, path string, t guest.FrameType, q proto.Message) error {
	b, err := proto.Marshal(q)
	switch {
	case err != nil:
		return fmt.Errorf("%w: encode the request: %w", errdefs.ErrInvalidArgument, err)
	case len(b) > guest.MaxRequest:
		return guest.Errorf(errdefs.ErrInvalidArgument, "arguments and environment have %d bytes, at most are %d", len(b), guest.MaxRequest)
	}
	if p.conn, err = p.s.open(); err != nil {
		return err
	}
	if p.limit > 0 {
		p.deadline = time.AfterFunc(p.limit+hostGrace, p.overdue)
	}
	stop := context.AfterFunc(ctx, p.abandon)
	defer stop()
	head := []byte("POST " + path + " HTTP/1.1\r\nHost: guest\r\nConnection: Upgrade\r\nUpgrade: " + guest.Upgrade + "\r\n\r\n")
	first := bytes.NewBuffer(head)
	for ; len(b) > guest.MaxFrame; b = b[guest.MaxFrame:] {
		_ = guest.WriteFrame(first, guest.FramePart, b[:guest.MaxFrame])
	}
	_ = guest.WriteFrame(first, t, b) // to memory, and no larger than a frame
	if _, err := p.conn.Write(first.Bytes()); err != nil {
		p.abandon()
		return fmt.Errorf("%w: %w", errdefs.ErrUnavailable, err)
	}
	go p.follow()
	select {
	case <-p.started:
		return nil
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.abandon()
		return context.Cause(ctx)
	case <-time.After(startTimeout):
		p.abandon()
		return fmt.Errorf("%w: the guest did not answer in %v: %w", errdefs.ErrUnavailable, startTimeout, os.ErrDeadlineExceeded)
	}
}

// startTimeout is how long the guest may take to say that a command runs, or
// waits.
const startTimeout = time.Minute

// follow reads the guest's frames to the end of the command.
func (p *Process) follow() {
	r, err := p.frames()
	p.stopDeadline()
	if err != nil {
		select {
		case <-p.late:
			r, err = p.overdueResult(), nil
		default:
		}
	}
	if r == nil {
		r = &sandbox.Result{ExecID: p.id, Outcome: sandbox.Lost, Duration: time.Since(p.began)}
	}
	p.out[0].fill(&r.Stdout, &r.StdoutTruncated)
	p.out[1].fill(&r.Stderr, &r.StderrTruncated)
	p.result, p.err = r, err
	p.conn.abort()
	p.end.Lock()
	close(p.done)
	p.end.Unlock()
	for _, f := range p.after {
		f()
	}
}

// AfterEnd lets f run once when Wait has a result, in a goroutine that may be f's for
// as long as it likes. Of a command that has ended f runs at once.
func (p *Process) AfterEnd(f func()) {
	p.end.Lock()
	defer p.end.Unlock()
	select {
	case <-p.done:
		go f()
	default:
		p.after = append(p.after, f)
	}
}

func (p *Process) stopDeadline() {
	if p.deadline != nil {
		p.deadline.Stop()
	}
}

func (p *Process) frames() (*sandbox.Result, error) {
	head := &boundedReader{p.conn, maxHead}
	buf := bufio.NewReaderSize(head, 32<<10)
	a, err := http.ReadResponse(buf, &http.Request{Method: http.MethodPost}) //nolint:bodyclose // it ends with the stream
	if err != nil {
		return nil, fmt.Errorf("%w: no answer from the guest: %w", errdefs.ErrUnavailable, err)
	}
	head.left = 1<<63 - 1
	if a.StatusCode != http.StatusSwitchingProtocols {
		return nil, decodeError(a)
	}
	in := guest.NewFrameReader(buf)
	for {
		t, b, err := in.Next()
		if err != nil {
			return nil, fmt.Errorf("%w: the guest broke off: %w", errdefs.ErrUnavailable, err)
		}
		r, err := p.frame(t, b)
		if r != nil || err != nil {
			return r, err
		}
	}
}

// frame handles one frame; the last one gives the result.
func (p *Process) frame(t guest.FrameType, b []byte) (*sandbox.Result, error) {
	switch t {
	case guest.FrameStarted:
		select {
		case <-p.started:
		default:
			close(p.started)
		}
	case guest.FrameStdout:
		p.out[0].write(b)
	case guest.FrameStderr:
		p.out[1].write(b)
	case guest.FrameGap:
		m := new(guestv1.Gap)
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, fmt.Errorf("%w: decode a gap: %w", errdefs.ErrInternal, err)
		}
		if m.GetStderr() {
			p.out[1].truncated = true
		} else {
			p.out[0].truncated = true
		}
	case guest.FrameExit:
		m := new(guestv1.ExecResult)
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, fmt.Errorf("%w: decode a result: %w", errdefs.ErrInternal, err)
		}
		r := guest.ResultOf(p.id, m)
		return &r, nil
	case guest.FrameError:
		m := new(guestv1.Error)
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, fmt.Errorf("%w: decode an error: %w", errdefs.ErrInternal, err)
		}
		return nil, guest.DecodeError(m)
	}
	return nil, nil // a frame of a later version
}

// Wait waits until the command has ended. It may be called more than once. A
// context that ends first leaves the command alone. When the guest broke off,
// the result beside the error is Lost and has the output until then.
func (p *Process) Wait(ctx context.Context) (*sandbox.Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		select {
		case <-p.done: // both: the result is worth more
		default:
			return nil, fmt.Errorf("wait for exec %s: %w", p.id, context.Cause(ctx))
		}
	}
	if p.err != nil {
		return p.result, fmt.Errorf("wait for exec %s: %w", p.id, p.err)
	}
	return p.result, nil
}

// overdue runs when the guest has not reported by the deadline and its grace:
// the host kills the command's processes, and reports the time-out itself when
// that does not bring the result either.
func (p *Process) overdue() {
	ctx, cancel := context.WithTimeout(context.Background(), hostGrace)
	defer cancel()
	_ = p.s.SignalExec(ctx, p.id, int(syscall.SIGKILL), true)
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	close(p.late)
	p.conn.abort()
}

func (p *Process) overdueResult() *sandbox.Result {
	return &sandbox.Result{
		ExecID: p.id, Outcome: sandbox.TimedOut, Signal: int(syscall.SIGKILL),
		Reason: "the time limit passed and the guest did not report",
	}
}
