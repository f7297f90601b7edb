package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sdkGo is the client's module.
const sdkGo = "../../sdk/go"

// goIn runs the go command in a directory, as a client of a daemon.
func goIn(t *testing.T, d *Daemon, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AGENTBOX_URL="+d.URL, "AGENTBOX_API_KEY="+d.Key, "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=1") // the race detector needs it
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestSDKGo runs the tests and the examples of the client in Go against a real server with
// keys.
func TestSDKGo(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	out := goIn(t, d, sdkGo, "test", "-race", "-count=1", "-v", "./...")
	for _, want := range []string{"--- PASS: TestBackground", "--- PASS: TestTerminal", "--- PASS: TestTransfer", "--- PASS: TestRunPython", "--- PASS: ExampleBox_Exec"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q:\n%s", want, out)
		}
	}
	for _, skip := range regexp.MustCompile(`(?s)--- SKIP: \w+.*?\n\s+(.*?)\n`).FindAllStringSubmatch(out, -1) {
		t.Logf("skipped: %s", skip[1])
	}
	for example, want := range map[string]string{"quickstart": "step 3\nit runs Linux\n", "session": "Hello from the sandbox!\n"} {
		if out := goIn(t, d, sdkGo, "run", "./examples/"+example, d.URL); !strings.Contains(out, want) {
			t.Errorf("%s says\n%s", example, out)
		}
	}
}

// TestSDKGoFirstExample: an empty module gets the client as its README says, and runs the
// README's first example, with a key and without keys.
func TestSDKGoFirstExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(sdkGo + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindStringSubmatch(string(text))
	lines := regexp.MustCompile(`(?m)^\$ go (mod .*)$`).FindAllStringSubmatch(string(text), -1)
	if program == nil || len(lines) != 2 {
		t.Fatalf("the README has no example, or %d lines to get it", len(lines))
	}
	there, err := filepath.Abs(sdkGo)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/main.go", []byte(program[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	d := SharedDaemon(t)
	goIn(t, d, dir, "mod", "init", "example.com/mine")
	for _, line := range lines {
		goIn(t, d, dir, strings.Fields(strings.ReplaceAll(line[1], "$HOME/agentbox/sdk/go", there))...)
	}
	if out := goIn(t, d, dir, "run", "."); out != "42\n" {
		t.Errorf("it says %q", out)
	}
	if sum, err := os.ReadFile(dir + "/go.sum"); err != nil || strings.Contains(string(sum), "connectrpc.com") && strings.Contains(string(sum), "connect/v2 v2.0.2 h1:") {
		t.Errorf("the native client needs gRPC: %v\n%s", err, sum)
	}
}
