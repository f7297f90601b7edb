package e2e

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// Terminal is a call of the binary on a terminal of its own.
type Terminal struct {
	*exec.Cmd
	File *os.File // the user's side: the keyboard and the screen
	t    testing.TB

	mu     sync.Mutex
	screen strings.Builder
	more   chan struct{} // something new is on the screen; closed at its end
}

// OpenTerminal calls the binary with args on a terminal of 120 × 40.
func OpenTerminal(t testing.TB, dataDir string, args ...string) *Terminal {
	t.Helper()
	cmd := exec.Command(Binary(t), args...)
	cmd.Env = append(os.Environ(), "AGENTBOX_DATA_DIR="+dataDir, "AGENTBOX_PROFILE=local", "TERM=xterm")
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 120, Rows: 40})
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{Cmd: cmd, File: f, t: t, more: make(chan struct{}, 1)}
	go term.read()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // an error says that it ended
		_ = f.Close()
	})
	return term
}

func (m *Terminal) read() {
	defer close(m.more)
	buf := make([]byte, 4096)
	for {
		n, err := m.File.Read(buf)
		m.mu.Lock()
		m.screen.Write(buf[:n])
		m.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case m.more <- struct{}{}:
		default:
		}
	}
}

// Screen is everything that was written so far.
func (m *Terminal) Screen() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.screen.String()
}

// Type presses keys.
func (m *Terminal) Type(keys string) {
	m.t.Helper()
	if _, err := m.File.WriteString(keys); err != nil {
		m.t.Fatal(err)
	}
}

// Expect waits until the screen has text.
func (m *Terminal) Expect(text string) {
	m.t.Helper()
	limit := time.After(20*time.Second + Slack())
	for !strings.Contains(m.Screen(), text) {
		select {
		case _, open := <-m.more:
			if !open && !strings.Contains(m.Screen(), text) {
				m.t.Fatalf("the terminal ended without %q: %q", text, m.Screen())
			}
		case <-limit:
			m.t.Fatalf("no %q on the terminal: %q", text, m.Screen())
		}
	}
}

// Code waits for the end of the call and returns its exit status, -1 when it
// was killed.
func (m *Terminal) Code() int {
	m.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Wait() }() // the status is returned
	select {
	case <-done:
		return m.ProcessState.ExitCode()
	case <-time.After(20*time.Second + Slack()):
		m.t.Fatalf("the call does not end: %q", m.Screen())
		return 0
	}
}

// Mode is the terminal's line discipline: raw or not.
func (m *Terminal) Mode() unix.Termios {
	m.t.Helper()
	mode, err := unix.IoctlGetTermios(int(m.File.Fd()), unix.TCGETS)
	if err != nil {
		m.t.Fatal(err)
	}
	return *mode
}
