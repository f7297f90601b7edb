package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// restored fails unless the terminal is no longer raw.
func (m *Terminal) restored() {
	m.t.Helper()
	if mode := m.Mode(); mode.Lflag&unix.ECHO == 0 || mode.Lflag&unix.ICANON == 0 || mode.Lflag&unix.ISIG == 0 || mode.Oflag&unix.OPOST == 0 {
		m.t.Error("the terminal stays raw")
	}
}

// TestServerShell: a shell in a sandbox of the server is one: its size, its keys,
// its status. It is still there when the server was killed and came back, and
// leaves the terminal as it was.
func TestServerShell(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	if out := d.Run("create", "--name", "dev"); out.Code != 0 {
		t.Fatalf("create: %+v", out)
	}
	m := OpenTerminal(t, d.Dir, "shell", "dev")
	m.Expect("$ ")
	if m.Mode().Lflag&unix.ECHO != 0 {
		t.Error("the terminal is not raw")
	}
	m.Type("echo $TERM; stty size\r")
	m.Expect("xterm")
	m.Expect("40 120")
	if err := pty.Setsize(m.File, &pty.Winsize{Cols: 90, Rows: 30}); err != nil {
		t.Fatal(err)
	}
	m.Type("until stty size | grep '30 90'; do sleep 0.1; done\r")
	m.Expect("\r30 90")
	m.Type("sh -c 'echo now asl''eep; exec sleep 1000'\r")
	m.Expect("now asleep")
	m.Type("\x03")
	m.Type("echo status $?\r")
	m.Expect("status 130")

	d.Kill()
	m.Expect("the server went away; waiting for it to come back, Ctrl-C leaves")
	d.Start()
	// What was typed before the terminal was joined again is lost.
	Until(t, soon, "the shell goes on", func() bool {
		m.Type("echo $((6*7)) on\r")
		time.Sleep(100 * time.Millisecond)
		return strings.Contains(m.Screen(), "42 on")
	})
	m.Type("exit 7\r")
	if code := m.Code(); code != 7 {
		t.Errorf("it ended with %d", code)
	}
	m.restored()

	m = OpenTerminal(t, d.Dir, "top", "--interval", "200ms")
	m.Expect("1 sandboxes on")
	m.Expect(" dev ")
	Until(t, soon, "the table is drawn anew", func() bool { return strings.Count(m.Screen(), "\x1b[H") > 1 })
	m.Type("\x03")
	if code := m.Code(); code != 0 {
		t.Errorf("top ended with %d", code)
	}
}

// TestServerTerminalEnds: however a terminal ends, it is as it was, and nothing
// goes on in the sandbox.
func TestServerTerminalEnds(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	if out := d.Run("create", "--name", "dev"); out.Code != 0 {
		t.Fatalf("create: %+v", out)
	}
	running := func() bool { return strings.Contains(d.Run("execs", "dev").Stdout, "running") }
	for _, c := range []struct {
		name string
		args string
		end  func(m *Terminal)
		code int
	}{
		{"time limit", "--timeout 2s dev -- sh -c", func(*Terminal) {}, 124},
		{"SIGTERM", "dev -- sh -c", func(m *Terminal) { _ = m.Process.Signal(syscall.SIGTERM) }, 143},
		{"SIGHUP", "dev -- sh -c", func(m *Terminal) { _ = m.Process.Signal(syscall.SIGHUP) }, 129},
		{"the sandbox goes", "dev -- sh -c", func(*Terminal) { d.Run("rm", "dev") }, 125},
	} {
		m := OpenTerminal(t, d.Dir, append(append([]string{"exec", "-it"}, strings.Fields(c.args)...), "echo rea''dy; sleep 1000")...)
		m.Expect("ready")
		c.end(m)
		if code := m.Code(); code != c.code {
			t.Errorf("%s: it ended with %d: %q", c.name, code, m.Screen())
		}
		m.restored()
		if c.code != 125 {
			Until(t, soon, "nothing runs after: "+c.name, func() bool { return !running() })
		}
	}
	m := OpenTerminal(t, d.Dir, "exec", "-it", "dev", "--", "sh")
	m.Expect(`sandbox "dev" is not there any more (destroyed)`)
	if code := m.Code(); code != 125 {
		t.Errorf("in a sandbox that is gone: %d %q", code, m.Screen())
	}
	m.restored()
}

// follower is a call of the binary that a test talks with.
type follower struct {
	*exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	errs  lockedBuffer
}

