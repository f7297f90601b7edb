package sandbox_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	agentbox "agentbox/sdk/go"
	"agentbox/sdk/go/sandbox"
)

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open is a session at the server that AGENTBOX_URL names: it speaks gRPC on its one port.
func open(t *testing.T, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	url := os.Getenv("AGENTBOX_URL")
	if url == "" {
		t.Skip("no server: AGENTBOX_URL is not set")
	}
	t.Parallel()
	s := sandbox.New(url)
	t.Cleanup(s.Close)
	if _, err := s.Create(within(t), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSandbox(t *testing.T) {
	s, ctx := open(t, sandbox.Options{AllowedHosts: []string{"pypi.org"}}), within(t)
	if s.SessionID() == "" || !s.NetworkEnabled() || len(s.AllowedHosts()) != 1 {
		t.Errorf("%q %v", s.SessionID(), s.AllowedHosts())
	}
	r, err := s.Exec(ctx, "echo out; echo err >&2; pwd; exit 42", sandbox.ExecOptions{Workdir: "/tmp"})
	if err != nil || r.GetExitCode() != 42 || r.GetStdout() != "out\n/tmp\n" || r.GetStderr() != "err\n" {
		t.Errorf("%v %v", r, err)
	}
	var types []string
	for m, err := range s.ExecStream(ctx, "echo a; exit 3", "") {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, m.GetType())
		if m.GetType() == "exit" && m.GetExitCode() != 3 {
			t.Error(m)
		}
	}
	if strings.Join(types, " ") != "stdout exit" {
		t.Error(types)
	}
	if err := errors.Join(s.WriteFile(ctx, "f", "1\n", ""), s.WriteFile(ctx, "f", "2\n", "a")); err != nil {
		t.Error(err)
	}
	if text, err := s.ReadFile(ctx, "f"); err != nil || text != "1\n2\n" {
		t.Errorf("%q %v", text, err)
	}
	if _, err := s.ReadFile(ctx, "nope"); err == nil || err.Error() != "Failed to read file: File not found" {
		t.Error(err)
	}
	if err := s.WriteFile(ctx, "/etc/x", "", ""); err == nil || err.Error() != "Failed to write file: Path not allowed" {
		t.Error(err)
	}
	if _, err := s.PipInstall(ctx, "x"); err == nil || err.Error() != "pip install requires files.pythonhosted.org in allowedHosts" {
		t.Error(err)
	}
}

// TestRunPython: the program's file is gone after success, failure and timeout.
func TestRunPython(t *testing.T) {
	s, ctx := open(t, sandbox.Options{}), within(t)
	for code, want := range map[string]int32{"print(6*7)": 0, "raise SystemExit(5)": 5, "import time\ntime.sleep(60)": -1} {
		r, err := s.RunPython(ctx, code, time.Second+time.Duration(want+1)*10*time.Second)
		if err != nil || r.GetExitCode() != want || r.GetTimedOut() != (want == -1) {
			t.Errorf("%q: %v %v", code, r, err)
		}
		if r, err := s.Exec(ctx, "ls", sandbox.ExecOptions{}); err != nil || r.GetStdout() != "" {
			t.Errorf("left is %v %v", r, err)
		}
	}
}

func TestStreamLeft(t *testing.T) {
	s, ctx := open(t, sandbox.Options{}), within(t)
	pid := ""
	for m, err := range s.ExecStream(ctx, "echo $$; exec sleep 300", "") {
		if err != nil {
			t.Fatal(err)
		}
		pid = strings.TrimSpace(m.GetData())
		break
	}
	for {
		r, err := s.Exec(ctx, "kill -0 "+pid, sandbox.ExecOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.GetExitCode() != 0 {
			return
		}
	}
}

func TestNoSession(t *testing.T) {
	s, ctx := sandbox.New(""), within(t)
	defer s.Close()
	var of []error
	_, err := s.Exec(ctx, "true", sandbox.ExecOptions{})
	of = append(of, err, s.WriteFile(ctx, "f", "", ""))
	_, err = s.ReadFile(ctx, "f")
	of = append(of, err)
	_, err = s.PipInstall(ctx, "x")
	of = append(of, err)
	_, err = s.RunPython(ctx, "", 0)
	of = append(of, err)
	for _, err = range s.ExecStream(ctx, "true", "") {
		of = append(of, err)
	}
	if len(of) != 6 {
		t.Errorf("%d calls", len(of))
	}
	for i, err := range of {
		if err == nil || err.Error() != "No active session. Call create() first." {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if ok, err := s.Destroy(ctx); ok || err != nil {
		t.Error(ok, err)
	}
}

func TestErrors(t *testing.T) {
	url := os.Getenv("AGENTBOX_URL")
	if url == "" {
		t.Skip("no server: AGENTBOX_URL is not set")
	}
	s := sandbox.New(url)
	defer s.Close()
	if _, err := s.Create(within(t), sandbox.Options{SessionID: "a/b"}); !errors.Is(err, agentbox.ErrInvalidArgument) {
		t.Errorf("a bad id is %v", err)
	}
	none := sandbox.New("http://127.0.0.1:1")
	defer none.Close()
	if _, err := none.Create(within(t), sandbox.Options{}); !errors.Is(err, agentbox.ErrUnavailable) {
		t.Errorf("no server is %v", err)
	}
}
