package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Daemon is a running agentbox serve with a data directory of the test's own.
type Daemon struct {
	t    testing.TB
	Dir  string
	args []string
	cmd  *exec.Cmd
	logs *lockedBuffer
	// adjust changes how the program is called; nil: not.
	adjust func(*exec.Cmd)

	URL string
	// Key is the first one: an admin's of the default owner. Empty without keys.
	Key string
	// Said is what the daemon said when it was up, and Curl the line in it to try.
	Said, Curl string
	stdout     io.Closer
	lines      *bufio.Scanner // of what it says
}

// StartDaemon starts a daemon on a free port. It ends with the test, and so do
// its sandboxes.
func StartDaemon(t testing.TB, args ...string) *Daemon {
	t.Helper()
	d := &Daemon{t: t, Dir: DataDir(t), args: args, logs: &lockedBuffer{}}
	d.forTest(t)
	return d
}

// forTest starts the daemon, which ends with the test.
func (d *Daemon) forTest(t testing.TB) {
	t.Helper()
	d.Start()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.logs.String())
		}
		d.Kill()
		d.args = append(d.args, "--ephemeral")
		d.Start()
		if code := d.Stop(); code != 0 {
			t.Errorf("the last daemon ended with %d", code)
		}
		if n := Count(t, d.Dir+"/"); n != 0 {
			t.Errorf("%d processes are left", n)
		}
	})
}

// Start starts the daemon again, after it ended.
func (d *Daemon) Start() {
	d.t.Helper()
	if err := d.StartWith(); err != nil {
		d.t.Fatal(err)
	}
}

// StartWith starts the daemon with further variables of its environment. A daemon
// that ended before it could be reached is an error.
func (d *Daemon) StartWith(env ...string) error {
	d.t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--grpc-listen", "none", "--sandbox-image", Image, "--grpc-image", Image}, d.args...)
	d.cmd = exec.Command(Binary(d.t), args...)
	d.cmd.Env = append(append(os.Environ(), "AGENTBOX_DATA_DIR="+d.Dir), env...)
	d.cmd.Stderr = d.logs
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if d.adjust != nil {
		d.adjust(d.cmd)
	}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = d.cmd.Process.Kill() }) // it says nothing: the reading below ends
	defer late.Stop()
	d.Said, d.stdout, d.lines = "", stdout, bufio.NewScanner(stdout)
	for d.lines.Scan() {
		line := d.lines.Text()
		d.Said += line + "\n"
		if m := regexp.MustCompile(`serves (https?://\S+)`).FindStringSubmatch(line); m != nil {
			d.URL = m[1]
		}
		if key := regexp.MustCompile(`abx_[0-9a-f]{40}`).FindString(line); key != "" {
			d.Key = key
		}
		if curl, ok := strings.CutPrefix(line, "try: "); ok {
			d.Curl = curl
			return nil
		}
	}
	d.Kill()
	return fmt.Errorf("the daemon did not start: %s", d.logs.String())
}

// Kill ends the daemon with SIGKILL, if it has not ended.
func (d *Daemon) Kill() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Kill() // an error says that it ended
	_ = d.cmd.Wait()
	d.cmd = nil
}

// Log is what the daemons have said so far.
func (d *Daemon) Log() string { return d.logs.String() }

// Stop asks the daemon to end and returns its exit status.
func (d *Daemon) Stop() int {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	_ = d.cmd.Wait() // the status is returned
	code := d.cmd.ProcessState.ExitCode()
	d.cmd = nil
	return code
}

// LastWords asks the daemon to end and returns the next line that it says.
func (d *Daemon) LastWords() string {
	d.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { _ = d.stdout.Close() }) // it says nothing
	defer late.Stop()
	d.lines.Scan()
	return d.lines.Text()
}

// Do sends a request below /api/v1 with a key and decodes the answer into out, if
// that is not nil. It returns the status.
func (d *Daemon) Do(key, method, path, body string, out any) int {
	d.t.Helper()
	code, text := d.send(key, method, path, body)
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			d.t.Fatalf("%s %s: %d %s", method, path, code, text)
		}
	}
	return code
}

// Text reads what is no JSON, which must be there.
func (d *Daemon) Text(key, path string) string {
	d.t.Helper()
	code, text := d.send(key, "GET", path, "")
	if code != http.StatusOK {
		d.t.Fatalf("%s: %d %s", path, code, text)
	}
	return string(text)
}

func (d *Daemon) send(key, method, path, body string) (int, []byte) {
	d.t.Helper()
	a := d.As(key).Send(method, api+path, body)
	return a.Code, []byte(a.Text)
}

// Call is a request below /api/v1.
type Call struct {
	Key, Method, Path, Body string
	// Header has further ones. The type of a body is JSON unless it says otherwise.
	Header map[string]string
}

// Try sends a request to a daemon that may die of it. It may be used by many
// goroutines, while nobody starts the daemon anew.
func (d *Daemon) Try(c Call) (Answer, error) {
	var headers []string
	for name, value := range c.Header {
		headers = append(headers, name, value)
	}
	return d.As(c.Key).Try(c.Method, api+c.Path, strings.NewReader(c.Body), headers...)
}

// Run calls the binary as a client of the daemon, by its local socket.
func (d *Daemon) Run(args ...string) Out {
	d.t.Helper()
	return Run(d.t, d.Dir, "", args...)
}

// lockedBuffer is written by a process's output and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
