package runtimetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// shared makes a directory of the host that sandboxes can be given, and that is
// not in the back end's own.
func (e *env) shared() string {
	e.Helper()
	above, err := os.MkdirTemp("", "rtm")
	e.ok(err)
	e.Cleanup(func() { _ = os.RemoveAll(above) })
	e.ok(os.Chmod(above, 0o711))
	dir := filepath.Join(above, "data")
	e.ok(os.Mkdir(dir, 0o700))
	e.ok(os.Chmod(dir, 0o777))
	if os.Geteuid() == 0 {
		u := int(e.rt.Capabilities().HostUser)
		e.ok(os.Chown(dir, u, u))
	}
	return dir
}

// mounting makes a running sandbox that sees directories of the host.
func (e *env) mounting(mounts ...runtime.Mount) *guest {
	e.Helper()
	spec := e.spec(e.newID())
	spec.Mounts = mounts
	e.ok(e.rt.Create(e.ctx, spec))
	e.ok(e.rt.Start(e.ctx, spec.ID))
	g := &guest{env: e, id: spec.ID}
	g.connect()
	return g
}

// onHost checks a file on the host. The fake's directories are not there.
func (e *env) onHost(path, want string) {
	e.Helper()
	if !e.rt.Capabilities().Guest {
		return
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		e.Errorf("the host reads %q, %v; want %q", b, err, want)
	}
}

func testMountRefused(e *env) {
	dir := e.shared()
	file := filepath.Join(filepath.Dir(dir), "file")
	e.ok(os.WriteFile(file, nil, 0o600))
	link := filepath.Join(filepath.Dir(dir), "link")
	e.ok(os.Symlink(dir, link))
	at := func(source string, paths ...string) (all []runtime.Mount) {
		for _, p := range paths {
			all = append(all, runtime.Mount{Source: source, Path: p})
		}
		return all
	}
	for _, c := range []struct {
		what   string
		mounts []runtime.Mount
		is     func(error) bool
	}{
		{"a relative source", at("data", "/data"), errdefs.IsInvalidArgument},
		{"an unclean source", at(dir+"/.", "/data"), errdefs.IsInvalidArgument},
		{"no source", at("", "/data"), errdefs.IsInvalidArgument},
		{"a source that is not there", at(dir+"/none", "/data"), errdefs.IsNotFound},
		{"a file", at(file, "/data"), errdefs.IsInvalidArgument},
		{"a link", at(link, "/data"), errdefs.IsInvalidArgument},
		{"the root", at(dir, "/"), errdefs.IsInvalidArgument},
		{"a relative path", at(dir, "data"), errdefs.IsInvalidArgument},
		{"the agent's directory", at(dir, "/.agentbox"), errdefs.IsInvalidArgument},
		{"in /proc", at(dir, "/proc/x"), errdefs.IsInvalidArgument},
		{"one path twice", at(dir, "/data", "/data"), errdefs.IsInvalidArgument},
		{"one in another", at(dir, "/data", "/data/in"), errdefs.IsInvalidArgument},
	} {
		spec := e.spec(e.newID())
		spec.Mounts = c.mounts
		e.want("mount "+c.what, e.rt.Create(e.ctx, spec), c.is)
	}
	if os.Geteuid() == 0 && e.rt.Capabilities().HostUser != 0 {
		e.ok(os.Chmod(filepath.Dir(dir), 0o700))
		spec := e.spec(e.newID())
		spec.Mounts = at(dir, "/data")
		e.want("mount what the sandbox's user can't reach", e.rt.Create(e.ctx, spec), errdefs.IsFailedPrecondition)
	}
	e.states(map[string]sandbox.State{})
}

// testMountShared: what one sandbox writes, another one and the host see.
func testMountShared(e *env) {
	dir, other := e.shared(), e.shared()
	a := e.mounting(runtime.Mount{Source: dir, Path: "/data"}, runtime.Mount{Source: other, Path: "/mnt/deep/er"})
	b := e.mounting(runtime.Mount{Source: dir, Path: "/srv/seen", ReadOnly: true})
	a.write("/data/sub/f", "text", client.WriteOptions{Parents: true})
	a.write("/mnt/deep/er/g", "more", client.WriteOptions{})
	if got := b.read("/srv/seen/sub/f", client.ReadOptions{}); got != "text" {
		e.Errorf("the other sandbox reads %q", got)
	}
	e.onHost(filepath.Join(dir, "sub", "f"), "text")
	e.onHost(filepath.Join(other, "g"), "more")
	for what, err := range map[string]error{
		"write": b.s.WriteFile(e.ctx, "/srv/seen/x", strings.NewReader("x"), client.WriteOptions{}),
		"over":  b.s.WriteFile(e.ctx, "/srv/seen/sub/f", strings.NewReader("x"), client.WriteOptions{}),
		"mkdir": b.s.Mkdir(e.ctx, "/srv/seen/d", client.MkdirOptions{}),
		"rm":    b.s.Remove(e.ctx, "/srv/seen/sub/f", client.RemoveOptions{}),
		"mv":    b.s.Move(e.ctx, "/srv/seen/sub/f", "/srv/seen/sub/g", client.MoveOptions{}),
	} {
		if err == nil {
			e.Errorf("%s works in a read-only mount", what)
		}
	}
	a.write("/data/sub/f", "changed", client.WriteOptions{})
	if got := b.read("/srv/seen/sub/f", client.ReadOptions{}); got != "changed" {
		e.Errorf("the other sandbox reads %q after the change", got)
	}
	// The first is gone, its files are not.
	e.ok(e.rt.Destroy(e.ctx, a.id))
	if got := b.read("/srv/seen/sub/f", client.ReadOptions{}); got != "changed" {
		e.Errorf("the other sandbox reads %q after the end of the first", got)
	}
	if c := e.mounting(runtime.Mount{Source: dir, Path: "/again"}); c.read("/again/sub/f", client.ReadOptions{}) != "changed" {
		e.Error("a third sandbox reads something else")
	}
}

