package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// TestSecretIsTypedUnseen: at a terminal the value is asked for and not shown.
func TestSecretIsTypedUnseen(t *testing.T) {
	const value = "sk-0123456789"
	var sent map[string]any
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&sent) // looked at below
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"name":"KEY"}`)
	})
	noServer(t)
	t.Setenv(urlVariable, s.URL)
	screen, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer tty.Close()
	var errs bytes.Buffer
	a := &App{Stdin: tty, Stdout: io.Discard, Stderr: &errs}
	done := make(chan int, 1)
	go func() { done <- a.Main(t.Context(), []string{"secret", "set", "KEY", "--host", "a.example"}) }()
	for echoes := true; echoes; {
		mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case code := <-done:
			t.Fatalf("it ends with %d and %q", code, &errs)
		case <-t.Context().Done():
			t.Fatal("the terminal still echoes")
		case <-time.After(time.Millisecond):
			echoes = mode.Lflag&unix.ECHO != 0
		}
	}
	if _, err := io.WriteString(screen, value+"\n"); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 0 || sent["value"] != value || !strings.HasPrefix(errs.String(), "Value: ") {
		t.Errorf("it ends with %d and %q, sent %v", code, &errs, sent)
	}
	if _, err := io.WriteString(tty, "the end\n"); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(screen); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, value) {
			t.Errorf("the terminal shows %q", line)
		}
		if strings.Contains(line, "the end") {
			return
		}
	}
}
