//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/sandbox"
)

// A command starts with no signal caught or blocked, whatever the runtime of its
// parent has of them, and with none ignored but those that its parent was born
// with.
func TestCleanStart(t *testing.T) {
	s := dial(t)
	r := run(t, s, sandbox.Command{Argv: []string{"cat", "/proc/self/status"}}, nil)
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, ignored, _ := strings.Cut(string(own), "\nSigIgn:\t")
	ignored, _, _ = strings.Cut(ignored, "\n")
	for _, want := range []string{"SigBlk:\t0000000000000000\n", "SigCgt:\t0000000000000000\n", "SigIgn:\t" + ignored + "\n"} {
		if !strings.Contains(string(r.Stdout), want) {
			t.Errorf("no %q in %s", want, r.Stdout)
		}
	}
}

func shellProgram(t *testing.T, script string) program {
	t.Helper()
	if _, err := native(); err != nil { // it reaps
		t.Skipf("this user may not confine children: %v", err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(null) })
	return program{
		file: "/bin/sh", argv: []string{"sh", "-c", script}, env: []string{"PATH=/usr/bin:/bin"}, dir: "/",
		files: [3]int{null, null, null}, id: identity{uid: uint32(os.Getuid()), gid: uint32(os.Getgid())}, cgroup: -1,
	}
}

// spawnShell runs a script without the agent around it.
func spawnShell(t *testing.T, script string, change func(*program)) (*child, error) {
	t.Helper()
	p := shellProgram(t, script)
	change(&p)
	return spawn(p)
}

// A start that fails tells which system call failed.
func TestSpawnFailures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*program)
		call   uintptr
		errno  syscall.Errno
	}{
		"no directory":     {func(p *program) { p.dir = "/no/such/directory" }, unix.SYS_CHDIR, unix.ENOENT},
		"no program":       {func(p *program) { p.file = "/no/such/program" }, unix.SYS_EXECVE, unix.ENOENT},
		"no file":          {func(p *program) { p.files[2] = 1 << 20 }, unix.SYS_DUP3, unix.EBADF},
		"no control group": {func(p *program) { p.cgroup = 1 << 20 }, unix.SYS_CLONE3, unix.EBADF},
		"no terminal":      {func(p *program) { p.terminal = true }, unix.SYS_IOCTL, unix.ENOTTY},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := native()
			if err != nil {
				t.Skipf("this user may not confine children: %v", err)
			}
			kid, ended, err := l.reaper.launch(func() (*child, error) { return spawnShell(t, "exit 0", c.change) })
			if err == nil {
				<-ended
				err = kid.failure()
			}
			var got *spawnError
			if !errors.As(err, &got) || got.call != c.call || got.errno != c.errno {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := spawnShell(t, "exit 0", func(p *program) { p.argv = []string{"a\x00b"} }); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a NUL in an argument: %v", err)
	}
}

// A child that others of its user stop before its program runs does not hold up
// the rest of this process, even on its only processor.
func TestStoppedStart(t *testing.T) {
	l, err := native()
	if err != nil {
		t.Skipf("this user may not confine children: %v", err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := shellProgram(t, "exit 7")
	s := p.steps()
	s.list = slices.Insert(s.list, len(s.list)-1, step{unix.SYS_KILL, [4]uintptr{0, uintptr(unix.SIGSTOP)}}) // its own group
	kid, ended, err := l.reaper.launch(func() (*child, error) { return s.run(p.cgroup) })
	if err != nil {
		t.Fatal(err)
	}
	stopped := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", kid.pid))
		return err == nil && strings.Contains(string(b), ") T ")
	}
	for end := time.Now().Add(10 * time.Second); !stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the child did not stop")
		}
	}
	select {
	case e := <-ended:
		t.Fatalf("ended with %v", e.status)
	default:
	}
	if err := unix.Kill(kid.pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.status.ExitStatus() != 7 {
		t.Errorf("ended with %v", e.status)
	}
}

// The end of an orphan is not taken for that of a command that has its pid later,
// however long launches go on without a pause.
func TestReusedPid(t *testing.T) {
	const pid = 77
	r := &reaper{kick: make(chan struct{}, 1), waiting: map[int]chan exit{}, early: map[int]exit{}}
	var ended <-chan exit
	_, _, err := r.launch(func() (*child, error) {
		r.ended(pid, exit{status: 1 << 8})
		var err error
		_, ended, err = r.launch(func() (*child, error) { return &child{pid: pid}, nil })
		r.ended(pid, exit{status: 7 << 8})
		return &child{pid: pid + 1}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.status.ExitStatus() != 7 {
		t.Errorf("ended with %d", e.status.ExitStatus())
	}
}

// The limit of open files holds from the first instruction on.
func TestOpenFilesLimit(t *testing.T) {
	out := t.TempDir() + "/limit"
	l, err := native()
	if err != nil {
		t.Skipf("this user may not confine children: %v", err)
	}
	_, ended, err := l.reaper.launch(func() (*child, error) {
		return spawnShell(t, "ulimit -n > "+out, func(p *program) { p.openFiles = 123 })
	})
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	if b, err := os.ReadFile(out); err != nil || string(b) != "123\n" {
		t.Errorf("got %q, %v", b, err)
	}
}

// The end of a command is seen soon, too, when something that it started has
// its output open, when others are started all the time, and when it closed its
// output long before.
func TestEndsAreSeen(t *testing.T) {
	s := dial(t)
	start := time.Now()
	run(t, s, sandbox.Command{Argv: []string{"true"}}, nil)
	limit := max(2*time.Second, 20*time.Since(start))
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				run(t, s, sandbox.Command{Argv: []string{"true"}}, nil)
			}
		}
	})
	for _, script := range []string{"sleep 60 & exit 5", "exec >&- 2>&-; sleep 0.2; exit 5", "setsid sleep 60 >/dev/null 2>&1 & exit 5"} {
		start := time.Now()
		r := run(t, s, sandbox.Command{Shell: script}, nil)
		if r.ExitCode != 5 {
			t.Errorf("%q ended with %+v", script, r)
		}
		if d := time.Since(start); d > limit {
			t.Errorf("the end of %q was seen after %v", script, d)
		}
	}
	close(stop)
	others.Wait()
	if z := zombies(t); len(z) > 0 {
		t.Errorf("zombies are left: %v", z)
	}
}

// zombies are the children of this process that ended and were not waited for,
// at a time when none just ended.
func zombies(t *testing.T) (left []string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left = nil
		dirs, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range dirs {
			b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
			if err != nil {
				continue
			}
			_, rest, _ := strings.Cut(string(b), ") ")
			if strings.HasPrefix(rest, fmt.Sprintf("Z %d ", os.Getpid())) {
				left = append(left, d.Name())
			}
		}
		if len(left) == 0 {
			return nil
		}
	}
	return left
}
