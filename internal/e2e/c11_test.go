package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB084: a terminal has its size from the first moment on.
func TestB084(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		for range box.Times(100) {
			res, err := box.Try(sandbox.Command{Shell: "stty size", TTY: true, Cols: 120, Rows: 40}, nil, client.Output{})
			if err != nil || string(res.Stdout) != "40 120\r\n" {
				t.Fatalf("got %v, %v", res, err)
			}
		}
	})
	box := SharedRemote(t)
	for range Sized(10, 100) {
		w := box.OpenTerminal(query("cols", "120", "rows", "40", "command", "stty size"))
		if ok := w.Ended(); !ok || w.Screen() != "40 120\r\n" {
			t.Fatalf("a terminal's size is %q, ended in order: %v", w.Screen(), ok)
		}
		if m := w.Text("exit"); m.ExitCode == nil || *m.ExitCode != 0 {
			t.Errorf("it ends with %+v", m)
		}
	}
}

// TestB086: a terminal lives on when its socket drops, and is found again with
// what it showed; controls are no text on the screen.
func TestB086(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	w := box.OpenTerminal("")
	id := w.Text("start").ExecID
	w.Type("echo A$((1)); export Z=5\n")
	w.WaitFor(`[\r\n]A1\r\n`)
	w.Drop()

	again := box.OpenTerminal(query("exec_id", id))
	again.WaitFor(`[\r\n]A1\r\n`) // what it showed before
	again.Type("echo z$Z\n")
	again.WaitFor(`[\r\n]z5\r\n`)
	for i := range 200 {
		again.Control(map[string]any{"type": "resize", "cols": 100 + i%50, "rows": 30})
	}
	again.Control(map[string]any{"type": "resize", "cols": 77, "rows": 33})
	again.Type("stty size\n")
	again.WaitFor(`[\r\n]33 77\r\n`)
	again.Control(map[string]any{"type": "signal", "signal": "HUP"})
	if m := again.Text("exit"); m.ExecID != id {
		t.Errorf("it ends with %+v", m)
	}
	if screen := again.Screen(); strings.Contains(screen, "resize") || strings.Contains(screen, `"type"`) {
		t.Errorf("controls are on the screen: %q", screen)
	}
	// One that nobody comes back to is killed after the grace.
	third := box.OpenTerminal(query("command", "sleep 33.86"))
	third.Text("start")
	box.WaitCount("33.86", 1, 10*time.Second)
	third.Drop()
	box.WaitCount("33.86", 0, sandbox.DisconnectGrace+2*time.Second)
}

// TestB088: a program that reads the terminal stops nobody else; ^C ends a
// command, not the shell.
func TestB088(t *testing.T) {
	t.Parallel()
	box := NewRemote(t, sandbox.Limits{})
	w := box.OpenTerminal("")
	w.Type("PS1='ready> '\n")
	w.WaitFor(`ready> $`)
	w.Type("read -s x; echo got:$x\n")
	w.WaitFor(`echo got:\$x\r\n`)
	for range 20 {
		began := time.Now()
		resp, err := http.Get(box.remote.d.URL + "/health") //nolint:noctx // it is local
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("/health: %d", resp.StatusCode)
		}
		Within(t, began, 500*time.Millisecond)
	}
	w.Type("pw\r")
	w.WaitFor(`[\r\n]got:pw\r\n`)
	if regexp.MustCompile(`[^:]pw`).MatchString(w.Screen()) {
		t.Errorf("the secret is on the screen: %q", w.Screen())
	}
	w.Type("sleep 100.88\n")
	box.WaitCount("100.88", 1, 10*time.Second)
	w.Type("\x03")
	box.WaitCount("100.88", 0, 10*time.Second)
	w.Type("echo $?\n")
	w.WaitFor(`[\r\n]130\r\n`)
}
