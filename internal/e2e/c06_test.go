package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB039: a program that can't be run is reported as a shell does.
func TestB039(t *testing.T) {
	t.Parallel()
	cases := []struct {
		cmd  sandbox.Command
		code int
		says string
	}{
		{sandbox.Command{Argv: []string{"nosuchcmd"}}, 127, "nosuchcmd"},
		{sandbox.Command{Argv: []string{"/etc"}}, 126, "/etc"},
		{sandbox.Command{Argv: []string{"/etc/passwd"}}, 126, "/etc/passwd"},
		{sandbox.Command{Argv: []string{"/no/such/dir/prog"}}, 127, "/no/such/dir/prog"},
		{sandbox.Command{Shell: "nosuchcmd"}, 127, "nosuchcmd"},
	}
	BothDoors(t, func(t *testing.T, box *Box) {
		for _, c := range cases {
			res := box.Exec(c.cmd, nil)
			if res.Outcome != sandbox.Exited || res.ExitCode != c.code || !strings.Contains(string(res.Stderr), c.says) {
				t.Errorf("%v%s: got %s, want %d and a word on %s", c.cmd.Argv, c.cmd.Shell, Describe(res), c.code, c.says)
			}
		}
	})
	for _, c := range cases {
		if c.cmd.Argv == nil {
			continue
		}
		v := RunJSON(t, nil, c.cmd.Argv...)
		if v.ExitCode != c.code || v.Outcome != "exited" || !strings.Contains(v.Stderr, c.says) {
			t.Errorf("run %v: %+v", c.cmd.Argv, v)
		}
	}
}

// TestB041: a program's own status 1 is not agentbox's failure.
func TestB041(t *testing.T) {
	t.Parallel()
	dir := SharedDir(t)
	if out := Run(t, dir, "", "run", Image, "--", "grep", "foo", "/dev/null"); out.Code != 1 || out.Stderr != "" {
		t.Errorf("grep: %+v, want 1 and nothing on stderr", out)
	}
	if out := Run(t, dir, "", "run", "localhost:1/nosuchimage", "--", "ls"); out.Code != 125 || !strings.Contains(out.Stderr, "nosuchimage") {
		t.Errorf("unknown image: %+v, want 125 and its name", out)
	}
}

// TestB043: 0, 3 and 255 are the same in every mode.
func TestB043(t *testing.T) {
	t.Parallel()
	box, far := Shared(t), SharedRemote(t)
	dir := SharedDir(t)
	for _, code := range []int{0, 3, 255} {
		line := "exit " + strconv.Itoa(code)
		cmd := sandbox.Command{Shell: line}
		got := map[string]int{
			"waiting":        box.Exec(cmd, nil).ShellCode(),
			"streaming":      box.Stream(cmd, nil).ShellCode(),
			"REST":           far.Exec(cmd, nil).ShellCode(),
			"REST streaming": far.Stream(cmd, nil).ShellCode(),
			"run":            Run(t, dir, "", "run", Image, "--", "sh", "-c", line).Code,
			"run -i":         Run(t, dir, "x", "run", "-i", Image, "--", "sh", "-c", line).Code,
			"run -t":         Run(t, dir, "", "run", "-t", Image, "--", "sh", "-c", line).Code,
			"run json":       RunJSON(t, nil, "sh", "-c", line).ExitCode,
		}
		cmd.TTY = true
		got["terminal"] = box.Exec(cmd, nil).ShellCode()
		got["REST terminal"] = far.Exec(cmd, nil).ShellCode()
		got["background"] = backgroundCode(t, box, line)
		for mode, c := range got {
			if c != code {
				t.Errorf("%s: %d, want %d", mode, c, code)
			}
		}
	}
}

