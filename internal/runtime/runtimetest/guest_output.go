package runtimetest

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

var outputCases = []guestCase{
	{"Streamed", testStreamed},
	{"Capped", testCapped},
	{"SlowReader", testSlowReader},
	{"Ring", testRing},
	{"Offsets", testOffsets},
	{"Reattach", testReattach},
	{"TwoReaders", testTwoReaders},
	{"KeptResult", testKeptResult},
}

func itoa(n int) string { return strconv.Itoa(n) }

// testStreamed wants output while the command runs, both streams apart.
func testStreamed(g *guest) {
	var out, errs text
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: "echo a; echo b >&2; read x; echo c", Stdin: true}, client.Output{Stdout: &out, Stderr: &errs})
	g.ok(err)
	g.await(&out, "a\n")
	g.await(&errs, "b\n")
	_, err = p.Stdin().Write([]byte("\n"))
	g.ok(err)
	r := g.result(p)
	if out.String() != "a\nc\n" || errs.String() != "b\n" || r.Outcome != sandbox.Exited {
		g.Errorf("got %q, %q, %+v", out.String(), errs.String(), r)
	}
}

func testCapped(g *guest) {
	r := g.do(sandbox.Command{Shell: "yes | head -c 300000; yes e | head -c 10 >&2; exit 3", MaxOutput: 1000})
	if len(r.Stdout) != 1000 || !r.StdoutTruncated || len(r.Stderr) != 10 || r.StderrTruncated || r.ExitCode != 3 {
		g.Errorf("got %d bytes (%v), %d (%v), %d", len(r.Stdout), r.StdoutTruncated, len(r.Stderr), r.StderrTruncated, r.ExitCode)
	}
	r = g.do(sandbox.Command{Shell: "yes | head -c 1000", MaxOutput: 1000})
	if len(r.Stdout) != 1000 || r.StdoutTruncated {
		g.Errorf("as much as the cap: got %d bytes, truncated %v", len(r.Stdout), r.StdoutTruncated)
	}
	// One that never stops is ended by its time limit, not by its output.
	start := time.Now()
	r = g.do(sandbox.Command{Argv: []string{"yes"}, MaxOutput: 1000, Timeout: 500 * time.Millisecond})
	g.within(start, 500*time.Millisecond)
	if r.Outcome != sandbox.TimedOut || len(r.Stdout) != 1000 || !r.StdoutTruncated {
		g.Errorf("got %v, %d bytes, truncated %v", r.Outcome, len(r.Stdout), r.StdoutTruncated)
	}
}

// slowWriter takes nothing until it is opened.
type slowWriter struct {
	open chan struct{}
	n    int64
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.open
	w.n += int64(len(p))
	return len(p), nil
}

// testSlowReader holds a stream back: the command waits, the session goes on,
// and nothing is lost.
func testSlowReader(g *guest) {
	g.connect(func(c *guestv1.GuestConfig) { c.RingSize = 256 << 10 })
	const size = 6 << 20
	w := &slowWriter{open: make(chan struct{})}
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: "yes 0123456 | head -c " + itoa(size), MaxOutput: -1}, client.Output{Stdout: w})
	g.ok(err)
	for range 20 {
		if _, err := g.s.Ping(g.ctx); err != nil {
			g.Fatal(err)
		}
	}
	if i, err := g.s.WaitExec(g.ctx, p.ID(), 300*time.Millisecond, false); err != nil || i.Result.Outcome != sandbox.Running {
		g.Errorf("it did not wait for its reader: %v, %v", i.Result.Outcome, err)
	}
	close(w.open)
	if r := g.result(p); w.n != size || r.StdoutTruncated || r.ExitCode != 0 {
		g.Errorf("got %d bytes of %d, truncated %v", w.n, size, r.StdoutTruncated)
	}
}

// testRing lets a command without a reader write more than is kept.
func testRing(g *guest) {
	const ring, line = 64 << 10, 8
	g.connect(func(c *guestv1.GuestConfig) { c.RingSize = ring })
	p := g.background(`i=1000000; while [ $i -lt 1020000 ]; do echo $i; i=$((i+1)); done; sleep 1000`)
	var i client.ExecInfo
	g.eventually("all is written", func() bool {
		all, err := g.s.Execs(g.ctx)
		g.ok(err)
		for _, x := range all {
			if x.ID == p.ID() {
				i = x
			}
		}
		return i.StdoutEnd == 20_000*line
	})
	if kept := i.StdoutEnd - i.StdoutFirst; kept < ring/2 || kept > ring {
		g.Fatalf("it keeps bytes %d to %d", i.StdoutFirst, i.StdoutEnd)
	}
	var out text
	q, err := g.s.Attach(g.ctx, p.ID(), 0, 0, client.Output{Stdout: &out})
	g.ok(err)
	g.await(&out, "1019999\n")
	g.ok(q.Kill(g.ctx))
	r := g.result(q)
	if !r.StdoutTruncated || int64(len(out.String())) != i.StdoutEnd-i.StdoutFirst || !strings.HasSuffix(out.String(), "1019998\n1019999\n") {
		g.Errorf("got %d bytes, truncated %v; the ring has %d", len(out.String()), r.StdoutTruncated, i.StdoutEnd-i.StdoutFirst)
	}
}

