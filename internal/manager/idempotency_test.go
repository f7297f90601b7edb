package manager_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

func TestIdempotency(t *testing.T) {
	r := newRig(t)
	d := r.open()
	req := sandbox.CreateRequest{Labels: map[string]string{"a": "1", "b": "2"}}
	first, err := d.Create(t.Context(), acme, req, "k")
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	d = r.open() // it holds over a restart
	again, err := d.Create(t.Context(), acme, req, "k")
	if err != nil || again.UID != first.UID {
		t.Errorf("again: %s, %v", again.Short, err)
	}
	if _, err := d.Create(t.Context(), acme, sandbox.CreateRequest{}, "k"); !errdefs.IsConflict(err) {
		t.Errorf("another request: %v", err)
	}
	if sb, err := d.Create(t.Context(), sandbox.Caller{Owner: "other"}, req, "k"); err != nil || sb.UID == first.UID {
		t.Errorf("another owner: %v", err)
	}
	if _, err := d.Create(t.Context(), acme, req, strings.Repeat("k", 256)); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a long key: %v", err)
	}
	if err := d.Destroy(t.Context(), acme, first.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), acme, req, "k"); !errdefs.IsNotFound(err) {
		t.Errorf("after its end: %v", err)
	}
}

// Repetitions while the sandbox is made wait for it, also when it fails.
func TestIdempotencyAtOnce(t *testing.T) {
	r := newRig(t)
	d := r.open()
	fails := 2
	d.life.hook("create", func() {
		d.life.mu.Lock()
		defer d.life.mu.Unlock()
		d.life.fail["create"] = nil
		if fails--; fails >= 0 {
			d.life.fail["create"] = errdefs.ErrUnavailable
		}
	})
	type answer struct {
		uid string
		err error
	}
	answers := make(chan answer)
	for range 8 {
		go func() {
			sb, err := d.Create(context.WithoutCancel(t.Context()), acme, sandbox.CreateRequest{}, "k")
			answers <- answer{sb.UID, err}
		}()
	}
	got := map[string]int{}
	for range 8 {
		a := <-answers
		if a.err != nil && !errdefs.IsUnavailable(a.err) {
			t.Error(a.err)
		}
		got[a.uid]++
	}
	if len(got) != 2 || got[""] != 2 || len(r.inHost()) != 1 {
		t.Errorf("got %v, in the host is %v", got, r.inHost())
	}
}

// A creation that failed and could not be undone yet is no success for who asks
// again.
func TestIdempotencyOfFailed(t *testing.T) {
	d := newRig(t).open()
	d.life.failing("create done", errors.New("no such luck"))
	d.life.failing("destroy", errors.New("busy"))
	for range 2 {
		if sb, err := d.Create(t.Context(), acme, sandbox.CreateRequest{}, "k"); err == nil || !strings.Contains(err.Error(), "no such luck") {
			t.Errorf("got %+v, %v", sb, err)
		}
	}
}

