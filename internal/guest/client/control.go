package client

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Signal sends a signal to the first process.
func (p *Process) Signal(ctx context.Context, signal int) error {
	return p.s.SignalExec(ctx, p.id, signal, false)
}

// Kill ends the whole tree of processes.
func (p *Process) Kill(ctx context.Context) error {
	return p.s.SignalExec(ctx, p.id, int(syscall.SIGKILL), true)
}

// Resize sets the size of the terminal.
func (p *Process) Resize(cols, rows uint16) error {
	b, err := proto.Marshal(&guestv1.Resize{Cols: uint32(cols), Rows: uint32(rows)})
	if err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	return p.send(guest.FrameResize, b)
}

// Detach leaves the command running, whatever its OnDisconnect says. When input
// that the command does not take is in the way for longer than hostGrace, that
// input is lost, and OnDisconnect says what becomes of the command.
func (p *Process) Detach() error {
	_ = p.conn.SetWriteDeadline(time.Now().Add(hostGrace)) // else send fails at once
	err := p.send(guest.FrameDetach, nil)
	p.abandon()
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// Abandon drops the stream without a word: for the guest the command's client
// is gone, and the command's OnDisconnect says what becomes of it. Wait then
// returns an error.
func (p *Process) Abandon() { p.abandon() }

// Leave ends this client's part when the guest has taken all input that was sent,
// or the command has ended. The command's OnDisconnect then says what becomes of
// it, unless others follow it. When ctx ends first, input may be lost.
func (p *Process) Leave(ctx context.Context) error {
	p.stopDeadline()
	_ = p.conn.Close() // ends our direction only: the guest ends its own behind the last frame
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.abandon()
		return fmt.Errorf("leave exec %s: %w", p.id, context.Cause(ctx))
	}
}

// abandon drops the stream: for the guest, its client has gone.
func (p *Process) abandon() {
	p.stopDeadline()
	p.conn.abort()
}

func (p *Process) send(t guest.FrameType, b []byte) error {
	p.write.Lock()
	defer p.write.Unlock()
	if err := guest.WriteFrame(p.conn, t, b); err != nil {
		// A command that ended closes its stream, and its result is still on the way
		// to be read.
		select {
		case <-p.done:
			return fmt.Errorf("write to exec %s: %w", p.id, errEnded)
		case <-time.After(hostGrace):
			return fmt.Errorf("write to exec %s: %w: %w", p.id, errdefs.ErrUnavailable, err)
		}
	}
	return nil
}

// errEnded is what the caller is told who comes too late.
var errEnded = fmt.Errorf("the command has ended: %w", errdefs.ErrFailedPrecondition)
