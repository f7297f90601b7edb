package e2e

import (
	"strings"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// The rows about commands that never return, in shell sessions. Each has a
// session of its own; waiting and following are tried in turn.

// inSession runs f with a line runner for each way of a session.
func inSession(t *testing.T, f func(t *testing.T, run func(line string) *sandbox.Result)) {
	t.Helper()
	box := NewRemote(t, sandbox.Limits{})
	for name, way := range map[string]func(*Box, string) *sandbox.Result{
		"waiting":   func(b *Box, line string) *sandbox.Result { return b.Sh(line) },
		"streaming": func(b *Box, line string) *sandbox.Result { return b.Stream(sandbox.Command{Shell: line}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := box.With(t).InSession(name)
			f(t, func(line string) *sandbox.Result { return way(s, line) })
		})
	}
}

// TestB008_Session: a child in the background does not keep a session's command.
func TestB008_Session(t *testing.T) {
	t.Parallel()
	inSession(t, func(t *testing.T, run func(string) *sandbox.Result) {
		began := time.Now()
		WantExit(t, run("sleep 20.25 & echo STARTED"), 0, "STARTED\n", "")
		WantExit(t, run("kill -0 $! && echo alive"), 0, "alive\n", "")
		Within(t, began, 3*time.Second)
	})
}

// TestB010_Session: the end of a session's output is never cut.
func TestB010_Session(t *testing.T) {
	t.Parallel()
	inSession(t, func(t *testing.T, run func(string) *sandbox.Result) {
		for range Sized(10, 100) {
			res := run(`head -c 300000 /dev/zero | tr '\0' y`)
			if string(res.Stdout) != strings.Repeat("y", 300000) || res.ShellCode() != 0 {
				t.Fatalf("got %s", Describe(res))
			}
		}
	})
}

// TestB011_Session: a heredoc is just a command, and so is what reads input or
// starts a program that stays.
func TestB011_Session(t *testing.T) {
	t.Parallel()
	inSession(t, func(t *testing.T, run func(string) *sandbox.Result) {
		began := time.Now()
		WantExit(t, run("cat << 'EOF' > /tmp/h.txt\nhello world\nEOF"), 0, "", "")
		WantExit(t, run("cat /tmp/h.txt"), 0, "hello world\n", "")
		WantExit(t, run("cat; echo done"), 0, "done\n", "") // it must not eat the next line
		WantExit(t, run("(setsid sleep 30.5 >/dev/null 2>&1 &); echo up"), 0, "up\n", "")
		Within(t, began, 6*time.Second)
	})
}

// TestB014_Session: an interactive bash ends in a session, too.
func TestB014_Session(t *testing.T) {
	t.Parallel()
	inSession(t, func(t *testing.T, run func(string) *sandbox.Result) {
		began := time.Now()
		res := run("bash -ic 'echo hi'")
		Within(t, began, 3*time.Second)
		if res.ShellCode() != 0 || !strings.Contains(string(res.Stdout), "hi") {
			t.Errorf("got %s", Describe(res))
		}
	})
}

// TestB015_Session: the shell's own words on a line are the result, and the
// session outlives the line.
func TestB015_Session(t *testing.T) {
	t.Parallel()
	inSession(t, func(t *testing.T, run func(string) *sandbox.Result) {
		WantExit(t, run("X=kept"), 0, "", "")
		for _, line := range []string{"if then", "echo 'unterminated"} {
			res := run(line)
			if res.Outcome != sandbox.Exited || res.ExitCode != 2 || len(res.Stderr) == 0 {
				t.Errorf("%q: got %s, want status 2 and the shell's words", line, Describe(res))
			}
		}
		WantExit(t, run("echo $X; awk 'BEGIN{print \"a'\"'\"'b\"}'"), 0, "kept\na'b\n", "")
	})
}

// TestB016: directory, variables and functions last in a session, and nowhere
// else.
func TestB016(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	s := box.InSession("dev")
	WantExit(t, s.Sh("cd /tmp && export A=1; f() { echo f$A; }"), 0, "", "")
	WantExit(t, s.Sh("pwd; echo $A; f"), 0, "/tmp\n1\nf1\n", "")
	WantExit(t, box.Sh("pwd; echo [$A]"), 0, "/workspace\n[]\n", "")
	other := box.InSession("other")
	WantExit(t, other.Sh("pwd; echo [$A]"), 0, "/workspace\n[]\n", "")
	WantExit(t, s.Sh("sh -c 'exit 7'"), 7, "", "")
	WantExit(t, s.Sh("pwd"), 0, "/tmp\n", "")
}
