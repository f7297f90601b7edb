package e2e

import (
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
)

// TestB025: bytes that are no UTF-8 neither get lost nor lose the result.
func TestB025(t *testing.T) {
	t.Parallel()
	const line = `printf '\377\376\200ok\000z'`
	const want = "//6Ab2sAeg=="
	BothDoors(t, func(t *testing.T, box *Box) {
		res := box.Sh(line)
		if got := base64.StdEncoding.EncodeToString(res.Stdout); got != want || res.ShellCode() != 0 {
			t.Errorf("bytes %s, want %s: %s", got, want, Describe(res))
		}
	})

	v := RunJSON(t, nil, "sh", "-c", line)
	if got := base64.StdEncoding.EncodeToString(v.StdoutB64); got != want || v.ExitCode != 0 {
		t.Errorf("run --json: bytes %s, want %s", got, want)
	}
	if !strings.Contains(v.Stdout, "ok") || !strings.Contains(v.Stdout, "\uFFFD") {
		t.Errorf("run --json: text %q, want ok and a replacement character", v.Stdout)
	}
	if out := Run(t, SharedDir(t), "", "run", Image, "--", "sh", "-c", line); out.Stdout != "\xff\xfe\x80ok\x00z" {
		t.Errorf("run: %q", out.Stdout)
	}
}

// TestB027: characters that lie across two chunks stay whole.
func TestB027(t *testing.T) {
	t.Parallel()
	program := "import os;b=('é'*200001).encode();[os.write(1,b[i:i+4097]) for i in range(0,len(b),4097)]"
	want := strings.Repeat("é", 200001)
	check := func(t *testing.T, door, got string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d bytes, want %d; %d replacement characters", door, len(got), len(want), strings.Count(got, "\uFFFD"))
		}
	}
	BothDoors(t, func(t *testing.T, box *Box) {
		cmd := sandbox.Command{Argv: []string{"python3", "-c", program}}
		check(t, "waiting", string(box.Exec(cmd, nil).Stdout))
		check(t, "streaming", string(box.Stream(cmd, nil).Stdout))
		// A terminal of gVisor may take less than a program offers; this one minds.
		whole := "import sys;sys.stdout.buffer.write('é'.encode()*200001)"
		tty := sandbox.Command{Argv: []string{"python3", "-c", whole}, TTY: true}
		check(t, "terminal", string(box.Stream(tty, nil).Stdout))
		check(t, "waiting on a terminal", string(box.Exec(tty, nil).Stdout))
	})
	check(t, "run", Run(t, SharedDir(t), "", "run", Image, "--", "python3", "-c", program).Stdout)
	check(t, "run --json", RunJSON(t, nil, "python3", "-c", program).Stdout)
}

// TestB029: input does not bring a terminal along; a terminal has one stream.
func TestB029(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		cmd := sandbox.Command{Shell: "echo a; echo b >&2"}
		runs := map[string]func(sandbox.Command, io.Reader) *sandbox.Result{"waiting": box.Exec, "streaming": box.Stream}
		for name, run := range runs {
			t.Log(name)
			WantExit(t, run(cmd, strings.NewReader("input")), 0, "a\n", "b\n")
		}
		cmd.TTY = true
		for name, run := range runs {
			t.Log(name, "with a terminal")
			WantExit(t, run(cmd, nil), 0, "a\r\nb\r\n", "")
		}
	})
}
