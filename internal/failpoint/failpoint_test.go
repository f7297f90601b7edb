package failpoint_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentbox/internal/failpoint"
)

func arm(t *testing.T, text string) {
	t.Helper()
	if err := failpoint.Arm(text); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = failpoint.Arm("") })
}

// hits are the passes of ExecBegin, of n, at which it failed.
func hits(n int) (failed []int) {
	for i := range n {
		if err := failpoint.ExecBegin.Hit(); errors.Is(err, failpoint.ErrInjected) {
			failed = append(failed, i)
		}
	}
	return failed
}

func TestActions(t *testing.T) {
	for text, want := range map[string][]int{
		"":                                      nil,
		"exec.ended=error":                      nil,
		"exec.begin=error":                      {0, 1, 2, 3},
		"exec.begin=error*2":                    {0, 1},
		"exec.ended=error,exec.begin=error+1*2": {1, 2},
		"exec.begin=error+3":                    {3},
		"exec.begin=delay:1ms":                  nil,
	} {
		arm(t, text)
		if got := hits(4); !slices.Equal(got, want) {
			t.Errorf("%q: failed at %v, want %v", text, got, want)
		}
	}
	arm(t, "exec.begin=delay:30ms")
	if began := time.Now(); failpoint.ExecBegin.Hit() != nil || time.Since(began) < 30*time.Millisecond {
		t.Error("it did not wait")
	}
}

func TestKill(t *testing.T) {
	if os.Getenv(failpoint.Variable) != "" {
		arm(t, os.Getenv(failpoint.Variable))
		t.Log("alive", failpoint.ExecBegin.Hit())
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), failpoint.Variable+"=exec.begin=kill")
	out, _ := cmd.CombinedOutput()
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v: %s", cmd.ProcessState, out)
	}
}

func TestMistakes(t *testing.T) {
	arm(t, "exec.begin=error")
	for _, text := range []string{
		"none=error", "exec.begin", "exec.begin=", "exec.begin=panic", "exec.begin=error:x", "exec.begin=delay", "exec.begin=delay:x",
		"exec.begin=error*0", "exec.begin=error*x", "exec.begin=error+0", "exec.begin=kill,", "exec.begin=error*1+1",
	} {
		if err := failpoint.Arm(text); err == nil || !strings.Contains(err.Error(), failpoint.Variable) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if len(hits(1)) != 1 {
		t.Error("a mistake has disarmed what was armed")
	}
}

func TestReader(t *testing.T) {
	src := strings.NewReader("text")
	if r := failpoint.UploadPart.Reader(src); r != io.Reader(src) {
		t.Error("not armed, and it reads through something else")
	}
	arm(t, "upload.part=error")
	if got, err := io.ReadAll(failpoint.UploadPart.Reader(src)); string(got) != "text" || !errors.Is(err, failpoint.ErrInjected) {
		t.Errorf("got %q, %v", got, err)
	}
}

// Every point is somewhere in the source, once.
func TestEveryPointIsUsed(t *testing.T) {
	out, err := exec.Command("grep", "-rhoE", "--include=*.go", "--exclude=*_test.go", `failpoint\.[A-Z][A-Za-z]+\.(Hit|Reader)\(`, "..").Output()
	if err != nil {
		t.Fatal(err)
	}
	used := len(strings.Fields(string(out)))
	if used != len(failpoint.All) {
		t.Errorf("there are %d points, and %d are hit:\n%s", len(failpoint.All), used, out)
	}
	names := slices.Clone(failpoint.All)
	slices.Sort(names)
	if len(slices.Compact(names)) != len(failpoint.All) {
		t.Error("two points have the same name")
	}
}
