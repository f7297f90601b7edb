package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
	"agentbox/internal/wire"
)

// world is the engine of this test process and the sandbox that tests share.
var world struct {
	mu     sync.Mutex
	engine *local.Engine
	shared *local.Sandbox
}

// Box is a running sandbox. Its methods fail the test when agentbox itself
// fails; a command that fails is a result. It is reached through the Go API, or
// through the REST API if it is remote: then Sandbox is nil.
type Box struct {
	*local.Sandbox
	t      testing.TB
	remote *restBox
}

// Engine is the one engine of this test process. [CloseEngine] ends it.
func Engine(t testing.TB) *local.Engine {
	t.Helper()
	dir := SharedDir(t)
	world.mu.Lock()
	defer world.mu.Unlock()
	e, err := engine(dir)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func engine(dir string) (*local.Engine, error) {
	if world.engine != nil {
		return world.engine, nil
	}
	images, err := wire.Images(dir)
	if err != nil {
		return nil, err
	}
	warn := func(err error) { fmt.Fprintln(os.Stderr, "engine:", err) }
	world.engine, err = local.Open(context.Background(), dir, images, wire.Backend(dir), warn)
	return world.engine, err
}

// CloseEngine destroys what tests left and ends the engine, if there is one.
func CloseEngine() error {
	world.mu.Lock()
	defer world.mu.Unlock()
	if world.engine == nil {
		return nil
	}
	err := world.engine.Close()
	world.engine, world.shared = nil, nil
	return err
}

// NewBox makes a sandbox for one test. The zero value of a limit is its
// default.
func NewBox(t testing.TB, limits sandbox.Limits) *Box {
	t.Helper()
	return newBoxOf(t, Image, limits)
}

// NewBoxOf is NewBox with default limits, of an image or alias.
func NewBoxOf(t testing.TB, name string) *Box {
	t.Helper()
	return newBoxOf(t, name, sandbox.Limits{})
}

func newBoxOf(t testing.TB, image string, limits sandbox.Limits) *Box {
	t.Helper()
	sb, err := createIn(Engine(t), image, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sb.Destroy(ctx); err != nil {
			t.Errorf("destroy the sandbox: %v", err)
		}
	})
	return &Box{Sandbox: sb, t: t}
}

func create(e *local.Engine, limits sandbox.Limits) (*local.Sandbox, error) {
	return createIn(e, Image, limits)
}

func createIn(e *local.Engine, image string, limits sandbox.Limits) (*local.Sandbox, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req := local.Request{Image: image, Limits: limits.WithDefaults()}
	req.ApplyAlias()
	return e.Create(ctx, req)
}

