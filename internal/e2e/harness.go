package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/datadir"
)

// Environment of the tests, set by scripts/test.sh.
const (
	// envBin is the binary under test.
	envBin = "AGENTBOX_BIN"
	// envTestDir is a data directory whose images tests share.
	envTestDir = "AGENTBOX_TEST_DIR"
	// envStrict makes a missing prerequisite a failure rather than a skip.
	envStrict = "AGENTBOX_TEST_STRICT"
	// envSoak asks for the long versions of tests, which scripts/soak.sh runs.
	envSoak = "AGENTBOX_SOAK"
)

// Image that the tests run in.
const Image = "small"

// Need ends the test unless ok: a failure where the environment promises
// everything (continuous integration), a skip with the reason elsewhere.
func Need(t testing.TB, ok bool, reason string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv(envStrict) != "" || os.Getenv("CI") != "":
		t.Fatal("this test needs " + reason)
	default:
		t.Skip("this test needs " + reason)
	}
}

// Soak reports whether the long versions of tests are asked for.
func Soak() bool { return os.Getenv(envSoak) != "" }

// Sized is n, or the full size in a soak run.
func Sized(n, full int) int {
	if Soak() {
		return full
	}
	return n
}

// Binary is the path of the agentbox under test.
func Binary(t testing.TB) string {
	t.Helper()
	bin := os.Getenv(envBin)
	Need(t, bin != "", "the built binary; run it by make test, or set "+envBin)
	return bin
}

// SharedDir is the data directory whose images all tests share.
func SharedDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(envTestDir)
	Need(t, dir != "", "a data directory with images; run it by make test, or set "+envTestDir)
	return dir
}

// DataDir is a data directory of the test's own, with the shared images in it.
func DataDir(t testing.TB) string {
	t.Helper()
	dir := makeDataDir(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func makeDataDir(t testing.TB) string {
	t.Helper()
	shared := SharedDir(t)
	// Short: paths of sockets below it are limited.
	dir, err := os.MkdirTemp("", "ab")
	if err == nil {
		err = errors.Join(os.Remove(dir), datadir.Make(dir)) // as agentbox makes it
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"images", "engine", "guest"} {
		if err := os.MkdirAll(filepath.Join(shared, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(shared, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Verdict is what agentbox run --json prints.
type Verdict struct {
	ExitCode  int    `json:"exit_code"`
	Outcome   string `json:"outcome"`
	Signal    int    `json:"signal"`
	Reason    string `json:"reason"`
	TimedOut  bool   `json:"timed_out"`
	OOMKilled bool   `json:"oom_killed"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	StdoutB64 []byte `json:"stdout_base64"`
	Truncated struct{ Stdout, Stderr bool }
	// DurationMS is the command's own, CreateMS the sandbox's start.
	DurationMS  float64  `json:"duration_ms"`
	CreateMS    float64  `json:"create_ms"`
	NotEnforced []string `json:"not_enforced"`
	HostUID     uint32   `json:"host_uid"`
}

// Out is what one call of the binary did.
type Out struct {
	Code           int
	Stdout, Stderr string
	Took           time.Duration
}

// Run calls the binary with args and stdin; the call itself must work.
func Run(t testing.TB, dataDir, stdin string, args ...string) Out {
	t.Helper()
	return RunWithin(t, 5*time.Minute, dataDir, stdin, args...)
}

// RunWithin is [Run] for what may take longer.
func RunWithin(t testing.TB, limit time.Duration, dataDir, stdin string, args ...string) Out {
	t.Helper()
	return runWith(t, limit, []string{"AGENTBOX_DATA_DIR=" + dataDir, "AGENTBOX_PROFILE=local"}, stdin, args...)
}

// runWith is [Run] with variables of the environment.
func runWith(t testing.TB, limit time.Duration, env []string, stdin string, args ...string) Out {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	out := Out{Stdout: stdout.String(), Stderr: stderr.String(), Took: time.Since(began)}
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() < 0 {
			t.Fatalf("agentbox %q: %v\n%s", args, err, out.Stderr)
		}
		out.Code = exit.ExitCode()
	}
	return out
}

// RunJSON runs a command in a fresh sandbox and returns the verdict. flags are
// options of agentbox run.
func RunJSON(t testing.TB, flags []string, argv ...string) Verdict {
	t.Helper()
	args := append([]string{"run", "--json"}, flags...)
	args = append(append(args, Image, "--"), argv...)
	out := Run(t, SharedDir(t), "", args...)
	var v Verdict
	if err := json.Unmarshal([]byte(out.Stdout), &v); err != nil {
		t.Fatalf("agentbox %q printed no verdict (status %d): %v\n%s\n%s", args, out.Code, err, out.Stdout, out.Stderr)
	}
	if v.ExitCode != out.Code {
		t.Errorf("exit status %d, but the verdict says %d", out.Code, v.ExitCode)
	}
	return v
}

// Bounds of [Slack]. Above the upper one tests could no longer tell a limit
// that works from one that does not.
const (
	minSlack = 2 * time.Second
	maxSlack = 10 * time.Second
)

var slack struct {
	mu       sync.Mutex
	measured time.Time
	value    time.Duration
}

// Slack is how much later than its limit something that has a deadline may end
// on a machine as busy as this one is now: 20 times what a `true` takes.
func Slack() time.Duration {
	slack.mu.Lock()
	defer slack.mu.Unlock()
	if time.Since(slack.measured) > 5*time.Second {
		began := time.Now()
		runTrue()
		slack.value = min(max(minSlack, 20*time.Since(began)), maxSlack)
		slack.measured = time.Now()
	}
	return slack.value
}

// Starvation is how many times longer than on an idle machine a thread takes now for
// its work. A promise about an idle machine is kept on another one if what it allows,
// that many times, is.
func Starvation() float64 {
	const pieces, piece = 5, 10 * time.Millisecond // of work, some turns of the scheduler each
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := time.Now()
	for end := threadTime() + pieces*piece; threadTime() < end; {
	}
	return max(1, float64(time.Since(began))/float64(pieces*piece))
}

// threadTime is what the calling thread has had of processors.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // never fails
	return time.Duration(t.Nano())
}

// Count returns how many processes of the host have text in their command line.
func Count(t testing.TB, text string) int {
	t.Helper()
	n := 0
	for _, pid := range pids(t) {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && bytes.Contains(b, []byte(text)) {
			n++
		}
	}
	return n
}

func pids(t testing.TB) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
