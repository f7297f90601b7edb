package local_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/local"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake"
	"agentbox/internal/sandbox"
	"agentbox/internal/transfer"
)

func create(t *testing.T, e *local.Engine, req local.Request) *local.Sandbox {
	t.Helper()
	s, err := e.Create(soon(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A sandbox runs commands in the image's environment, changed by the request,
// and is gone with its image when it is destroyed.
func TestRun(t *testing.T) {
	r := newRig(t)
	e, h := r.open()
	r.forgetSteps()
	req := request()
	req.Env = []string{"FROM=request"}
	s := create(t, e, req)
	r.wantSteps("acquire", "create", "start", "attach")
	if !slices.Equal(s.NotEnforced, []string{sandbox.LimitCPUs}) {
		t.Errorf("not enforced: %v", s.NotEnforced)
	}
	p, err := s.Start(soon(t), sandbox.Command{Shell: "echo $FROM $KEPT; exit 3"}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Wait(soon(t), p)
	if err != nil || res.Outcome != sandbox.Exited || res.ExitCode != 3 || string(res.Stdout) != "request yes\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	for range 2 {
		if err := s.Destroy(soon(t)); err != nil {
			t.Error(err)
		}
	}
	r.wantSteps("destroy", "release", "destroy")
	if all := left(t, h); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

// What a failed creation made is undone, last first, and the error is that of
// the step.
func TestCreateUndoes(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		step string
		want []string
	}{
		{"acquire", []string{"acquire"}},
		{"create", []string{"acquire", "create", "release"}},
		{"start", []string{"acquire", "create", "start", "destroy", "release"}},
		{"attach", []string{"acquire", "create", "start", "attach", "destroy", "release"}},
	} {
		t.Run(c.step, func(t *testing.T) {
			r := newRig(t)
			e, _ := r.open()
			r.forgetSteps()
			r.failing(c.step, boom)
			if _, err := e.Create(soon(t), request()); !errors.Is(err, boom) {
				t.Errorf("got %v", err)
			}
			r.wantSteps(c.want...)
			// The engine is as good as before.
			r.failing(c.step, nil)
			if err := create(t, e, request()).Destroy(soon(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A creation that its caller gave up is undone all the same.
func TestCreateIsCancelled(t *testing.T) {
	r := newRig(t)
	e, h := r.open()
	r.forgetSteps()
	ctx, cancel := context.WithCancel(t.Context())
	r.attached = func(_ *fake.Host, _ string, c net.Conn) net.Conn {
		cancel() // the greeting is under way
		return c
	}
	if _, err := e.Create(ctx, request()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.wantSteps("acquire", "create", "start", "attach", "destroy", "release")
	if all := left(t, h); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

// A sandbox that dies before its agent answered says of what.
func TestCreateOfADyingSandbox(t *testing.T) {
	r := newRig(t)
	e, h := r.open()
	r.attached = func(h *fake.Host, id string, c net.Conn) net.Conn {
		if err := h.Kill(id, sandbox.ReasonOOM, ""); err != nil {
			t.Error(err)
		}
		return c
	}
	_, err := e.Create(soon(t), request())
	if err == nil || !strings.Contains(err.Error(), "memory limit of 512") {
		t.Errorf("got %v", err)
	}
	if all := left(t, h); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

// What can't be undone is told beside the cause, and goes with the engine.
func TestUndoFails(t *testing.T) {
	r := newRig(t)
	e, h := r.start()
	boom, worse := errors.New("boom"), errors.New("worse")
	r.failing("attach", boom)
	r.failing("destroy", worse)
	if _, err := e.Create(soon(t), request()); !errors.Is(err, boom) || !errors.Is(err, worse) {
		t.Errorf("got %v", err)
	}
	if n := len(left(t, h)); n != 1 {
		t.Errorf("%d sandboxes are left, not the one that could not be destroyed", n)
	}
	r.failing("destroy", nil)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if all := left(t, h); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}

// The image is held for as long as the sandbox is there.
func TestDestroyFails(t *testing.T) {
	r := newRig(t)
	e, _ := r.open()
	s := create(t, e, request())
	r.forgetSteps()
	worse := errors.New("worse")
	r.failing("destroy", worse)
	if err := s.Destroy(soon(t)); !errors.Is(err, worse) {
		t.Errorf("got %v", err)
	}
	r.failing("destroy", nil)
	if err := s.Destroy(soon(t)); err != nil {
		t.Error(err)
	}
	r.wantSteps("destroy", "destroy", "release")
}

// A command that went down with its sandbox has a result that says why, and so
// has the next one.
func TestSandboxDies(t *testing.T) {
	for _, c := range []struct {
		reason  sandbox.Reason
		outcome sandbox.Outcome
		text    string
	}{
		{sandbox.ReasonOOM, sandbox.OOM, "memory limit of 512"},
		{sandbox.ReasonCrashed, sandbox.Lost, "the sandbox ended: " + string(sandbox.ReasonCrashed) + ": of that"},
		{sandbox.ReasonExited, sandbox.Lost, "the sandbox ended: " + string(sandbox.ReasonExited) + ": of that"},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			r := newRig(t)
			e, h := r.open()
			s := create(t, e, request())
			defer s.Destroy(soon(t))
			p, err := s.Start(soon(t), sandbox.Command{Shell: "sleep 1000"}, client.Output{})
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Kill(s.ID, c.reason, "of that"); err != nil {
				t.Fatal(err)
			}
			res, err := s.Wait(soon(t), p)
			if err != nil || res.Outcome != c.outcome || !strings.Contains(res.Reason, c.text) {
				t.Errorf("got %+v, %v", res, err)
			}
			if _, err := s.Start(soon(t), sandbox.Command{Shell: "true"}, client.Output{}); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("the next command: %v", err)
			}
			if err := s.Destroy(soon(t)); err != nil {
				t.Error(err)
			}
			if all := left(t, h); len(all) > 0 {
				t.Errorf("left: %+v", all)
			}
		})
	}
}

// What the agent refuses is an error at once: nobody waits for the end of a
// sandbox that lives.
func TestRefusedCommand(t *testing.T) {
	e, _ := newRig(t).open()
	s := create(t, e, request())
	defer s.Destroy(soon(t))
	began := time.Now()
	p, err := s.Start(soon(t), sandbox.Command{Shell: "true", User: "nosuch"}, client.Output{})
	if err == nil {
		_, err = s.Wait(soon(t), p)
	}
	if err == nil || !client.Told(err) {
		t.Errorf("the error is %v", err)
	}
	if took := time.Since(began); took >= 5*time.Second { // as long as a death is waited for
		t.Errorf("it took %v", took)
	}
}

// deadOwner is the directory of a process that was killed, with sandboxes in
// every state that it can leave one in.
func (r *rig) deadOwner(name string) (dir string, h *fake.Host) {
	r.t.Helper()
	dir = filepath.Join(r.data, "owners", name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	h = r.host(dir)
	rt := h.Open()
	defer rt.Close()
	for _, state := range []sandbox.State{sandbox.Created, sandbox.Live, sandbox.Stopped, sandbox.Failed} {
		id := ids.UID()
		err := rt.Create(r.t.Context(), runtime.Spec{ID: id, Limits: request().Limits})
		if state != sandbox.Created {
			err = errors.Join(err, rt.Start(r.t.Context(), id))
		}
		switch state {
		case sandbox.Stopped:
			err = errors.Join(err, rt.Stop(r.t.Context(), id))
		case sandbox.Failed:
			err = errors.Join(err, h.Kill(id, sandbox.ReasonCrashed, ""))
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return dir, h
}

// An engine removes at its start what dead ones left, in whatever state. What
// it can't remove keeps neither it nor the rest from going on, and is tried
// again by the next one.
func TestReclaim(t *testing.T) {
	r := newRig(t)
	dir, h := r.deadOwner("dead")
	worse := errors.New("worse")
	r.failing("destroy", worse)
	var warned error
	e, err := local.Open(t.Context(), r.data, r, r.backend, func(err error) { warned = err })
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(warned, worse) {
		t.Errorf("the warning was %v", warned)
	}
	if err := e.Close(); err != nil { // it has no sandbox of its own
		t.Error(err)
	}
	if _, err := os.Stat(dir); err != nil || len(left(t, h)) != 4 {
		t.Errorf("%v, %+v", err, left(t, h))
	}
	r.failing("destroy", nil)
	gone, err := local.Reclaim(t.Context(), r.data, r.backend)
	if err != nil || !slices.Equal(gone, []string{"dead"}) {
		t.Errorf("reclaimed %q, %v", gone, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) || len(left(t, h)) != 0 {
		t.Errorf("%v, %+v", err, left(t, h))
	}
}

// An engine that can't have a back end leaves no owner's directory behind.
func TestOpenFails(t *testing.T) {
	r := newRig(t)
	boom := errors.New("boom")
	r.failing("open", boom)
	if _, err := local.Open(t.Context(), r.data, r, r.backend, func(err error) { t.Error(err) }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if dirs, err := filepath.Glob(filepath.Join(r.data, "owners", "[^.]*")); err != nil || len(dirs) > 0 {
		t.Errorf("left: %v, %v", dirs, err)
	}
}

// The outputs of a sandbox come to the host as files, whatever its user made of
// the directory.
func TestOutputs(t *testing.T) {
	r := newRig(t)
	e, _ := r.open()
	s := create(t, e, request())
	defer s.Destroy(soon(t))
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "in.txt"), []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(transfer.Pack(pw, host, "data")) }()
	if err := s.PutTree(soon(t), "/tmp", pr); err != nil {
		t.Fatal(err)
	}
	p, err := s.Start(soon(t), sandbox.Command{Shell: "mkdir -p /tmp/out/sub && cat /tmp/data/in.txt >/tmp/out/sub/out.txt && ln -s /etc /tmp/out/link"}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.Wait(soon(t), p); err != nil || res.ShellCode() != 0 {
		t.Fatalf("%v, %+v", err, res)
	}
	tree, err := s.Session().GetArchive(soon(t), "/tmp/out", client.ArchiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	out := filepath.Join(host, "out")
	skipped, err := transfer.Unpack(tree, out, transfer.Options{})
	if err != nil || len(skipped) != 1 || !strings.HasPrefix(skipped[0], `"link": `) {
		t.Errorf("left out %q, %v", skipped, err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "sub", "out.txt")); err != nil || string(b) != "text\n" {
		t.Errorf("the output holds %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(out, "link")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link: %v", err)
	}
}
