package runtimetest

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// guest is a running sandbox with a session.
type guest struct {
	*env
	id    string
	epoch uint64
	s     *client.Session
	slack time.Duration // how late a deadline may be kept here
}

// guest makes a sandbox and connects to it.
func (e *env) guest() *guest {
	e.Helper()
	g := &guest{env: e, id: e.running()}
	g.connect()
	start := time.Now()
	if r := g.do(sandbox.Command{Argv: []string{"true"}}); r.ShellCode() != 0 {
		e.Fatalf("true ended with %+v", r)
	}
	g.slack = max(2*time.Second, 20*time.Since(start))
	return g
}

// connect begins a new session, as a restarted host does.
func (g *guest) connect(change ...func(*guestv1.GuestConfig)) {
	g.Helper()
	g.epoch++
	g.s = g.session(g.id, g.epoch, change...)
}

// run runs one test of those that share the sandbox.
func (g *guest) run(t *testing.T, f func(*guest)) {
	ctx, cancel := context.WithTimeout(t.Context(), testTime)
	defer cancel()
	own := *g.env
	own.T, own.ctx = t, ctx
	sub := *g
	sub.env = &own
	defer func() { g.epoch = sub.epoch }()
	sub.connect()
	f(&sub)
	if t.Failed() {
		return
	}
	// A test leaves no process behind but those it started in the background.
	sub.connect()
	if _, err := sub.s.KillAll(ctx); err != nil {
		t.Error(err)
	}
}

// do runs a command to its end.
func (g *guest) do(c sandbox.Command) *sandbox.Result {
	g.Helper()
	return g.feed(c, "")
}

// feed does so with input; without any, standard input is not there.
func (g *guest) feed(c sandbox.Command, input string) *sandbox.Result {
	g.Helper()
	var r *sandbox.Result
	var err error
	if input == "" {
		r, err = g.s.Run(g.ctx, c, nil)
	} else {
		r, err = g.s.Run(g.ctx, c, strings.NewReader(input))
	}
	g.ok(err)
	return r
}

// sh runs a shell command that must succeed and returns what it printed.
func (g *guest) sh(script string) string {
	g.Helper()
	r := g.do(sandbox.Command{Shell: script})
	if r.ShellCode() != 0 {
		g.Fatalf("%q ended as %v %d: %s%s", script, r.Outcome, r.ShellCode(), r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// background starts a command that no client follows.
func (g *guest) background(script string) *client.Process {
	g.Helper()
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: script, Background: true, Timeout: -1}, client.Output{})
	g.ok(err)
	return p
}

// result waits for a command.
func (g *guest) result(p *client.Process) *sandbox.Result {
	g.Helper()
	r, err := p.Wait(g.ctx)
	g.ok(err)
	return r
}

// within checks that a deadline was kept.
func (g *guest) within(start time.Time, limit time.Duration) {
	g.Helper()
	if took := time.Since(start); took > limit+g.slack {
		g.Errorf("took %v; the limit is %v, and %v are allowed on top", took, limit, g.slack)
	}
}

// text takes output that a test reads while it comes.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *text) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *text) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// await waits until the output has a text.
func (g *guest) await(o *text, want string) {
	g.Helper()
	for end := time.Now().Add(30 * time.Second); !strings.Contains(o.String(), want); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			g.Fatalf("no %q in %.2000q", want, o.String())
		}
	}
}

func lines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }
