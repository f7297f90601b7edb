package e2e

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Probe is the command that runs testdata/probes/<name>.py behind their common
// prelude.
func Probe(t testing.TB, name, user string, args ...string) sandbox.Command {
	t.Helper()
	var script []byte
	for _, n := range []string{"prelude", name} {
		b, err := os.ReadFile(filepath.Join("testdata", "probes", n+".py"))
		if err != nil {
			t.Fatal(err)
		}
		script = append(script, b...)
	}
	return sandbox.Command{
		Argv: append([]string{"python3", "-c", string(script)}, args...),
		User: user, Timeout: 2 * time.Minute,
	}
}

// Findings are a probe's lines "what: result". A probe's last line is "end".
type Findings struct {
	t   testing.TB
	all map[string]string
	// Text is everything that the probe printed.
	Text string
}

// RunProbe runs a probe, which must come to its end.
func (b *Box) RunProbe(name, user string, args ...string) Findings {
	b.t.Helper()
	r := b.Exec(Probe(b.t, name, user, args...), nil)
	if r.Outcome != sandbox.Exited || r.ExitCode != 0 {
		b.t.Fatalf("the probe %s ended %s", name, Describe(r))
	}
	return ParseFindings(b.t, string(r.Stdout))
}

// ParseFindings reads a probe's output, which must be complete.
func ParseFindings(t testing.TB, text string) Findings {
	t.Helper()
	f := Findings{t: t, all: map[string]string{}, Text: text}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if lines[len(lines)-1] != "end" {
		t.Fatalf("the probe did not come to its end:\n%s", text)
	}
	for _, l := range lines {
		if what, result, ok := strings.Cut(l, ": "); ok {
			f.all[what] = result
		}
	}
	return f
}

// Get is one result; a probe that does not have it is a failure.
func (f Findings) Get(what string) string {
	f.t.Helper()
	r, ok := f.all[what]
	if !ok {
		f.t.Errorf("the probe did not try %q:\n%s", what, f.Text)
	}
	return r
}

// Want fails unless the result is one of allowed.
func (f Findings) Want(what string, allowed ...string) {
	f.t.Helper()
	if r := f.Get(what); !slices.Contains(allowed, r) {
		f.t.Errorf("%s: %s, want %s", what, r, strings.Join(allowed, " or "))
	}
}

// All are the results whose names begin with prefix.
func (f Findings) All(prefix string) map[string]string {
	out := map[string]string{}
	for what, r := range f.all {
		if strings.HasPrefix(what, prefix) {
			out[what] = r
		}
	}
	return out
}

// Canaries are secrets of the host that must never appear where a sandbox can
// see them.
type Canaries struct {
	t testing.TB
	// File on the host that only root can read.
	File string
	// Socket of the host, as a path and as an address on the host's loopback.
	Socket, Port string

	texts []string
	calls atomic.Int64
}

// NewCanaries plants canaries in a file, in this process's environment, in a
// socket and in a port.
func NewCanaries(t testing.TB) *Canaries {
	t.Helper()
	c := &Canaries{t: t}
	dir, err := os.MkdirTemp("", "canary")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.File = filepath.Join(dir, "secret")
	if err := os.WriteFile(c.File, []byte(c.text()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.texts = append(c.texts, envCanaries()...)
	c.Socket = c.listen("unix", filepath.Join(dir, "sock"))
	c.Port = c.listen("tcp", "127.0.0.1:0")
	if err := os.Chmod(c.Socket, 0o777); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Canaries) text() string {
	s := ids.Hex(16)
	c.texts = append(c.texts, s)
	return s
}

// envCanaries are in the environment of the test process from the first test
// that asks for them on, and so in that of every program that inherits it.
var envCanaries = sync.OnceValue(func() []string {
	var texts []string
	for _, name := range []string{"CANARY_ENV", "SIGNING_KEY"} {
		texts = append(texts, ids.Hex(16))
		_ = os.Setenv(name, texts[len(texts)-1]) // such a name can be set
	}
	return texts
})

func (c *Canaries) listen(network, addr string) string {
	c.t.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = l.Close() })
	answer := c.text()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.calls.Add(1)
			_, _ = conn.Write([]byte(answer))
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// Check fails if a canary appears in one of texts or a socket was called.
func (c *Canaries) Check(texts ...string) {
	c.t.Helper()
	for _, text := range texts {
		for _, secret := range c.texts {
			if i := strings.Index(text, secret); i >= 0 {
				c.t.Errorf("a canary is in the output: …%q", text[max(0, i-80):i+len(secret)])
			}
		}
	}
	if n := c.calls.Load(); n > 0 {
		c.t.Errorf("%d connections to the host's sockets", n)
	}
}
