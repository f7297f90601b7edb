package gvisor_test

import (
	"context"
	"errors"
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
