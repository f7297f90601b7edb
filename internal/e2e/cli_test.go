package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestTerminal works in a shell on a terminal, as a person does.
func TestTerminal(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	watch := WatchResidue(dir)
	term := OpenTerminal(t, dir, "run", "-it", Image, "--", "bash", "--norc")
	before := term.Mode()
	term.Expect("$ ")
	term.Type("stty size; echo $TERM; tty\r")
	term.Expect("40 120\r\n")
	term.Expect("xterm\r\n")
	if err := pty.Setsize(term.File, &pty.Winsize{Cols: 90, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	// The new size is on its way; the shell asks until it is there.
	term.Type("until stty size | grep -x '30 90'; do sleep 0.1; done; echo it has a new si''ze\r")
	term.Expect("it has a new size\r\n")
	// Keys go to the program, also those that would end agentbox.
	term.Type("bash -c 'echo sle''eps; exec sleep 1000'\r")
	term.Expect("sleeps\r\n")
	term.Type("\x03")
	term.Type("echo stat''us=$?\r")
	term.Expect("status=130\r\n")
	term.Type("exit 5\r")
	if code := term.Code(); code != 5 {
		t.Errorf("exit status %d, want 5", code)
	}
	if after := term.Mode(); after != before {
		t.Errorf("the terminal's mode is %+v, it was %+v", after, before)
	}
	watch.Check(t)
}

// TestTwoTerminals runs two at once in one data directory.
func TestTwoTerminals(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	watch := WatchResidue(dir)
	a := OpenTerminal(t, dir, "run", "-it", Image, "--", "bash", "--norc")
	b := OpenTerminal(t, dir, "run", "-it", Image, "--", "bash", "--norc")
	a.Type("echo only in a >/workspace/f; echo writ''ten\r")
	a.Expect("written\r\n")
	b.Type("cat /workspace/f; echo look''ed\r")
	b.Expect("looked\r\n")
	if strings.Contains(b.Screen(), "only in a") {
		t.Errorf("b sees the file of a: %q", b.Screen())
	}
	a.Type("exit\r")
	if code := a.Code(); code != 0 {
		t.Errorf("a ended with %d", code)
	}
	b.Type("echo still he''re; exit 3\r")
	b.Expect("still here\r\n")
	if code := b.Code(); code != 3 {
		t.Errorf("b ended with %d", code)
	}
	if n := watch.Check(t); n != 2 {
		t.Errorf("saw %d owners, want 2", n)
	}
}

// call starts the binary with a command that says READY and then goes on for
// long, and waits until it does.
func call(t *testing.T, dir string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(Binary(t), "--data-dir", dir, "run", Image, "--", "sh", "-c", "echo READY; sleep 25555 & sleep 25555")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error says that it ended
	b := make([]byte, 6)
	if _, err := stdout.Read(b); err != nil || string(b) != "READY\n" {
		t.Fatalf("the command said %q: %v\n%s", b, err, stderr.String())
	}
	return cmd, &stderr
}

// TestSignalsCleanUp: a signal ends agentbox and its sandbox, and leaves
// nothing.
func TestSignalsCleanUp(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dir := DataDir(t)
			watch := WatchResidue(dir)
			cmd, stderr := call(t, dir)
			began := time.Now()
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the status is looked at
			Within(t, began, 5*time.Second)
			if code := cmd.ProcessState.ExitCode(); code != 128+int(sig) || strings.Contains(stderr.String(), "warning") {
				t.Errorf("exit status %d, want %d; %s", code, 128+int(sig), stderr.String())
			}
			if n := watch.Check(t); n != 1 {
				t.Errorf("saw %d owners, want 1", n)
			}
		})
	}
}

// TestKillIsCleanedAtTheNextStart: what a killed agentbox left is gone after
// the next one's start, and what belongs to others is not touched.
func TestKillIsCleanedAtTheNextStart(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	watch := WatchResidue(dir)
	neighbour, said := call(t, dir) // lives in the same data directory
	alive := owners(dir)
	killed, _ := call(t, dir)
	dead := ""
	for _, o := range owners(dir) {
		if len(alive) != 1 || o != alive[0] {
			dead = o
		}
	}
	// Something of another program that names the sandbox, as a search by
	// command lines would find it.
	decoy := exec.Command("sleep", "1000")
	decoy.Args[0] = filepath.Join(dir, "owners", dead, "run")
	if err := decoy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = decoy.Process.Kill(); _ = decoy.Wait() })

	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if out := Run(t, dir, "", "run", Image, "--", "echo", "next"); out.Code != 0 || out.Stdout != "next\n" {
		t.Fatalf("the next start: %+v", out)
	}
	if left := owners(dir); len(left) != 1 || left[0] != alive[0] {
		t.Errorf("owners %v, want the neighbour %v alone", left, alive)
	}
	if n := Count(t, filepath.Join(dir, "owners", dead)); n != 1 { // the decoy
		t.Errorf("%d processes of the dead owner, want the decoy alone", n)
	}
	if left := cgroupDirs(dead); len(left) > 0 {
		t.Errorf("control groups left: %v", left)
	}
	if err := decoy.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the decoy is gone: %v", err)
	}

	// The neighbour ends only when it is told to.
	if err := neighbour.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("the neighbour is gone: %v\n%s", err, said.String())
	}
	_ = neighbour.Wait()
	if code := neighbour.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("the neighbour ended with %d\n%s", code, said.String())
	}
	_ = decoy.Process.Kill()
	_ = decoy.Wait()
	watch.Check(t)
}

// TestClosedOutput: agentbox ends when nobody reads what it prints.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	watch := WatchResidue(dir)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Binary(t), "--data-dir", dir, "run", "--timeout", "60s", Image, "--", "yes")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error says that it ended
	_ = w.Close()
	if _, err := r.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	began := time.Now()
	_ = cmd.Wait() // ended by SIGPIPE or by itself
	Within(t, began, 10*time.Second)
	// A SIGPIPE leaves the rest to the next start.
	Run(t, dir, "", "run", Image, "--", "true")
	watch.Check(t)
}