// testMountLasts: stops, crashes and new processes of the daemon change nothing
// about mounts, and nothing of them is saved.
func testMountLasts(e *env) {
	e.needStop()
	dir := e.shared()
	g := e.mounting(runtime.Mount{Source: dir, Path: "/data"})
	g.write("/data/f", "first", client.WriteOptions{})
	g.write("/tmp/own", "own", client.WriteOptions{})
	g.restart()
	g.write("/data/f", g.read("/data/f", client.ReadOptions{})+" second", client.WriteOptions{})
	e.reopen()
	g.connect()
	g.write("/data/f", g.read("/data/f", client.ReadOptions{})+" third", client.WriteOptions{})
	e.crash(g.id)
	e.eventually("the list tells of the death", func() bool { return e.info(g.id).State == sandbox.Failed })
	e.ok(e.rt.Start(e.ctx, g.id))
	g.epoch = 0
	g.connect()
	if got, own := g.read("/data/f", client.ReadOptions{}), g.read("/tmp/own", client.ReadOptions{}); got != "first second third" || own != "own" {
		e.Errorf("there are %q and %q", got, own)
	}
	e.ok(e.rt.Stop(e.ctx, g.id))
	e.reopen()
	e.ok(os.Rename(dir, dir+".away"))
	e.want("start without the directory", e.rt.Start(e.ctx, g.id), errdefs.IsNotFound)
	e.states(map[string]sandbox.State{g.id: sandbox.Stopped})
	e.ok(os.Rename(dir+".away", dir))
	e.ok(e.rt.Start(e.ctx, g.id))
	g.epoch = 0
	g.connect()
	if got := g.read("/data/f", client.ReadOptions{}); got != "first second third" {
		e.Errorf("the file holds %q", got)
	}
}

// testMountDestroy ends sandboxes with mounts in every state; the end of the test
// looks for what is left.
func testMountDestroy(e *env) {
	dir := e.shared()
	m := runtime.Mount{Source: dir, Path: "/data"}
	for name, how := range map[string]func(id string){
		"created": func(string) {},
		"running": func(id string) { e.ok(e.rt.Start(e.ctx, id)) },
		"dead": func(id string) {
			e.ok(e.rt.Start(e.ctx, id))
			e.crash(id)
		},
		"without its gofer": func(id string) {
			e.ok(e.rt.Start(e.ctx, id))
			for _, pid := range e.helpers(id) {
				e.ok(kill(pid))
			}
		},
		"reopened": func(id string) {
			e.ok(e.rt.Start(e.ctx, id))
			e.reopen()
		},
	} {
		spec := e.spec(e.newID())
		spec.Mounts = []runtime.Mount{m}
		e.ok(e.rt.Create(e.ctx, spec))
		how(spec.ID)
		for range 2 {
			if err := e.rt.Destroy(e.ctx, spec.ID); err != nil {
				e.Errorf("destroy a sandbox that is %s: %v", name, err)
			}
		}
	}
	e.states(map[string]sandbox.State{})
}

// helpers are the processes on the host, beside the isolated one, that the back
// end keeps for a sandbox.
func (e *env) helpers(id string) (pids []int) {
	e.Helper()
	main := e.info(id).Pid
	all, err := os.ReadDir("/proc")
	e.ok(err)
	for _, p := range all {
		var pid int
		if _, err := fmt.Sscanf(p.Name(), "%d", &pid); err != nil || pid == main || pid == os.Getpid() {
			continue
		}
		cmd, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err == nil && strings.Contains(string(cmd), e.dir) && strings.Contains(string(cmd), id[:2*ids.ShortLen]) {
			pids = append(pids, pid)
		}
	}
	return pids
}
