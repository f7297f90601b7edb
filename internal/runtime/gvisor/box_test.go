package gvisor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// box is a running sandbox of a test with a session.
type box struct {
	t    testing.TB
	ctx  context.Context
	dir  string
	rt   runtime.Runtime
	spec runtime.Spec
	s    *client.Session

	epoch uint64
}

// shortDir is a directory whose path is short enough for sockets.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func smallSpec() runtime.Spec {
	l := sandbox.Limits{Memory: 256 * sandbox.MiB, Disk: 64 * sandbox.MiB, Pids: 64}
	return runtime.Spec{ID: ids.UID(), Image: shared.image, Limits: l.WithDefaults()}
}

// newBox makes a back end with one running sandbox. Both are removed at the end
// of the test.
func newBox(t testing.TB, change ...func(*runtime.Spec)) *box {
	t.Helper()
	need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &box{t: t, ctx: ctx, dir: shortDir(t), spec: smallSpec()}
	for _, f := range change {
		f(&b.spec)
	}
	b.open()
	t.Cleanup(b.finish)
	b.ok(b.rt.Create(ctx, b.spec))
	b.ok(b.rt.Start(ctx, b.spec.ID))
	b.connect()
	return b
}

func (b *box) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all, err := b.rt.List(ctx)
	b.ok(err)
	for _, i := range all {
		b.ok(b.rt.Destroy(ctx, i.ID))
	}
	b.ok(b.rt.Close())
}

func (b *box) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) open() {
	b.t.Helper()
	rt, err := open(b.dir)
	b.ok(err)
	b.rt = rt
}

// connect begins a new session.
func (b *box) connect() {
	b.t.Helper()
	conn, err := b.rt.Attach(b.ctx, b.spec.ID)
	b.ok(err)
	b.epoch++
	b.s, err = client.New(b.ctx, conn, client.Options{SandboxID: b.spec.ID, Hostname: ids.Short(b.spec.ID), Epoch: b.epoch})
	b.ok(err)
	s := b.s
	b.t.Cleanup(func() { s.Close() })
}

// sh runs a shell command as guest root and returns what it printed.
func (b *box) sh(script string) string {
	b.t.Helper()
	r, err := b.s.Run(b.ctx, sandbox.Command{Shell: script, User: "root"}, nil)
	b.ok(err)
	if r.ShellCode() != 0 {
		b.t.Fatalf("%q ended as %v %d: %s%s", script, r.Outcome, r.ShellCode(), r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

func (b *box) info() runtime.Info {
	b.t.Helper()
	all, err := b.rt.List(b.ctx)
	b.ok(err)
	for _, i := range all {
		if i.ID == b.spec.ID {
			return i
		}
	}
	b.t.Fatal("the sandbox is not listed")
	return runtime.Info{}
}

// suspendAndResume takes the sandbox to disk and back.
func (b *box) suspendAndResume() {
	b.t.Helper()
	s, _ := runtime.As[runtime.Suspender](b.rt)
	image := filepath.Join(b.t.TempDir(), "image")
	b.ok(b.s.Quiesce(b.ctx))
	b.ok(s.Suspend(b.ctx, b.spec.ID, image))
	b.ok(s.Resume(b.ctx, b.spec, image))
	b.connect()
}
