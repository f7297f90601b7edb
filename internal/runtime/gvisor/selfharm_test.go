package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// Root in a sandbox can end its first process and with it the sandbox, but
// nothing else: the host is told, and removes what is left.
func TestRootEndsItsSandbox(t *testing.T) {
	b := newBox(t)
	events := b.rt.Watch(b.ctx)
	if _, err := b.s.Run(b.ctx, sandbox.Command{Shell: "kill -9 1; sleep 1000", User: "root", Timeout: time.Minute}, nil); err == nil {
		t.Error("a command of a dead sandbox has a result")
	}
	select {
	case e := <-events:
		if e.ID != b.spec.ID || e.Reason == "" {
			t.Errorf("the event is %+v", e)
		}
	case <-b.ctx.Done():
		t.Fatal("nobody says that the sandbox ended")
	}
	if i := b.info(); i.State != sandbox.Failed || i.Reason == "" {
		t.Errorf("got %+v", i)
	}
	b.ok(b.rt.Destroy(b.ctx, b.spec.ID))
}

// Root can freeze the first process too. Calls end by their deadlines then, and
// the sandbox can be destroyed.
func TestRootFreezesItsSandbox(t *testing.T) {
	b := newBox(t)
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Second)
	defer cancel()
	if _, err := b.s.Run(ctx, sandbox.Command{Shell: "kill -STOP 1; sleep 1000", User: "root", Timeout: time.Minute}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command of a frozen sandbox: %v", err)
	}
	ctx, cancel = context.WithTimeout(b.ctx, time.Second)
	defer cancel()
	if _, err := b.s.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call into a frozen sandbox: %v", err)
	}
	b.ok(b.rt.Destroy(b.ctx, b.spec.ID))
}

// Processes that stop all others of their user, again and again, also stop
// commands that are only being started. The agent answers, such commands end by
// their deadlines, and later ones run.
func TestStartsAreStopped(t *testing.T) {
	for _, user := range []string{"1000", "root"} {
		b := newBox(t)
		const limit = time.Second
		var all sync.WaitGroup
		all.Go(func() {
			_, err := b.s.Run(b.ctx, sandbox.Command{Shell: "while :; do kill -STOP -1; done", User: user, Timeout: 5 * limit}, nil)
			if err != nil {
				t.Errorf("as %s, the command that stops others: %v", user, err)
			}
		})
		for range 12 {
			all.Go(func() {
				for range 3 {
					r, err := b.s.Run(b.ctx, sandbox.Command{Argv: []string{"true"}, User: user, Timeout: limit}, nil)
					if err != nil || r.Outcome != sandbox.Exited && r.Outcome != sandbox.TimedOut {
						t.Errorf("as %s: got %+v, %v", user, r, err)
					}
				}
			})
		}
		all.Wait()
		if _, err := b.s.Ping(b.ctx); err != nil {
			t.Fatal(err)
		}
		r, err := b.s.Run(b.ctx, sandbox.Command{Shell: "exit 7", User: user}, nil)
		if err != nil || r.ExitCode != 7 {
			t.Errorf("as %s, afterwards: got %+v, %v", user, r, err)
		}
	}
}

// A script whose interpreter is a FIFO that nobody writes to keeps only itself
// waiting, for as long as it may.
func TestInterpreterIsFIFO(t *testing.T) {
	b := newBox(t)
	b.sh("cd /tmp && mkfifo f && chmod 755 f && printf '#!/tmp/f\\n' >script && chmod 755 script")
	for _, user := range []string{"1000", "root"} {
		hang := make(chan error, 1)
		go func() {
			r, err := b.s.Run(b.ctx, sandbox.Command{Argv: []string{"/tmp/script"}, User: user, Timeout: 2 * time.Second}, nil)
			if err == nil && r.Outcome != sandbox.TimedOut {
				err = fmt.Errorf("the script ended with %+v", r)
			}
			hang <- err
		}()
		for range 3 {
			r, err := b.s.Run(b.ctx, sandbox.Command{Shell: "exit 7", User: user}, nil)
			if err != nil || r.ExitCode != 7 {
				t.Errorf("as %s, beside it: got %+v, %v", user, r, err)
			}
		}
		b.ok(<-hang)
	}
}
