package runtimetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

var sessionCases = []guestCase{
	{"Hello", testHello},
	{"Ping", testPing},
	{"GuestOpensStream", testProbe},
	{"SilentStream", testSilentStream},
	{"OldEpoch", testOldEpoch},
	{"Quiesce", testQuiesce},
	{"ClosedMidway", testClosedMidway},
}

func testHello(g *guest) {
	p := g.background("sleep 1000")
	g.connect()
	r := g.s.Reply()
	if r.GetAgentBuild() == "" || r.GetVersion() == 0 || r.GetEpoch() != g.epoch {
		g.Errorf("the agent answers %v", r)
	}
	found := false
	for _, e := range r.GetExecs() {
		found = found || e.GetExecId() == p.ID()
	}
	if !found {
		g.Errorf("a command that runs is not in the answer: %v", r)
	}
	if got := g.sh("hostname"); got != ids.Short(g.id)+"\n" {
		g.Errorf("the host name is %q", got)
	}
}

func testPing(g *guest) {
	a, err := g.s.Ping(g.ctx)
	g.ok(err)
	b, err := g.s.Ping(g.ctx)
	g.ok(err)
	if b.Uptime <= a.Uptime || b.RoundTrip <= 0 {
		g.Errorf("got %+v after %+v", b, a)
	}
}

// testProbe has the guest open streams to its host.
func testProbe(g *guest) {
	big := bytes.Repeat([]byte(notUTF8), 4000)
	for _, payload := range [][]byte{[]byte("x"), big, {}} {
		got, err := g.s.ProbeStream(g.ctx, payload)
		if err != nil || !bytes.Equal(got, payload) {
			g.Errorf("%d bytes came back as %d: %v", len(payload), len(got), err)
		}
	}
	if err := firstOf(atOnce(20, func(i int) error {
		want := fmt.Append(nil, i)
		got, err := g.s.ProbeStream(g.ctx, want)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%q came back as %q", want, got)
		}
		return err
	})); err != nil {
		g.Error(err)
	}
}

// testSilentStream attaches hosts that never greet the agent, or talk nonsense:
// none of them disturbs the session that is.
func testSilentStream(g *guest) {
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x08nonsense", "\xff\xff\xff\xff"} {
		conn, err := g.rt.Attach(g.ctx, g.id)
		g.ok(err)
		g.ok(conn.SetDeadline(time.Now().Add(10 * time.Second)))
		_, _ = io.WriteString(conn, text) // the agent may hang up in the middle
		if text != "" {
			if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				g.Errorf("the agent does not hang up on %q: %d bytes, %v", text, n, err)
			}
		}
		conn.Close()
		if _, err := g.s.Ping(g.ctx); err != nil {
			g.Fatalf("the session before, after %q: %v", text, err)
		}
	}
}

func testOldEpoch(g *guest) {
	for _, epoch := range []uint64{g.epoch, g.epoch - 1, 0} {
		s, err := openSession(g.ctx, g.rt, g.id, epoch)
		if err == nil {
			s.Close()
			g.Errorf("epoch %d was taken after %d", epoch, g.epoch)
		}
	}
	if _, err := g.s.Ping(g.ctx); err != nil {
		g.Errorf("the session before: %v", err)
	}
}

func testQuiesce(g *guest) {
	p := g.background("sleep 1000")
	g.ok(g.s.Quiesce(g.ctx))
	if _, err := g.s.Ping(g.ctx); err == nil {
		g.Error("the session lives on")
	}
	g.connect()
	if i := g.job(p.ID()); i.Result.Outcome != sandbox.Running {
		g.Errorf("got %+v", i.Result)
	}
}

// testClosedMidway drops sessions while much is on its way.
func testClosedMidway(g *guest) {
	for range 5 {
		_, err := g.s.Start(g.ctx, ids.Hex(4), sandbox.Command{Argv: []string{"yes"}, MaxOutput: -1, OnDisconnect: sandbox.Keep}, client.Output{Stdout: io.Discard})
		g.ok(err)
		g.write("/tmp/midway", strings.Repeat("x", 4<<20), client.WriteOptions{})
		r, err := g.s.ReadFile(g.ctx, "/tmp/midway", client.ReadOptions{})
		g.ok(err)
		defer r.Close()
		g.connect()
		_, err = g.s.KillAll(g.ctx)
		g.ok(err)
	}
	if got := g.sh("echo fine"); got != "fine\n" {
		g.Errorf("got %q", got)
	}
}
