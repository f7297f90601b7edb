package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// one is the daemon that the tests of this process share, and its sandbox that
// they share. [closeDaemon] ends it.
var one struct {
	mu     sync.Mutex
	daemon *Daemon
	box    *restBox
}

// SharedDaemon is a daemon that the tests of this process share: they end none
// but their own sandboxes, and neither stop nor measure it.
func SharedDaemon(t testing.TB) *Daemon {
	t.Helper()
	one.mu.Lock()
	defer one.mu.Unlock()
	return sharedDaemon(t)
}

func sharedDaemon(t testing.TB) *Daemon {
	t.Helper()
	if one.daemon == nil {
		d := &Daemon{t: t, Dir: makeDataDir(t), args: []string{"--ephemeral"}, logs: &lockedBuffer{}}
		d.Start()
		one.daemon = d
	}
	return one.daemon.With(t)
}

// closeDaemon ends the shared daemon and its sandboxes, if there is one.
func closeDaemon() error {
	one.mu.Lock()
	defer one.mu.Unlock()
	d := one.daemon
	if d == nil {
		return nil
	}
	one.daemon, one.box = nil, nil
	err := errors.Join(d.cmd.Process.Signal(os.Interrupt), d.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, d.logs.String())
	}
	// What is left would go unseen for ever: nobody opens this directory again.
	if left, _ := exec.Command("pgrep", "-f", d.Dir+"/").Output(); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("processes are left: %s", left))
	}
	return errors.Join(err, os.RemoveAll(d.Dir))
}

// NewRemote makes a sandbox of the shared daemon for one test, with default
// limits where they are zero.
func NewRemote(t testing.TB, limits sandbox.Limits) *Box {
	t.Helper()
	d := SharedDaemon(t)
	id := d.Make(limitsOf(limits))
	t.Cleanup(func() {
		if err := d.ask(context.Background(), "DELETE", "/sandboxes/"+id, "", nil); err != nil && !errdefs.IsNotFound(err) {
			t.Errorf("destroy the sandbox: %v", err)
		}
	})
	return &Box{t: t, remote: &restBox{d: d, id: id}}
}

func limitsOf(l sandbox.Limits) map[string]any {
	m := map[string]any{}
	for name, n := range map[string]int64{"memory": l.Memory, "disk": l.Disk, "shm": l.Shm, "pids": l.Pids} {
		if n != 0 {
			m[name] = n
		}
	}
	if l.CPUs != 0 {
		m["cpus"] = l.CPUs
	}
	return m
}

// SharedRemote is a sandbox of the shared daemon that tests share: they leave it
// as they found it.
func SharedRemote(t testing.TB) *Box {
	t.Helper()
	one.mu.Lock()
	defer one.mu.Unlock()
	d := sharedDaemon(t)
	if one.box == nil {
		one.box = &restBox{d: d, id: d.Make(map[string]any{"idle_timeout": 0})}
	}
	return &Box{t: t, remote: &restBox{d: d, id: one.box.id}}
}

// InSession is the same remote sandbox, whose command lines run in a new shell
// session.
func (b *Box) InSession(name string) *Box {
	b.t.Helper()
	r := *b.remote
	r.session = name
	if code := r.d.Do(r.d.Key, "POST", r.at("/sessions"), encode(b.t, map[string]string{"name": name}), nil); code != 201 {
		b.t.Fatalf("begin session %s: %d", name, code)
	}
	return &Box{t: b.t, remote: &r}
}

// BothDoors runs f with the shared sandbox of each door: the Go API and REST.
func BothDoors(t *testing.T, f func(t *testing.T, box *Box)) {
	t.Helper()
	t.Run("engine", func(t *testing.T) { f(t, Shared(t)) })
	t.Run("rest", func(t *testing.T) { f(t, SharedRemote(t)) })
}

// BothDoorsAnew runs f with a sandbox of its own from each door.
func BothDoorsAnew(t *testing.T, limits sandbox.Limits, f func(t *testing.T, box *Box)) {
	t.Helper()
	t.Run("engine", func(t *testing.T) { f(t, NewBox(t, limits)) })
	t.Run("rest", func(t *testing.T) { f(t, NewRemote(t, limits)) })
}

// Times is how often a test that was counted for the Go API repeats through REST:
// a tenth, or all of it in a soak run.
func (b *Box) Times(n int) int {
	if b.remote == nil {
		return n
	}
	return Sized(n/10, n)
}

// soon is the limit for what takes no time of its own.
const soon = 20 * time.Second

// Until waits for what must come, at most limit and what a busy machine needs.
func Until(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(limit + Slack())
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
