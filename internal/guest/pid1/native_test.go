//go:build linux

package pid1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// These tests run the launcher and the files on the machine itself, as whoever
// runs them: what they touch lies in temporary directories.

// native is the only launcher of the test process: it reaps all children.
var native = sync.OnceValues(func() (*launcher, error) { return newLauncher(newUsers(), nil) })

func dial(t *testing.T) *client.Session {
	t.Helper()
	l, err := native()
	if err != nil {
		t.Skipf("this user may not confine children: %v", err)
	}
	u := l.users
	a := agent.New(agent.Options{Launcher: l, Files: &files{u, l.config}})
	t.Cleanup(a.Close)
	host, end := net.Pipe()
	go func() { _ = a.Serve(end, false) }()
	conf := &guestv1.GuestConfig{User: fmt.Sprint(os.Getuid()), Workdir: t.TempDir()}
	s, err := client.New(t.Context(), host, client.Options{Epoch: 1, Config: conf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func soon(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func run(t *testing.T, s *client.Session, c sandbox.Command, stdin io.Reader) *sandbox.Result {
	t.Helper()
	r, err := s.Run(soon(t), c, stdin)
	if err != nil {
		t.Fatalf("run %q %q: %v", c.Argv, c.Shell, err)
	}
	return r
}

func TestPrograms(t *testing.T) {
	s := dial(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		cmd    sandbox.Command
		code   int
		stdout string
		stderr string // a part of it
	}{
		{"argv", sandbox.Command{Argv: []string{"printf", "%s", "a b"}}, 0, "a b", ""},
		{"shell", sandbox.Command{Shell: "echo $((6*7)); exit 3"}, 3, "42\n", ""},
		{"env", sandbox.Command{Shell: "echo $A-$LANG", Env: []string{"A=1", "A=2"}}, 0, "2-C.UTF-8\n", ""},
		{"dir", sandbox.Command{Shell: "pwd", Dir: "/"}, 0, "/\n", ""},
		{"no input", sandbox.Command{Shell: "cat; echo done"}, 0, "done\n", ""},
		{"bytes", sandbox.Command{Shell: `printf '\377\000\200'`}, 0, "\xff\x00\x80", ""},
		{"not found", sandbox.Command{Argv: []string{"no-such-program"}}, 127, "", "no-such-program: command not found"},
		{"no such file", sandbox.Command{Argv: []string{"/no/such/program"}}, 127, "", "No such file"},
		{"directory", sandbox.Command{Argv: []string{"/etc"}}, 126, "", "Is a directory"},
		{"not executable", sandbox.Command{Argv: []string{text}}, 126, "", "Permission denied"},
		{"interpreter", sandbox.Command{Argv: []string{script}}, 127, "", "interpreter"},
		{"no directory", sandbox.Command{Argv: []string{"true"}, Dir: "/no/such/dir"}, 126, "", "working directory /no/such/dir"},
		{"too long", sandbox.Command{Argv: []string{"true", strings.Repeat("x", 200_000)}}, 126, "", "one of the arguments has 200000 bytes, at most are 131071"},
		{"too long line", sandbox.Command{Shell: ": " + strings.Repeat("x", 131_072)}, 126, "", "one of the arguments has 131074 bytes"},
		{"too long variable", sandbox.Command{Argv: []string{"true"}, Env: []string{"A=" + strings.Repeat("x", 131_072)}}, 126, "", "one of the variables has 131074 bytes"},
		{"too many", sandbox.Command{Argv: slices.Repeat([]string{"true", strings.Repeat("x", 100_000)}, 25)}, 126, "", "the arguments have 2500150 bytes, at most are 2097152"},
		{"longest", sandbox.Command{Argv: []string{"expr", "length", strings.Repeat("x", 131_071)}}, 0, "131071\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, s, c.cmd, nil)
			if r.Outcome != sandbox.Exited || r.ExitCode != c.code || string(r.Stdout) != c.stdout || !strings.Contains(string(r.Stderr), c.stderr) {
				t.Errorf("got %v %d %q %q", r.Outcome, r.ExitCode, r.Stdout, r.Stderr)
			}
		})
	}
	if _, err := s.Run(soon(t), sandbox.Command{Argv: []string{"true"}, User: "no-such-user"}, nil); !errdefs.IsNotFound(err) {
		t.Errorf("an unknown user gives %v", err)
	}
}

func TestSignalDeath(t *testing.T) {
	r := run(t, dial(t), sandbox.Command{Shell: "kill -TERM $$"}, nil)
	if r.Outcome != sandbox.Signaled || r.Signal != int(syscall.SIGTERM) || r.ShellCode() != 143 {
		t.Errorf("got %+v", r)
	}
}

func TestInput(t *testing.T) {
	in := bytes.Repeat([]byte{0}, 1<<20)
	r := run(t, dial(t), sandbox.Command{Argv: []string{"sha256sum"}}, bytes.NewReader(in))
	if !strings.HasPrefix(string(r.Stdout), "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58") {
		t.Errorf("got %q", r.Stdout)
	}
	// A command that does not want its input ends all the same.
	if r := run(t, dial(t), sandbox.Command{Argv: []string{"true"}}, bytes.NewReader(in)); r.ExitCode != 0 {
		t.Errorf("got %+v", r)
	}
}

// B008, B010: a child that keeps the output open does not hold up the result,
// and no byte that was written before the end is lost.
func TestB010OutputToTheEnd(t *testing.T) {
	s := dial(t)
	for range 20 {
		r := run(t, s, sandbox.Command{Shell: "sleep 30 & head -c 300000 /dev/zero"}, nil)
		if r.Outcome != sandbox.Exited || len(r.Stdout) != 300_000 || r.Duration > 20*time.Second {
			t.Fatalf("got %v, %d bytes in %v", r.Outcome, len(r.Stdout), r.Duration)
		}
	}
}

func TestTimeLimitKillsTree(t *testing.T) {
	s := dial(t)
	r := run(t, s, sandbox.Command{Shell: "setsid sleep 1234.5 & echo begun; sleep 1234.5", Timeout: 300 * time.Millisecond}, nil)
	if r.Outcome != sandbox.TimedOut || string(r.Stdout) != "begun\n" {
		t.Errorf("got %+v", r)
	}
}

func TestTerminal(t *testing.T) {
	s := dial(t)
	var out bytes.Buffer
	p, err := s.Start(soon(t), "tty", sandbox.Command{Shell: "tty; stty size; read x; stty size; cat", TTY: true, Cols: 90, Rows: 20}, client.Output{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Resize(120, 33); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(p.Stdin(), "x\nlast\n")
	if err := p.Stdin().Close(); err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait(soon(t))
	if err != nil || r.ExitCode != 0 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, want := range []string{"/dev/pts/", "33 120\r\n", "last\r\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}

// TestSizeTakenBack: a program that sets the size that it has read before the new one came,
// as readline does, does not undo it; one that sets another has it.
func TestSizeTakenBack(t *testing.T) {
	s := dial(t)
	tries := 0
	after := func(set string) string {
		tries++
		var out bytes.Buffer
		p, err := s.Start(soon(t), fmt.Sprintf("tty-%d", tries), sandbox.Command{Shell: "read x; stty " + set + "; sleep 0.5; stty size", TTY: true, Cols: 90, Rows: 20}, client.Output{Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Resize(120, 33); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(p.Stdin(), "x\n")
		if r, err := p.Wait(soon(t)); err != nil || r.ExitCode != 0 {
			t.Fatalf("got %+v, %v", r, err)
		}
		lines := strings.Fields(out.String())
		return strings.Join(lines[len(lines)-2:], " ")
	}
	if got := after("cols 91 rows 21"); got != "21 91" {
		t.Errorf("the size that the program set has become %s", got)
	}
	for after("cols 90 rows 20") != "33 120" {
		if tries > 20 { // on a busy machine stty comes too late now and then
			t.Fatal("the size before stays")
		}
	}
}