// backgroundCode runs a line in the background and asks for its result later.
func backgroundCode(t *testing.T, box *Box, line string) int {
	t.Helper()
	ctx := t.Context()
	p, err := box.Start(ctx, sandbox.Command{Shell: "sleep 0.2; " + line, Background: true}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	p, err = box.Session().Attach(ctx, p.ID(), 0, 0, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res.ShellCode()
}

// TestB045_DataDirectory: nor does anything look like success when the engine
// can't be laid out where it belongs.
func TestB045_DataDirectory(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	engine := filepath.Join(dir, "engine")
	if err := errors.Join(os.Remove(engine), os.WriteFile(engine, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, dataDir := range map[string]string{"a file in the engine's place": dir, "the data directory is a file": engine} {
		out := Run(t, dataDir, "", "run", Image, "--", "echo", "ran")
		if out.Code != 125 || out.Stdout != "" || !strings.Contains(out.Stderr, engine) {
			t.Errorf("%s: %+v, want 125, no output, and the path", name, out)
		}
	}
	if out := Run(t, dir, "", "doctor"); out.Code != 1 || !strings.Contains(out.Stdout, "FAIL") {
		t.Errorf("doctor: %+v, want 1 and FAIL", out)
	}
}

// TestB046: a missing interpreter is the program's failure, a sandbox that was
// killed is not.
func TestB046(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, noInterpreter)
	t.Run("killed", func(t *testing.T) { killedUnderCommand(t, NewBox(t, sandbox.Limits{})) })
	t.Run("killed rest", killedRemote)
}

func noInterpreter(t *testing.T, box *Box) {
	writeFile(t, box.Files(), "/workspace/s.sh", "#!/no/such/interp\necho hi\n", client.WriteOptions{Mode: 0o755})
	for _, cmd := range []sandbox.Command{{Argv: []string{"/workspace/s.sh"}}, {Shell: "/workspace/s.sh"}} {
		res := box.Exec(cmd, nil)
		if res.Outcome != sandbox.Exited || (res.ExitCode != 126 && res.ExitCode != 127) || len(res.Stderr) == 0 {
			t.Errorf("%v%s: got %s, want 126 or 127 and a reason", cmd.Argv, cmd.Shell, Describe(res))
		}
		if cmd.Shell != "" && res.ExitCode != 127 {
			t.Errorf("shell: %d, want 127", res.ExitCode)
		}
	}
}

// killedRemote: a sandbox that was killed is an error through REST, at once and
// later, and no exit code.
func killedRemote(t *testing.T) {
	box := NewRemote(t, sandbox.Limits{})
	type answer struct {
		res *sandbox.Result
		err error
	}
	done := make(chan answer, 1)
	go func() {
		res, err := box.Try(sandbox.Command{Shell: "sleep 100.125"}, nil, output())
		done <- answer{res, err}
	}()
	Until(t, 10*time.Second, "the command runs", func() bool { return box.Count("100.125") > 0 })
	killSandbox(t, box.remote.id)
	began := time.Now()
	a := <-done
	Within(t, began, 5*time.Second)
	for range 2 {
		var p *Problem
		if !errors.As(a.err, &p) || p.Status < 404 || p.Code == "" || p.Code == "internal" {
			t.Errorf("got %+v, %v; want an error with a code", a.res, a.err)
		}
		a.res, a.err = box.Try(sandbox.Command{Shell: "echo ran"}, nil, output())
	}
}

// killSandbox kills what runs of a sandbox on the host.
func killSandbox(t testing.TB, id string) { signalSandbox(t, id, syscall.SIGKILL) }

// signalSandbox sends a signal to what runs of a sandbox on the host.
func signalSandbox(t testing.TB, id string, s syscall.Signal) {
	t.Helper()
	pids := SandboxPids(t, id)
	if len(pids) == 0 {
		t.Fatalf("nothing runs of sandbox %s", id)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
}

// killedUnderCommand: the sandbox's process on the host is killed under a command.
func killedUnderCommand(t *testing.T, box *Box) {
	p, err := box.Start(t.Context(), sandbox.Command{Shell: "sleep 100"}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	killSandbox(t, box.ID)
	began := time.Now()
	res, err := box.Wait(t.Context(), p)
	Within(t, began, 5*time.Second)
	if err == nil && (res.Outcome != sandbox.Lost || res.ShellCode() != 125 || res.Reason == "") {
		t.Errorf("got %s, want lost with a reason", Describe(res))
	}
	if res, err := box.Try(sandbox.Command{Shell: "echo ran"}, nil, client.Output{}); err == nil && res.Outcome != sandbox.Lost {
		t.Errorf("a command in a dead sandbox: %s", Describe(res))
	}
}

// TestB047: a signal right after a cold start is a signal, not a time-out.
func TestB047(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		res := box.Exec(sandbox.Command{Shell: "kill -9 $$", Timeout: 30 * time.Second}, nil)
		if res.Outcome != sandbox.Signaled || res.Signal != 9 || res.ShellCode() != 137 || res.Duration > time.Second+Slack() {
			t.Errorf("got %s, want signal 9 at once", Describe(res))
		}
	})

	v := RunJSON(t, []string{"--timeout", "30s"}, "sh", "-c", "kill -9 $$")
	if v.ExitCode != 137 || v.TimedOut || v.OOMKilled || v.Outcome != "signaled" || v.Signal != 9 {
		t.Errorf("run --json: %+v", v)
	}
}
