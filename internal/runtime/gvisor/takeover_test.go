package gvisor_test

import (
	_ "embed"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

//go:embed testdata/takeover.py
var takeover string

// attack is the command that tries one of the attacks of testdata/takeover.py.
func attack(name, user string) sandbox.Command {
	return sandbox.Command{Argv: []string{"python3", "-c", takeover, name}, User: user, Timeout: time.Minute}
}

// attacked runs an attack to its end and returns what it says came of it.
func (b *box) attacked(name, user string) map[string]string {
	b.t.Helper()
	r, err := b.s.Run(b.ctx, attack(name, user), nil)
	b.ok(err)
	return b.findings(string(r.Stdout), string(r.Stderr))
}

func (b *box) findings(stdout, stderr string) map[string]string {
	b.t.Helper()
	if !strings.HasSuffix(stdout, "end: OK\n") {
		b.t.Fatalf("the attack did not come to its end: %s%s", stdout, stderr)
	}
	found := map[string]string{}
	for line := range strings.Lines(stdout) {
		what, result, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		found[what] = result
	}
	return found
}

// reopened lets a new owner take the sandbox over, as after a crash.
func (b *box) reopened() {
	b.t.Helper()
	b.s.Close()
	b.ok(b.rt.Close())
	b.open()
	b.connect()
}

// The socket for handovers is guest root's, and takes only what comes from the host.
func TestTakeOverTakesNoForeignStream(t *testing.T) {
	b := newBox(t)
	if got := b.attacked("connect", "1000")["connect"]; got != "EACCES" {
		t.Errorf("an ordinary user's connection: %s", got)
	}
	if got := b.attacked("connect", "root")["connect"]; got != "OK" {
		t.Errorf("guest root's connection, which shows that the socket is there: %s", got)
	}
	found := b.attacked("hand", "root")
	for _, what := range []string{"own socket", "pipe", "file", "two sockets", "nothing"} {
		if got := found[what]; !strings.Contains(got, "refused") {
			t.Errorf("%s: the agent said %s", what, got)
		}
	}
	// Neither a challenge nor anything else is sent on a stranger's stream.
	if got := found["heard"]; got != "b''" {
		t.Errorf("on its own socket guest root heard %s", got)
	}
	b.reopened()
	b.sh("true")
}

// Guest root reaches neither the agent's memory nor its stream, even with the
// restrictions on tracing switched off; ptrace works elsewhere.
func TestTakeOverAgentCantBeTraced(t *testing.T) {
	b := newBox(t)
	for _, prepare := range []func(){func() {}, b.reopened, b.suspendAndResume} {
		prepare()
		found := b.attacked("reach", "root")
		for _, what := range []string{"ptrace", "memory", "pidfd_getfd"} {
			if got := found["agent "+what]; got != "EPERM" && got != "EACCES" {
				t.Errorf("%s of the agent: %s", what, got)
			}
			if got := found["child "+what]; got != "OK" {
				t.Errorf("%s of a child: %s: the attack itself does not work", what, got)
			}
		}
		if _, err := b.s.Ping(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// besieged starts an attack that goes on until the host has done what it is to
// do, and returns what came of it.
func (b *box) besieged(name, user string, meanwhile func()) map[string]string {
	b.t.Helper()
	cmd := attack(name, user)
	cmd.Background, cmd.OnDisconnect = true, sandbox.Keep
	_, err := b.s.Start(b.ctx, name, cmd, client.Output{})
	b.ok(err)
	b.awaitOutput()
	meanwhile()
	b.sh("touch /tmp/stop")
	p, err := b.s.Attach(b.ctx, name, 0, 0, client.Output{})
	b.ok(err)
	r, err := p.Wait(b.ctx)
	b.ok(err)
	b.sh("rm /tmp/stop")
	found := b.findings(string(r.Stdout), string(r.Stderr))
	b.t.Logf("%s: %v", user, found)
	if n, _ := strconv.Atoi(found["seen"]); n == 0 {
		b.t.Error("the attacker never saw what it was after")
	}
	return found
}

// awaitOutput waits until the first command has said something.
func (b *box) awaitOutput() {
	b.t.Helper()
	for said := int64(0); said == 0; time.Sleep(20 * time.Millisecond) { // until b.ctx ends
		all, err := b.s.Execs(b.ctx)
		b.ok(err)
		said = all[0].StdoutEnd
	}
}

// Nor does it reach the helper that carries a new stream in, in its short life.
func TestTakeOverHelperCantBeTraced(t *testing.T) {
	b := newBox(t)
	found := b.besieged("helper", "root", func() {
		for range 20 {
			b.connect()
		}
	})
	for what, n := range found {
		if strings.HasPrefix(what, "helper ") && strings.HasSuffix(what, " OK") {
			t.Errorf("%s: %s times", what, n)
		}
	}
}

// Nor the agent's children, before they are programs of their own.
func TestTakeOverChildrenHaveNoStream(t *testing.T) {
	for _, user := range []string{"root", "1000"} {
		b := newBox(t)
		found := b.besieged("children", user, func() {
			for range 100 {
				_, err := b.s.Run(b.ctx, sandbox.Command{Argv: []string{"true"}, User: user}, nil)
				b.ok(err)
			}
		})
		if found["stolen"] != "0" {
			t.Errorf("as %s the attacker got %s sockets", user, found["stolen"])
		}
	}
}

// What the sandbox's files have in the agent's place is never executed by the host.
func TestTakeOverHelperIsTheHosts(t *testing.T) {
	b := newBox(t)
	b.sh(`for f in /.agentbox/guest $(command -v sh) /proc/1/exe; do
	rm -f $f; printf '#!/usr/bin/python3\nopen("/tmp/pwned", "w")\n' >$f && chmod 755 $f
done; true`)
	for range 3 {
		b.reopened()
	}
	r, err := b.s.Run(b.ctx, sandbox.Command{Argv: []string{"python3", "-c", `import os; print(open("/.agentbox/guest").read(2), os.path.exists("/tmp/pwned"))`}, User: "root"}, nil)
	b.ok(err)
	if got := string(r.Stdout); got != "#! False\n" {
		t.Errorf("the agent's file and what came of it: %q, want the replaced one, not run; %s", got, r.Stderr)
	}
}

// Connections that say nothing hold up a take-over for a while, not for ever.
func TestTakeOverAfterFlood(t *testing.T) {
	b := newBox(t)
	cmd := attack("flood", "root")
	cmd.Background, cmd.OnDisconnect, cmd.Timeout = true, sandbox.Keep, -1
	_, err := b.s.Start(b.ctx, "flood", cmd, client.Output{})
	b.ok(err)
	b.awaitOutput()
	b.reopened()
	b.sh("true")
}

// An agent that does not listen yet is waited for: an owner that was killed at a
// sandbox's start may be back before the agent has come that far.
func TestTakeOverWaitsForTheAgent(t *testing.T) {
	b := newBox(t)
	b.sh("mv /run/.agentbox/ctl /run/.agentbox/later")
	// The agent seems to listen once the helper has been there for a while.
	_, err := b.s.Start(b.ctx, "listen", sandbox.Command{
		Shell: `until grep -qs 'att[a]ch' /proc/[0-9]*/cmdline; do sleep 0.01; done; sleep 0.3; mv /run/.agentbox/later /run/.agentbox/ctl`,
		User:  "root", Background: true, OnDisconnect: sandbox.Keep, Timeout: time.Minute,
	}, client.Output{})
	b.ok(err)
	b.reopened()
	b.sh("true")
}

// An agent that never listens is no reason to wait for ever, and who attaches is told.
func TestTakeOverSaysWhatFailed(t *testing.T) {
	b := newBox(t)
	b.sh("rm /run/.agentbox/ctl")
	b.s.Close()
	if _, err := b.rt.Attach(b.ctx, b.spec.ID); err == nil || !strings.Contains(err.Error(), "reach the first process: no such file") {
		t.Errorf("attached with %v", err)
	}
}

// The agent ends a session at once when it is asked to, whatever still reads from it,
// and is there for the next.
func TestQuiesceEndsSessions(t *testing.T) {
	b := newBox(t)
	for i := range 10 {
		_, err := b.s.Start(b.ctx, strconv.Itoa(i), sandbox.Command{Shell: "read x", Stdin: true, OnDisconnect: sandbox.Keep, Timeout: -1}, client.Output{})
		b.ok(err)
		time.Sleep(200 * time.Millisecond) // all is idle
		b.ok(b.s.Quiesce(b.ctx))
		b.connect()
	}
}

// A back end that is closed leaves its sandboxes running, and has none of their files open.
func TestCloseKeepsNoFile(t *testing.T) {
	b := newBox(t)
	open := func() (files []string) {
		all, err := filepath.Glob("/proc/self/fd/*")
		b.ok(err)
		for _, fd := range all {
			if to, err := os.Readlink(fd); err == nil && strings.Contains(to, b.spec.ID) {
				files = append(files, to)
			}
		}
		return files
	}
	reader, _ := runtime.As[runtime.OOMReader](b.rt)
	if n, err := reader.OOMKills(b.ctx, b.spec.ID); n != 0 || err != nil {
		t.Errorf("%d kills, %v", n, err)
	}
	b.s.Close()
	b.ok(b.rt.Close())
	if files := open(); len(files) != 0 {
		t.Errorf("open are %q", files)
	}
	b.open()
	b.connect()
	b.sh("true")
}
