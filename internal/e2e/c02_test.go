package e2e

import (
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// TestB008: a child in the background does not keep the call open, and lives
// on.
func TestB008(t *testing.T) {
	t.Parallel()
	BothDoorsAnew(t, sandbox.Limits{}, func(t *testing.T, box *Box) {
		began := time.Now()
		WantExit(t, box.Exec(sandbox.Command{Shell: "sleep 20.25 & echo STARTED", Timeout: time.Minute}, nil), 0, "STARTED\n", "")
		Within(t, began, 3*time.Second)
		if n := box.Count("20.25"); n != 1 {
			t.Errorf("%d background processes, want 1", n)
		}
		// The next calls are not held up, either.
		box.Want("next\n", "echo next")
	})
}

// parallel calls f n times, w at once.
func parallel(n, w int, f func()) {
	var wg sync.WaitGroup
	for i := range w {
		wg.Go(func() {
			for range (n - i + w - 1) / w {
				f()
			}
		})
	}
	wg.Wait()
}

// TestB010: the end of the output is never cut.
func TestB010(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		for _, c := range []struct{ line, char string }{
			{`python3 -c "import sys;sys.stdout.write('x'*300000)"`, "x"},
			{`head -c 300000 /dev/zero | tr '\0' y`, "y"},
		} {
			want := strings.Repeat(c.char, 300000)
			parallel(box.Times(100), 4, func() {
				res, err := box.Try(sandbox.Command{Shell: c.line}, nil, output())
				if err != nil {
					t.Error(err)
				} else if string(res.Stdout) != want || res.ShellCode() != 0 {
					t.Errorf("%d bytes of %s, want 300000: %s", len(res.Stdout), c.char, Describe(res))
				}
			})
		}
	})
}

// TestB011: a heredoc is just a command.
func TestB011(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		began := time.Now()
		box.Want("", "cat << 'EOF' > /tmp/h.txt\nhello world\nEOF")
		box.Want("hello world\n", "cat /tmp/h.txt; rm /tmp/h.txt")
		Within(t, began, 4*time.Second)
	})
	v := RunJSON(t, nil, "sh", "-c", "cat << 'EOF' > /tmp/h.txt\nhello world\nEOF\ncat /tmp/h.txt")
	if v.ExitCode != 0 || v.Stdout != "hello world\n" {
		t.Errorf("run: %+v", v)
	}
}

// TestB014: an interactive bash does not stop itself.
func TestB014(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		for _, tty := range []bool{false, true} {
			began := time.Now()
			res := box.Exec(sandbox.Command{Shell: "bash -ic 'echo hi'", Timeout: 10 * time.Second, TTY: tty}, nil)
			Within(t, began, 3*time.Second)
			if res.ShellCode() != 0 || !strings.Contains(string(res.Stdout), "hi") {
				t.Errorf("tty %v: got %s", tty, Describe(res))
			}
		}
	})
}

// TestB015: the shell's own verdict on a line is the result.
func TestB015(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		for _, line := range []string{"if then", "echo 'unterminated"} {
			res := box.Sh(line)
			if res.Outcome != sandbox.Exited || res.ExitCode != 2 || len(res.Stderr) == 0 {
				t.Errorf("%q: got %s, want status 2 and the shell's words", line, Describe(res))
			}
		}
		box.Want("a'b\n", `awk 'BEGIN{print "a'"'"'b"}'`)
	})
}