func (d *Daemon) launch(args ...string) *follower {
	d.t.Helper()
	c := &follower{Cmd: exec.Command(Binary(d.t), args...)}
	c.Env = append(os.Environ(), "AGENTBOX_DATA_DIR="+d.Dir, "AGENTBOX_PROFILE=local")
	c.Stderr = &c.errs
	in, err := c.StdinPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	c.in, c.lines = in, bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// expect reads one line.
func (c *follower) expect(t *testing.T, want string) {
	t.Helper()
	late := time.AfterFunc(20*time.Second+Slack(), func() { _ = c.Process.Kill() })
	defer late.Stop()
	if !c.lines.Scan() || c.lines.Text() != want {
		t.Fatalf("it says %q, want %q; %s", c.lines.Text(), want, c.errs.String())
	}
}

func (c *follower) code() int {
	for c.lines.Scan() {
	}
	_ = c.Wait() // the status is returned
	return c.ProcessState.ExitCode()
}

// TestServerComesBack: who follows a command when the server is killed, or ends,
// misses nothing of it when the next one is there, and its input goes on.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	if out := d.Run("create", "--name", "dev"); out.Code != 0 {
		t.Fatalf("create: %+v", out)
	}
	follows := d.launch("exec", "dev", "--", "sh", "-c", "echo 1; echo e >&2; until [ -e go ]; do sleep 0.1; done; echo 2; exit 5")
	talks := d.launch("exec", "-i", "dev", "--", "sh", "-c", "while read x; do echo got $x; done; echo end; exit 6")
	follows.expect(t, "1")
	fmt.Fprintln(talks.in, "a")
	talks.expect(t, "got a")
	Until(t, soon, "its input was taken", func() bool { return strings.Contains(d.logs.String(), "/stdin status=204") })
	d.Kill()
	d.Start()
	Until(t, soon, "both noticed", func() bool {
		return strings.Contains(follows.errs.String(), "went away") && strings.Contains(talks.errs.String(), "went away")
	})
	fmt.Fprintln(talks.in, "b")
	talks.expect(t, "got b")
	if code := d.Stop(); code != 0 {
		t.Errorf("the daemon ended with %d", code)
	}
	d.Start()
	fmt.Fprintln(talks.in, "c")
	talks.expect(t, "got c")
	talks.in.Close()
	talks.expect(t, "end")
	if code := talks.code(); code != 6 {
		t.Errorf("with input it ended with %d: %s", code, talks.errs.String())
	}
	if out := d.Run("exec", "dev", "--", "touch", "go"); out.Code != 0 {
		t.Errorf("touch: %+v", out)
	}
	follows.expect(t, "2")
	if code := follows.code(); code != 5 {
		t.Errorf("it ended with %d: %s", code, follows.errs.String())
	}
	if n := strings.Count(follows.errs.String(), "e\n"); n != 1 {
		t.Errorf("its errors came %d times: %q", n, follows.errs.String())
	}
}

// TestServerForward: a port of this machine is one of the sandbox, for many
// connections at once, of which either side may end first.
func TestServerForward(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	if out := d.Run("create", "--name", "dev"); out.Code != 0 {
		t.Fatalf("create: %+v", out)
	}
	forward := d.launch("forward", "dev", "0:7000")
	if !forward.lines.Scan() {
		t.Fatal(forward.errs.String())
	}
	addr, _, _ := strings.Cut(forward.lines.Text(), " ")
	if host, _, err := net.SplitHostPort(addr); err != nil || host != "127.0.0.1" {
		t.Fatalf("it listens at %q", addr)
	}
	const counts = `
import socketserver
class H(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"%d\n" % len(self.rfile.read()))
class S(socketserver.ThreadingTCPServer):
    request_queue_size = 64
S(("127.0.0.1", 7000), H).serve_forever()`
	if out := d.Run("exec", "--detach", "dev", "--", "python3", "-c", counts); out.Code != 0 {
		t.Fatalf("a server in the sandbox: %+v", out)
	}
	Until(t, soon, "it listens", func() bool { return strings.Contains(d.Run("ports", "dev").Stdout, "7000") })
	var wg sync.WaitGroup
	for n := range 30 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(30*time.Second + Slack()))
			size := 1000 + n*10_000
			if _, err := conn.Write(make([]byte, size)); err != nil {
				t.Error(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			if answer, err := io.ReadAll(conn); err != nil || string(answer) != fmt.Sprintln(size) {
				t.Errorf("%d bytes are %q, %v", size, answer, err)
			}
		})
	}
	wg.Wait()
	_ = forward.Process.Signal(syscall.SIGINT)
	if code := forward.code(); code != 130 {
		t.Errorf("it ended with %d: %s", code, forward.errs.String())
	}
}

// TestServeScript: make run ends with the server in the foreground, with a terminal
// and without, until a signal ends it; SERVE=no leaves it out.
func TestServeScript(t *testing.T) {
	t.Parallel()
	env := append(os.Environ(), "AGENTBOX_BIN="+Binary(t), "AGENTBOX_DATA_DIR="+DataDir(t), "AGENTBOX_SANDBOX_IMAGE="+Image, "LISTEN=127.0.0.1:0")
	cmd := exec.Command("../../scripts/serve.sh") // its input is /dev/null
	cmd.Env = env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	curl := ""
	for lines := bufio.NewScanner(out); curl == "" && lines.Scan(); {
		_, curl, _ = strings.Cut(lines.Text(), "try: ")
	}
	answer, err := exec.Command("bash", "-c", curl).CombinedOutput()
	if err != nil || !strings.Contains(string(answer), `"status":"running"`) {
		t.Errorf("%s: %s, %v", curl, answer, err)
	}
	second := exec.Command("../../scripts/serve.sh")
	second.Env = env
	if text, err := second.CombinedOutput(); err == nil || !strings.Contains(string(text), "another daemon") {
		t.Errorf("a second one: %s, %v", text, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	none := exec.Command("../../scripts/serve.sh")
	none.Env = append(env, "SERVE=no")
	if text, err := none.CombinedOutput(); err != nil || len(text) != 0 {
		t.Errorf("without: %q, %v", text, err)
	}
	clean := exec.Command("../../scripts/serve.sh", "--ephemeral") // its sandboxes go with it
	clean.Env = env
	if out, err = clean.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := clean.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "try: "); {
	}
	_ = clean.Process.Signal(syscall.SIGTERM)
	if err := clean.Wait(); err != nil {
		t.Errorf("with --ephemeral it ended with %v", err)
	}
}
