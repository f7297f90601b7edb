package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// exit ends the sandbox's first process from within.
func exit(b *box) {
	_, _ = b.s.Run(b.ctx, sandbox.Command{Shell: "kill -9 1; sleep 1000", User: "root"}, nil)
}

// crash ends the engine's process in the middle of a long dump.
func crash(b *box) {
	b.t.Helper()
	logs, err := filepath.Glob(filepath.Join(b.dir, "*", b.spec.ID, "panic.log"))
	b.ok(err)
	if len(logs) != 1 {
		b.t.Fatalf("the panic logs of the sandbox are %q", logs)
	}
	b.ok(os.WriteFile(logs[0], []byte("fatal error: the cause\n"+strings.Repeat("goroutine\n", 10_000)), 0))
	b.ok(syscall.Kill(b.info().Pid, syscall.SIGKILL))
}

// A sandbox's end has its reason, also for an owner that did not start it; what the
// engine said at last is kept when it crashed.
func TestDeathHasItsReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		die    func(*box)
		reason sandbox.Reason
		says   string // in the log that is kept
	}{
		{"first process ends", exit, sandbox.ReasonExited, ""},
		{"out of memory", func(b *box) {
			_, _ = b.s.Run(b.ctx, sandbox.Command{Argv: []string{"python3", "-c", "b = bytearray(10**9)"}}, nil)
		}, sandbox.ReasonOOM, ""},
		{"killed", func(b *box) { b.ok(syscall.Kill(b.info().Pid, syscall.SIGKILL)) }, sandbox.ReasonCrashed, ""},
		{"crash", crash, sandbox.ReasonCrashed, "fatal error: the cause"},
	} {
		for owner, take := range map[string]func(*box){"maker": func(*box) {}, "later one": (*box).reopened} {
			t.Run(c.name+", "+owner, func(t *testing.T) {
				b := newBox(t)
				if len(b.rt.Capabilities().NotEnforced) > 0 && c.reason == sandbox.ReasonOOM {
					t.Skip("memory is not limited here")
				}
				take(b)
				events := b.rt.Watch(b.ctx)
				c.die(b)
				var e runtime.Event
				select {
				case e = <-events:
				case <-b.ctx.Done():
					t.Fatal("nobody says that the sandbox ended")
				}
				if e.ID != b.spec.ID || e.Reason != c.reason || !strings.Contains(e.Detail, c.says) {
					t.Errorf("the event is %+v, want %s", e, c.reason)
				}
				if i := b.info(); i.State != sandbox.Failed || i.Reason != c.reason {
					t.Errorf("the list says %s, %s", i.State, i.Reason)
				}
				b.ok(b.rt.Destroy(b.ctx, b.spec.ID))
				kept, err := os.ReadFile(filepath.Join(b.dir, "crashes", b.spec.ID+".log"))
				if (err == nil) != (c.says != "") || !strings.Contains(string(kept), c.says) {
					t.Errorf("the log that is kept says %q, %v; want %q", kept, err, c.says)
				}
			})
		}
	}
}

// The reason is the same for an owner that comes when all is over.
func TestDeathUnseenHasItsReason(t *testing.T) {
	for _, c := range []struct {
		name   string
		die    func(b *box, pid int)
		reason sandbox.Reason
	}{
		{"first process ends", func(b *box, _ int) { exit(b) }, sandbox.ReasonExited},
		{"killed", func(b *box, pid int) { b.ok(syscall.Kill(pid, syscall.SIGKILL)) }, sandbox.ReasonCrashed},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t)
			pid := b.info().Pid
			b.ok(b.rt.Close()) // the session goes on
			c.die(b, pid)
			b.awaitEnd(pid)
			b.open()
			if i := b.info(); i.State != sandbox.Failed || i.Reason != c.reason {
				t.Errorf("the list says %s, %s; want %s", i.State, i.Reason, c.reason)
			}
		})
	}
}

// awaitEnd waits for the end of a process, which may stay a zombie.
func (b *box) awaitEnd(pid int) {
	b.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	b.ok(err)
	defer unix.Close(fd)
	for n := 0; n <= 0; { // until b.ctx ends
		b.ok(b.ctx.Err())
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if !errors.Is(err, unix.EINTR) {
			b.ok(err)
		}
	}
}