func testOffsets(g *guest) {
	p := g.background("printf 0123456789; printf abc >&2")
	g.result(p)
	for _, c := range []struct {
		out, err   int64
		wout, werr string
	}{{0, 0, "0123456789", "abc"}, {4, 1, "456789", "bc"}, {10, 3, "", ""}} {
		q, err := g.s.Attach(g.ctx, p.ID(), c.out, c.err, client.Output{})
		g.ok(err)
		if r := g.result(q); string(r.Stdout) != c.wout || string(r.Stderr) != c.werr || r.ExitCode != 0 {
			g.Errorf("from %d and %d: got %q, %q", c.out, c.err, r.Stdout, r.Stderr)
		}
	}
	if _, err := g.s.Attach(g.ctx, "no-such-exec", 0, 0, client.Output{}); !errdefs.IsNotFound(err) {
		g.Errorf("attach to nothing: %v", err)
	}
	// Numbers that can't be do no harm.
	for _, off := range []int64{-5, 11, 1 << 62} {
		q, err := g.s.Attach(g.ctx, p.ID(), off, off, client.Output{})
		if err != nil {
			continue
		}
		if r, err := q.Wait(g.ctx); err == nil && len(r.Stdout) > 10 {
			g.Errorf("from %d: got %q", off, r.Stdout)
		}
	}
}

// counter prints a number each hundredth of a second.
const counter = `i=0; while [ $i -lt 100000 ]; do echo line $i; i=$((i+1)); sleep 0.01; done`

// consecutive checks the counter's output: no line is lost or there twice.
// The last one may be half.
func consecutive(s string) error {
	n := 0
	for line := range strings.Lines(s) {
		if strings.HasSuffix(line, "\n") && line != fmt.Sprintf("line %d\n", n) {
			return fmt.Errorf("line %d is %q", n, line)
		}
		n++
	}
	return nil
}

// testReattach follows a command through several hosts, one after another.
func testReattach(g *guest) {
	var out text
	c := sandbox.Command{Shell: counter, OnDisconnect: sandbox.Keep, MaxOutput: -1}
	p, err := g.s.Start(g.ctx, ids.Hex(4), c, client.Output{Stdout: &out})
	g.ok(err)
	for round := range 4 {
		g.await(&out, fmt.Sprintf("line %d\n", 5*(round+1)))
		if round%2 == 0 {
			g.connect() // the old session ends by the new one
		} else {
			g.ok(g.s.Close())
			g.connect()
		}
		_, _ = p.Wait(g.ctx) // its stream is gone; nothing more is written to out
		p, err = g.s.Attach(g.ctx, p.ID(), int64(len(out.String())), 0, client.Output{Stdout: &out})
		g.ok(err)
	}
	g.await(&out, "line 40\n")
	g.ok(p.Kill(g.ctx))
	if r := g.result(p); r.Outcome != sandbox.Canceled || r.StdoutTruncated {
		g.Errorf("got %v, truncated %v", r.Outcome, r.StdoutTruncated)
	}
	if err := consecutive(out.String()); err != nil {
		g.Error(err)
	}
}

func testTwoReaders(g *guest) {
	q := g.background("sleep 0.2; seq 20000")
	var outs [2]text
	var ps [2]*client.Process
	for i := range ps {
		var err error
		ps[i], err = g.s.Attach(g.ctx, q.ID(), 0, 0, client.Output{Stdout: &outs[i]})
		g.ok(err)
	}
	for i := range ps {
		g.result(ps[i])
		if got := lines(outs[i].String()); len(got) != 20_000 || got[19_999] != "20000" {
			g.Errorf("reader %d got %d lines", i, len(got))
		}
	}
}

// testKeptResult asks for a result when its client is long gone.
func testKeptResult(g *guest) {
	p, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Shell: "echo text; exit 4"}, client.Output{Stdout: io.Discard})
	g.ok(err)
	g.result(p)
	g.connect()
	i, err := g.s.WaitExec(g.ctx, p.ID(), 0, true)
	g.ok(err)
	if i.Result.Outcome != sandbox.Exited || i.Result.ExitCode != 4 || string(i.Result.Stdout) != "text\n" {
		g.Errorf("got %+v", i)
	}
	g.ok(g.s.RemoveExec(g.ctx, p.ID()))
	if _, err := g.s.WaitExec(g.ctx, p.ID(), 0, true); !errdefs.IsNotFound(err) {
		g.Errorf("a result that was removed: %v", err)
	}
}