// Shared is a sandbox with default limits that the tests of this process share:
// they leave it as they found it.
func Shared(t testing.TB) *Box {
	t.Helper()
	e := Engine(t)
	world.mu.Lock()
	defer world.mu.Unlock()
	if world.shared == nil {
		sb, err := create(e, sandbox.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		world.shared = sb
	}
	return &Box{Sandbox: world.shared, t: t}
}

// runTrue runs `true` in the shared sandbox, or on the host as long as there is
// none.
func runTrue() {
	world.mu.Lock()
	sb := world.shared
	world.mu.Unlock()
	if sb == nil {
		_ = exec.Command("/bin/true").Run() // only its time matters
		return
	}
	_, _ = (&Box{Sandbox: sb}).Try(sandbox.Command{Argv: []string{"true"}}, nil, client.Output{})
}

// UID is the sandbox's id at both doors.
func (b *Box) UID() string {
	if b.remote != nil {
		return b.remote.id
	}
	return b.ID
}

// With is the same sandbox for a subtest.
func (b *Box) With(t testing.TB) *Box { return &Box{b.Sandbox, t, b.remote} }

// Try runs a command to its end and returns what agentbox says. Without a
// timeout of its own it has one of two minutes. An empty out captures the
// output in the result.
func (b *Box) Try(cmd sandbox.Command, stdin io.Reader, out client.Output) (*sandbox.Result, error) {
	if cmd.Timeout == 0 {
		cmd.Timeout = 2 * time.Minute
	}
	if b.remote != nil {
		return b.remote.try(cmd, stdin, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmd.Timeout+time.Minute)
	defer cancel()
	cmd.Stdin = stdin != nil
	p, err := b.Start(ctx, cmd, out)
	if err != nil {
		return nil, err
	}
	if stdin != nil {
		go func() {
			in := p.Stdin()
			_, _ = io.Copy(in, stdin) // a command that ended takes no more
			_ = in.Close()
		}()
	}
	return b.Wait(ctx, p)
}

// Exec runs a command to its end.
func (b *Box) Exec(cmd sandbox.Command, stdin io.Reader) *sandbox.Result {
	b.t.Helper()
	res, err := b.Try(cmd, stdin, client.Output{})
	if err != nil {
		b.t.Fatalf("%q: %v", cmd.Shell+strings.Join(cmd.Argv, " "), err)
	}
	return res
}

// Stream runs a command whose output is read as it comes, and returns it as
// the captured output of the result.
func (b *Box) Stream(cmd sandbox.Command, stdin io.Reader) *sandbox.Result {
	b.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.MaxOutput = -1
	res, err := b.Try(cmd, stdin, client.Output{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		b.t.Fatalf("%q: %v", cmd.Shell+strings.Join(cmd.Argv, " "), err)
	}
	res.Stdout, res.Stderr = stdout.Bytes(), stderr.Bytes()
	return res
}

// Sh runs a shell line to its end.
func (b *Box) Sh(line string) *sandbox.Result {
	b.t.Helper()
	return b.Exec(sandbox.Command{Shell: line}, nil)
}

// Want fails the test unless the shell line exits 0 with this output.
func (b *Box) Want(stdout, line string) {
	b.t.Helper()
	WantExit(b.t, b.Sh(line), 0, stdout, "")
}

// Count returns how many processes in the sandbox have text in their command
// line. text must not be empty; the search does not find itself.
func (b *Box) Count(text string) int {
	b.t.Helper()
	pattern := "[" + text[:1] + "]" + text[1:]
	res := b.Sh("grep -la '" + pattern + "' /proc/[0-9]*/cmdline 2>/dev/null | wc -l")
	n, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if err != nil {
		b.t.Fatalf("count %s: %v: %+v", text, err, res)
	}
	return n
}

// WaitCount waits until the sandbox has n processes with text in their command
// line.
func (b *Box) WaitCount(text string, n int, limit time.Duration) {
	b.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		got := b.Count(text)
		if got == n {
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("%d processes %q after %v, want %d", got, text, limit, n)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// WantExit fails the test unless the command exited with code and wrote this.
func WantExit(t testing.TB, res *sandbox.Result, code int, stdout, stderr string) {
	t.Helper()
	if res.Outcome != sandbox.Exited || res.ExitCode != code || string(res.Stdout) != stdout || string(res.Stderr) != stderr {
		t.Errorf("got %s; want exited %d, stdout %.200q, stderr %.200q", Describe(res), code, stdout, stderr)
	}
}

// Describe is a result in one line, for failures.
func Describe(r *sandbox.Result) string {
	return fmt.Sprintf("%v %d (signal %d, %q) after %v, stdout %.300q (%d bytes), stderr %.300q (%d bytes)",
		r.Outcome, r.ExitCode, r.Signal, r.Reason, r.Duration.Round(time.Millisecond), r.Stdout, len(r.Stdout), r.Stderr, len(r.Stderr))
}

// tarOf is an archive with one small file.
func tarOf(t testing.TB, name string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	const text = "text\n"
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// Within fails the test when what began then took longer than limit, plus the
// time that a busy machine may need.
func Within(t testing.TB, began time.Time, limit time.Duration) {
	t.Helper()
	if took := time.Since(began); took > limit+Slack() {
		t.Errorf("took %v, want at most %v + %v", took.Round(time.Millisecond), limit, Slack())
	}
}
