package e2e

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// output is what makes a command's output part of its result.
func output() client.Output { return client.Output{} }

// TestB018: without input a command reads end-of-file, at every door.
func TestB018(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		cmd := sandbox.Command{Shell: "cat; echo done", Timeout: 10 * time.Second}
		for name, run := range map[string]func(sandbox.Command, io.Reader) *sandbox.Result{"waiting": box.Exec, "streaming": box.Stream} {
			t.Log(name)
			began := time.Now()
			WantExit(t, run(cmd, nil), 0, "done\n", "")
			Within(t, began, 2*time.Second)
		}
	})

	// The command line without -i, with a standard input that stays open.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	call := exec.Command(Binary(t), "--data-dir", SharedDir(t), "run", "--timeout", "10s", Image, "--", "sh", "-c", "cat; echo done")
	call.Stdin = r
	out, err := call.CombinedOutput()
	if err != nil || string(out) != "done\n" {
		t.Errorf("run without -i: %v, %q", err, out)
	}
}

// TestB020: input arrives whole, each time.
func TestB020(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		zeros := make([]byte, 1<<20)
		const want = "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58  -\n"
		parallel(box.Times(200), 8, func() {
			res, err := box.Try(sandbox.Command{Argv: []string{"sha256sum"}}, bytes.NewReader(zeros), output())
			if err != nil {
				t.Error(err)
			} else if string(res.Stdout) != want {
				t.Errorf("got %s", Describe(res))
			}
		})
	})
}

// TestB022: tools do not ask questions, and a command can choose otherwise.
func TestB022(t *testing.T) {
	t.Parallel()
	BothDoors(t, func(t *testing.T, box *Box) {
		box.Want("noninteractive/0\n", "echo $DEBIAN_FRONTEND/$GIT_TERMINAL_PROMPT")
		res := box.Exec(sandbox.Command{Shell: "echo $DEBIAN_FRONTEND", Env: []string{"DEBIAN_FRONTEND=dialog"}}, nil)
		WantExit(t, res, 0, "dialog\n", "")

		began := time.Now()
		res = box.Exec(sandbox.Command{Shell: "git clone https://denied.test/x.git /tmp/x", Timeout: 30 * time.Second}, nil)
		Within(t, began, 10*time.Second)
		if res.Outcome != sandbox.Exited || res.ExitCode == 0 || !strings.Contains(string(res.Stderr), "denied.test") {
			t.Errorf("got %s, want a failure that names the host", Describe(res))
		}
	})
}
