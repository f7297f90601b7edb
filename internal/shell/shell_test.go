package shell

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostShell is a shell of this machine that is told what sessions are told.
type hostShell struct {
	t        *testing.T
	cmd      *exec.Cmd
	in       io.Writer
	out, err *switcher
}

// switcher is where a stream goes at the moment.
type switcher struct{ to chan io.Writer }

func (s *switcher) Write(p []byte) (int, error) {
	w := <-s.to
	n, err := w.Write(p)
	s.to <- w
	return n, err
}

func startShell(t *testing.T, argv []string) *hostShell {
	t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		t.Skipf("this machine has no %s", argv[0])
	}
	h := &hostShell{t: t, cmd: exec.Command(path, argv[1:]...), out: &switcher{make(chan io.Writer, 1)}, err: &switcher{make(chan io.Writer, 1)}}
	h.cmd.Dir, h.cmd.Stdout, h.cmd.Stderr = t.TempDir(), h.out, h.err
	w, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.in = w
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	return h
}

// run runs a line as Engine.Run does.
func (h *hostShell) run(line string) (stdout, stderr string, status int) {
	h.t.Helper()
	mark := newMark()
	var b [2]bytes.Buffer
	s := [2]*scanner{newScanner(exactly(mark), &b[0], -1), newScanner(exactly(mark), &b[1], -1)}
	h.out.to <- s[0]
	h.err.to <- s[1]
	if _, err := io.WriteString(h.in, lines(line, mark)); err != nil {
		h.t.Fatal(err)
	}
	for i := range s {
		select {
		case <-s[i].found:
		case <-time.After(20 * time.Second):
			h.t.Fatalf("%q does not end", line)
		}
	}
	<-h.out.to
	<-h.err.to
	return b[0].String(), b[1].String(), s[0].status
}

var shells = [][]string{{"dash"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}}

// TestProtocol: X4, and what lasts from one command to the next.
func TestProtocol(t *testing.T) {
	for _, argv := range shells {
		t.Run(strings.Join(argv, " "), func(t *testing.T) {
			h := startShell(t, argv)
			for _, c := range []struct {
				line, stdout string
				status       int
			}{
				{"echo 42", "42\n", 0},
				{"printf 'no newline'", "no newline", 0},
				{"\n\n", "", 0},
				{"printf '$ \\n# \\n\\n'", "$ \n# \n\n", 0},
				{"cat <<EOF\nit's \"here\" $((1+1))\n$\nEOF", "it's \"here\" 2\n$\n", 0},
				{"x='a b'; f() { echo \"$1-$x\"; return 3; }; cd /", "", 0},
				{"f 1; pwd", "1-a b\n/\n", 0},
				{"f 2", "2-a b\n", 3},
				{"export Y=1; sh -c 'echo $Y'", "1\n", 0},
				{"cat", "", 0},
				{"(exit 7)", "", 7},
				{"sh -c 'kill -9 $$'", "", 137},
				{"nothing-like-it", "", 127},
				{"# only words", "", 0},
				{"sleep 300 & echo $! >/dev/null; echo at once", "at once\n", 0},
				{"kill $!", "", 0},
				{"printf '\\036\\036abc'", "\x1e\x1eabc", 0},
			} {
				if out, errs, status := h.run(c.line); out != c.stdout || status != c.status {
					t.Errorf("%q: %q %d (%q), want %q %d", c.line, out, status, errs, c.stdout, c.status)
				}
			}
			if out, errs, status := h.run("if; then"); status == 0 || out != "" || errs == "" {
				t.Errorf("a syntax error: %q %q %d", out, errs, status)
			}
			if out, _, status := h.run("echo \"$x\""); out != "a b\n" || status != 0 {
				t.Errorf("after a syntax error: %q %d", out, status)
			}
		})
	}
}

// TestKiller: the tree below a shell ends, the shell and others stay.
func TestKiller(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this machine has no /proc")
	}
	for _, argv := range shells[:2] {
		h := startShell(t, argv)
		done := make(chan int, 1)
		go func() {
			_, _, status := h.run("sh -c 'sh -c \"sleep 300; true\"; true'")
			done <- status
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for deadline := time.Now().Add(20 * time.Second); !hasChild(h.cmd.Process.Pid) && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if out, err := exec.CommandContext(ctx, argv[0], "-c", killer(h.cmd.Process.Pid)).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		if status := <-done; status != 137 {
			t.Errorf("%s: the command ended with %d", argv, status)
		}
		if out, _, _ := h.run("echo alive"); out != "alive\n" {
			t.Errorf("%s: the shell: %q", argv, out)
		}
	}
}

func hasChild(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return err == nil && len(bytes.TrimSpace(b)) > 0
}

// TestScanner: the mark is found wherever it is cut, and nothing else is.
func TestScanner(t *testing.T) {
	mark := newMark()
	text := "a\x1eb" + mark[:10] + "c\n\x1e" + mark + "12\nlater"
	for i := range 2 * len(text) {
		size, p := 1+i/2, pattern(exactly(mark))
		if i%2 == 1 {
			p = anyMark{}
		}
		var b bytes.Buffer
		s := newScanner(p, &b, -1)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			_, _ = s.Write([]byte(rest[:n]))
			rest = rest[n:]
		}
		select {
		case <-s.found:
		default:
			t.Fatalf("in steps of %d the mark is not found", size)
		}
		if want := "a\x1eb" + mark[:10] + "c\n\x1e"; b.String() != want || s.status != 12 {
			t.Errorf("in steps of %d: %q %d", size, b.String(), s.status)
		}
	}
	var b bytes.Buffer
	s := newScanner(exactly(mark), &b, 3)
	_, _ = io.WriteString(s, "abcdef"+mark+"0\n")
	if b.String() != "abc" || !s.truncated {
		t.Errorf("limit: %q %v", b.String(), s.truncated)
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("text"), 3)
	f.Add([]byte("\x1e0\x1e"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 || size > 1<<16 || bytes.Contains(text, []byte("\x1emark")) {
			return
		}
		var b bytes.Buffer
		s := newScanner(exactly("\x1emark"), &b, -1)
		all := append(append([]byte{}, text...), "\x1emark"+strconv.Itoa(7)+"\n"...)
		for len(all) > 0 {
			n := min(size, len(all))
			_, _ = s.Write(all[:n])
			all = all[n:]
		}
		if !bytes.Equal(b.Bytes(), text) || s.status != 7 {
			t.Errorf("%q: %q %d", text, b.Bytes(), s.status)
		}
	})
}
