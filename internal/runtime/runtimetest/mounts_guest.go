package runtimetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// testMounts is about mounts in a real Linux guest and the processes behind them.
func testMounts(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(*env)
	}{
		{"Helpers", testMountHelpers},
		{"HostileGuest", testMountHostile},
		{"ReadOnly", testMountReadOnly},
		{"HostCrash", testMountHostCrash},
		{"Suspend", testMountSuspend},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, f)
			e.needGuest()
			c.run(e)
		})
	}
}

// testMountHelpers: a process that serves mounts is bounded as the sandbox is and
// has nothing of its maker's; without mounts there is none.
func testMountHelpers(e *env) {
	const secret = "a secret of the daemon"
	e.Setenv("RUNTIMETEST_SECRET", secret)
	plain := e.running()
	e.session(plain, 1)
	if got := e.helpers(plain); len(got) > 0 {
		e.Errorf("a sandbox without mounts has processes beside it: %v", got)
	}
	ours, err := os.Open(filepath.Dir(e.shared()))
	e.ok(err)
	defer ours.Close()
	dup, err := syscall.Dup(int(ours.Fd())) // as a careless library leaves one
	e.ok(err)
	defer func() { e.ok(syscall.Close(dup)) }()
	g := e.mounting(runtime.Mount{Source: e.shared(), Path: "/data"}, runtime.Mount{Source: e.shared(), Path: "/more"})
	g.write("/data/f", "text", client.WriteOptions{})
	helpers := e.helpers(g.id)
	if len(helpers) != 1 {
		e.Fatalf("two mounts have the processes %v beside the sandbox's", helpers)
	}
	main := e.info(g.id).Pid
	if got, want := procText(e, helpers[0], "cgroup"), procText(e, main, "cgroup"); got != want {
		e.Errorf("it is in the control groups\n%s, the sandbox in\n%s", got, want)
	}
	for _, pid := range append(helpers, main) {
		if got := procText(e, pid, "environ"); strings.Contains(got, secret) || strings.Contains(got, "PATH=") {
			e.Errorf("process %d has the environment %q", pid, got)
		}
		e.noFilesOfOurs(pid, ours.Name())
		if uid := procOwner(e, pid); uid != e.rt.Capabilities().HostUser {
			e.Errorf("process %d runs as %d", pid, uid)
		}
	}
	if same := procLink(e, helpers[0], "ns/net") == procLink(e, os.Getpid(), "ns/net"); same {
		e.Error("it is in the host's network namespace")
	}
}

func (e *env) noFilesOfOurs(pid int, marked string) {
	e.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	e.ok(err)
	mine := []string{}
	for fd := range 3 {
		if l, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && l != os.DevNull {
			mine = append(mine, l)
		}
	}
	for _, d := range all {
		l := procLink(e, pid, "fd/"+d.Name())
		if l == marked || slices.Contains(mine, l) {
			e.Errorf("process %d has our %s open as %s", pid, l, d.Name())
		}
	}
}

func procText(e *env, pid int, file string) string {
	e.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	e.ok(err)
	return strings.Trim(string(b), "\x00\n")
}

func procLink(e *env, pid int, file string) string {
	e.Helper()
	l, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, file))
	e.ok(err)
	return l
}

func procOwner(e *env, pid int) uint32 {
	e.Helper()
	for line := range strings.Lines(procText(e, pid, "status")) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Uid:" {
			var uid uint32
			_, err := fmt.Sscan(f[2], &uid)
			e.ok(err)
			return uid
		}
	}
	e.Fatal("the process has no user")
	return 0
}

// rootTry runs a shell command of the guest's root and returns what it printed and
// its exit code.
func (g *guest) rootTry(script string) (string, int) {
	g.Helper()
	r := g.do(sandbox.Command{Shell: script, User: "root", Dir: "/"})
	return string(r.Stdout) + string(r.Stderr), r.ShellCode()
}

// testMountHostile: what guest root makes in a directory of the host harms nobody
// there.
func testMountHostile(e *env) {
	dir := e.shared()
	canary := filepath.Join(filepath.Dir(dir), "canary")
	e.ok(os.WriteFile(canary, []byte("untouched"), 0o644))
	g := e.mounting(runtime.Mount{Source: dir, Path: "/data"})
	for _, script := range []string{
		"mknod /data/null c 1 3", "mknod /data/disk b 254 0", "mount -t tmpfs none /data", "cat /data/../canary", "cat /data/up/canary",
	} {
		g.rootTry("ln -sfn .. /data/up")
		if out, code := g.rootTry(script); code == 0 {
			e.Errorf("%s works: %s", script, out)
		}
	}
	if out, _ := g.rootTry("grep ' /data ' /proc/mounts"); !strings.Contains(out, "nosuid") {
		e.Errorf("the mount is %q, without nosuid", out)
	}
	served := false
	for line := range strings.Lines(procText(e, e.helpers(g.id)[0], "mountinfo")) {
		f := strings.Fields(line)
		served = served || f[4] == "/data" && strings.Contains(f[5], "nosuid") && strings.Contains(f[5], "nodev")
	}
	if !served {
		e.Error("on the host it is not mounted nosuid and nodev")
	}
	// Links lead where they lead in the sandbox.
	g.sh("ln -s /etc/hostname /data/name; ln -s ../../../../../../etc/passwd /data/out; ln -s " + canary + " /data/abs")
	if got, want := g.sh("cat /data/out"), g.sh("cat /etc/passwd"); got != want {
		e.Errorf("a link out of the mount gave %q", got)
	}
	if out, code := g.rootTry("echo broken > /data/abs"); code == 0 {
		e.Logf("the sandbox made a file of its own behind the link: %s", out)
	}
	e.onHost(canary, "untouched")
	// Sockets and FIFOs are the sandbox's alone.
	g.rootTry("mkfifo /data/fifo")
	// A set-user-id program is nobody of the host's.
	out, code := g.rootTry("cp /bin/sh /data/sh && chown root /data/sh && chmod 6755 /data/sh && chown 12345 /data/up /data/sh; chmod 0 /data; chmod 1777 /data; echo x > /data/f; chown 1000:1000 /data/f; ls -ln /data")
	if code != 0 {
		e.Errorf("ordinary work failed: %s", out)
	}
	e.checkTree(dir)
	if got := g.sh("id -u; /data/sh -p -c 'id -u'"); strings.HasSuffix(got, "\n0\n") {
		e.Errorf("a set-user-id program made an ordinary user root: %q", got)
	}
	g.sh("dd if=/dev/null of=/data/sparse bs=1 seek=10G 2>/dev/null; for i in $(seq 2000); do : > /data/n$i; done; rm /data/n*")
	if got := g.sh("stat -c %s /data/sparse"); got != "10737418240\n" {
		e.Errorf("the sparse file has %s bytes", got)
	}
	e.checkTree(dir)
}