// A command with a key runs once, for all who ask, also over a restart.
func TestCommandOnce(t *testing.T) {
	r := newRig(t)
	d := r.open()
	sb := d.create(sandbox.CreateRequest{})
	cmd := sandbox.Command{Shell: "cat; echo ran >> /workspace/log; echo out; exit 5", Stdin: true}
	run := func() (*sandbox.Result, error) {
		return d.Exec(context.WithoutCancel(t.Context()), acme, sb.UID, cmd, strings.NewReader("in\n"), "k")
	}
	results := make(chan *sandbox.Result)
	for range 5 {
		go func() {
			res, err := run()
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	var id string
	for range 5 {
		res := <-results
		if res.ExitCode != 5 || string(res.Stdout) != "in\nout\n" || id != "" && res.ExecID != id {
			t.Errorf("got %+v", res)
		}
		id = res.ExecID
	}
	d.kill()
	d = r.open()
	if res, err := run(); err != nil || res.ExecID != id || string(res.Stdout) != "in\nout\n" {
		t.Errorf("after a restart: %+v, %v", res, err)
	}
	if res := d.sh(sb.UID, "cat /workspace/log"); string(res.Stdout) != "ran\n" {
		t.Errorf("it ran %q", res.Stdout)
	}
	cmd.Env = []string{"OTHER=1"}
	if _, err := run(); !errdefs.IsConflict(err) {
		t.Errorf("another command: %v", err)
	}
}

// What a request was answered with holds over a restart, and is nowhere to be
// read: it may hold a secret.
func TestAnswersAreKept(t *testing.T) {
	r := newRig(t)
	d := r.open()
	runs := 0
	ask := func(request string) (string, error) {
		b, err := d.Once(t.Context(), acme, sandbox.Once{Key: "customer 7", Request: request}, func(context.Context, sandbox.Try) ([]byte, error) {
			runs++
			return []byte("hunter2hunter2"), nil
		})
		return string(b), err
	}
	if got, err := ask("make"); err != nil || got != "hunter2hunter2" {
		t.Fatal(got, err)
	}
	d.kill()
	d = r.open()
	if got, err := ask("make"); err != nil || got != "hunter2hunter2" || runs != 1 {
		t.Errorf("after a restart: %q, %v, done %d times", got, err, runs)
	}
	if _, err := ask("make another"); !errdefs.IsConflict(err) {
		t.Errorf("another request: %v", err)
	}
	d.close()
	files, err := filepath.Glob(r.path + "*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("hunter2")) || bytes.Contains(b, []byte("customer 7")) {
			t.Errorf("%s has the answer, or its key", f)
		}
	}
}

// A command whose result the sandbox has forgotten is not run again.
func TestForgottenCommand(t *testing.T) {
	d := newRig(t).open()
	sb := d.create(sandbox.CreateRequest{})
	cmd := sandbox.Command{Shell: "echo ran >> /workspace/log"}
	res, err := d.Exec(t.Context(), acme, sb.UID, cmd, nil, "k")
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Acquire(t.Context(), acme, sb.UID)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if err := l.Session().RemoveExec(t.Context(), res.ExecID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Exec(t.Context(), acme, sb.UID, cmd, nil, "k"); !errdefs.IsConflict(err) {
		t.Errorf("again: %v", err)
	}
	if res := d.sh(sb.UID, "cat /workspace/log"); string(res.Stdout) != "ran\n" {
		t.Errorf("it ran %q", res.Stdout)
	}
}

// What must not be done twice is not done again when the daemon ends in the middle
// of it, in order or not. What was not begun is.
func TestBegunOnce(t *testing.T) {
	for name, end := range map[string]func(*daemon){"drain": (*daemon).close, "kill": (*daemon).kill} {
		for _, begun := range []bool{true, false} {
			r := newRig(t)
			d := r.open()
			once := sandbox.Once{Key: "k", Request: "run"}
			under, done := make(chan struct{}), make(chan error, 1)
			first := ""
			go func() {
				_, err := d.Once(context.WithoutCancel(t.Context()), acme, once, func(ctx context.Context, try sandbox.Try) ([]byte, error) {
					first = try.Made
					if begun {
						if err := try.Begin(); err != nil {
							t.Error(err)
						}
					}
					close(under)
					<-ctx.Done()
					return nil, context.Cause(ctx)
				})
				done <- err
			}()
			<-under
			end(d)
			if err := <-done; err == nil {
				t.Errorf("%s: it was answered", name)
			}
			d = r.open()
			again := false
			do := func(_ context.Context, try sandbox.Try) ([]byte, error) {
				if again = true; try.Made != first || len(first) != sandbox.TryIDLen {
					t.Errorf("%s: what it makes was %q, and is %q", name, first, try.Made)
				}
				return []byte("x"), nil
			}
			if _, err := d.Once(t.Context(), acme, sandbox.Once{Key: "k", Request: "other"}, do); again || !errdefs.IsConflict(err) {
				t.Errorf("%s, begun %v: another request with the key: %v", name, begun, err)
			}
			_, err := d.Once(t.Context(), acme, once, do)
			if again == begun || begun && !errdefs.IsConflict(err) || !begun && err != nil {
				t.Errorf("%s, begun %v: again %v, %v", name, begun, again, err)
			}
		}
	}
}

// A failure frees the key, unless something may have come of it; an answer that is
// too long is not kept, and nothing is done again for it.
func TestOnceWithoutAnswer(t *testing.T) {
	d := newRig(t).open()
	for name, c := range map[string]struct {
		begin  bool
		answer []byte
		err    error
		runs   int
	}{
		"refused":           {false, nil, errdefs.ErrInvalidArgument, 2},
		"failed in between": {true, nil, errdefs.ErrUnavailable, 1},
		"long answer":       {false, make([]byte, sandbox.MaxAnswer+1), nil, 1},
	} {
		runs := 0
		ask := func() ([]byte, error) {
			return d.Once(t.Context(), acme, sandbox.Once{Key: name, Request: "x"}, func(_ context.Context, try sandbox.Try) ([]byte, error) {
				if runs++; c.begin {
					if err := try.Begin(); err != nil {
						t.Error(err)
					}
				}
				return c.answer, c.err
			})
		}
		if answer, err := ask(); len(answer) != len(c.answer) || !errors.Is(err, c.err) {
			t.Errorf("%s: %d bytes, %v", name, len(answer), err)
		}
		if _, err := ask(); runs != c.runs || runs == 1 && !errdefs.IsConflict(err) {
			t.Errorf("%s: done %d times, %v", name, runs, err)
		}
	}
}