// checkTree looks at what a guest left on the host: files, directories and links
// of the guests' users.
func (e *env) checkTree(dir string) {
	e.Helper()
	user := e.rt.Capabilities().HostUser
	e.ok(filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		switch st.Mode & syscall.S_IFMT {
		case syscall.S_IFREG, syscall.S_IFDIR, syscall.S_IFLNK:
		default:
			e.Errorf("%s has the mode %o on the host", path, st.Mode)
		}
		if st.Uid < user || st.Uid == 0 {
			e.Errorf("%s belongs to %d on the host", path, st.Uid)
		}
		return nil
	}))
}

// testMountReadOnly: nobody in the sandbox writes to a read-only mount.
func testMountReadOnly(e *env) {
	dir := e.shared()
	e.ok(os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o666))
	g := e.mounting(runtime.Mount{Source: dir, Path: "/data", ReadOnly: true})
	for _, script := range []string{
		"echo x > /data/f", "echo x > /data/new", "rm /data/f", "mv /data/f /data/g", "chmod 600 /data/f", "chown 1 /data/f", "touch /data/f",
		"ln /data/f /data/l", "mkdir /data/d", "truncate -s 0 /data/f", "mount -o remount,rw /data", "exec 3<>/data/f",
	} {
		if out, code := g.rootTry(script); code == 0 {
			e.Errorf("%s works: %s", script, out)
		}
	}
	if got := g.sh("cat /data/f"); got != "text" {
		e.Errorf("it reads %q", got)
	}
	e.onHost(filepath.Join(dir, "f"), "text")
}

// testMountHostCrash: the host process is killed; the next one finds the sandbox
// with its mounts, and takes all of it away.
func testMountHostCrash(e *env) {
	dir := e.shared()
	id := e.newID()
	h := e.hand()
	h.do(request{Op: "create", ID: id, Mount: dir})
	h.do(request{Op: "start", ID: id})
	h.do(request{Op: "exec", ID: id, Exec: "writes", Script: "while :; do echo line >> /data/log; sleep 0.05; done"})
	e.eventually("the command writes", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "log"))
		return err == nil && len(b) > 10
	})
	h.kill()
	e.states(map[string]sandbox.State{id: sandbox.Live})
	g := &guest{env: e, id: id, epoch: 1}
	g.connect()
	before := len(g.sh("cat /data/log"))
	e.eventually("the command goes on", func() bool { return len(g.sh("cat /data/log")) > before })
	if got := e.helpers(id); len(got) != 1 {
		e.Errorf("it has the processes %v beside it", got)
	}
	g.restart()
	g.sh("echo more >> /data/log")

	// Half made and half gone.
	for _, op := range []string{"create", "start", "destroy"} {
		id := e.newID()
		h := e.hand()
		steps := []request{{Op: "create", ID: id, Mount: dir}, {Op: "start", ID: id}, {Op: "destroy", ID: id}}
		i := slices.IndexFunc(steps, func(q request) bool { return q.Op == op })
		for _, q := range steps[:i] {
			h.do(q)
		}
		h.begin(steps[i])
		h.kill()
		e.ok(e.rt.Destroy(e.ctx, id))
	}
}

func testMountSuspend(e *env) {
	sus, ok := runtime.As[runtime.Suspender](e.rt)
	if !ok || !e.rt.Capabilities().Suspend {
		e.Skipf("%s has no suspend", e.rt.Capabilities().Name)
	}
	m := runtime.Mount{Source: e.shared(), Path: "/data"}
	g := e.mounting(m)
	g.sh("echo kept > /data/f; echo own > /tmp/own")
	image := filepath.Join(e.imagesDir(), "image")
	g.suspendTo(sus, image)
	spec := e.spec(e.newID())
	spec.Mounts = []runtime.Mount{m}
	e.ok(sus.Resume(e.ctx, spec, image))
	g.id = spec.ID
	g.connect()
	if got := g.sh("cat /data/f /tmp/own; echo more >> /data/f"); got != "kept\nown\n" {
		e.Errorf("got %q", got)
	}
	e.onHost(filepath.Join(m.Source, "f"), "kept\nmore\n")
}
