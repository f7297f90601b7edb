package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

func TestRun(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	for _, c := range []struct {
		name           string
		cmd            sandbox.Command
		stdin          io.Reader
		outcome        sandbox.Outcome
		code           int
		stdout, stderr string
	}{
		{name: "output", cmd: argv("echo", "a", "b"), outcome: sandbox.Exited, stdout: "a\nb\n"},
		{name: "status", cmd: argv("fail", "7"), outcome: sandbox.Exited, code: 7, stderr: "failed\n"},
		{name: "not found", cmd: argv("nope"), outcome: sandbox.Exited, code: 127, stderr: "nope: command not found\n"},
		{name: "no input", cmd: argv("cat"), outcome: sandbox.Exited},
		{name: "input", cmd: argv("cat"), stdin: strings.NewReader("x\xff\x00y"), outcome: sandbox.Exited, stdout: "x\xff\x00y"},
		{name: "bytes", cmd: argv("echo", "\xc3\x28\xfe"), outcome: sandbox.Exited, stdout: "\xc3\x28\xfe\n"},
		{name: "time limit", cmd: sandbox.Command{Argv: []string{"hang"}, Timeout: 100 * time.Millisecond}, outcome: sandbox.TimedOut, stdout: "begun\n"},
		{name: "large", cmd: argv("echo", strings.Repeat("x", 200_000)), outcome: sandbox.Exited, stdout: strings.Repeat("x", 200_000) + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := s.Run(ctx(t), c.cmd, c.stdin)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != c.outcome || r.ExitCode != c.code || string(r.Stdout) != c.stdout || string(r.Stderr) != c.stderr {
				t.Errorf("got %v %d %.100q %.100q", r.Outcome, r.ExitCode, r.Stdout, r.Stderr)
			}
			if r.StdoutTruncated || r.StderrTruncated {
				t.Error("output is said to be truncated")
			}
		})
	}
}

func TestRunErrors(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	for name, c := range map[string]sandbox.Command{
		"nothing": {}, "both": {Argv: []string{"echo"}, Shell: "echo"}, "NUL": argv("echo", "a\x00b"),
		"environment": {Argv: []string{"echo"}, Env: []string{"novalue"}}, "time": {Argv: []string{"echo"}, Timeout: 1000 * time.Hour},
		"user": {Argv: []string{"echo"}, User: "\xff"}, "size": argv("echo", strings.Repeat("x", 5<<20)),
	} {
		if r, err := s.Run(ctx(t), c, nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, %v; want an invalid argument", name, r, err)
		}
	}
	if _, err := s.Run(ctx(t), argv("broken"), nil); !errdefs.IsInternal(err) {
		t.Errorf("the agent's own failure gives %v", err)
	}
	if _, err := s.Attach(ctx(t), "missing", 0, 0, client.Output{}); !errdefs.IsNotFound(err) {
		t.Errorf("attach to an unknown exec gives %v", err)
	}
}

// B034: the limit of output cuts the output and nothing else.
func TestB034OutputLimit(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	r, err := s.Run(ctx(t), sandbox.Command{Argv: []string{"spam", "5000000"}, MaxOutput: 123_456}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Outcome != sandbox.Exited || r.ExitCode != 3 || len(r.Stdout) != 123_456 || !r.StdoutTruncated || !r.StderrTruncated {
		t.Errorf("got %v %d, %d bytes, truncated %v %v", r.Outcome, r.ExitCode, len(r.Stdout), r.StdoutTruncated, r.StderrTruncated)
	}
}

// slowWriter is a client that takes its time.
type slowWriter struct{ bytes.Buffer }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return w.Buffer.Write(p)
}

func TestStreamLosesNothing(t *testing.T) {
	s := newGuest(t).connect(&guestv1.GuestConfig{RingSize: 64 << 10}, nil)
	var out, errs slowWriter
	p, err := s.Start(ctx(t), "spam", sandbox.Command{Argv: []string{"spam", "3000000"}, MaxOutput: -1}, client.Output{Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait(ctx(t))
	if err != nil || r.ExitCode != 3 || r.StdoutTruncated {
		t.Fatalf("got %+v, %v", r, err)
	}
	for _, b := range [][]byte{out.Bytes(), errs.Bytes()} {
		if len(b) != 3_000_000 || !bytes.Equal(b[999_000:1_000_000], []byte(strings.Repeat("0", 993)+"999000\n")) {
			t.Errorf("got %d bytes", len(b))
		}
	}
}

func TestInteractive(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	p, err := s.Start(ctx(t), "w", sandbox.Command{Argv: []string{"wait"}, Stdin: true}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.Stdin(), "hi\n"); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(ctx(t)); err != nil || string(r.Stdout) != "got hi\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := p.Stdin().Close(); err == nil {
		t.Error("input of a command that ended is taken")
	}
}

// TestDetachBehindInput: a command that takes no input does not hold up who leaves
// it.
func TestDetachBehindInput(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newGuest(t).connect(nil, nil)
	p, err := s.Start(ctx(t), "h", sandbox.Command{Argv: []string{"hang"}, Stdin: true, OnDisconnect: sandbox.Keep}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	wrote, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for {
			if _, err := p.Stdin().Write(make([]byte, 64<<10)); err != nil {
				return
			}
			wrote <- struct{}{}
		}
	}()
	for stuck := false; !stuck; { // if it only looks so, this tests nothing and fails nothing
		select {
		case <-wrote:
		case <-time.After(200 * time.Millisecond):
			stuck = true
		}
	}
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = p.Detach() // what is in its way is lost
	}()
	for {
		select {
		case <-wrote:
			continue
		case <-left:
		case <-time.After(30 * time.Second):
			t.Error("it waits for the command to take its input")
			p.Abandon()
			<-left
		}
		break
	}
	for {
		select {
		case <-wrote:
			continue
		case <-written:
		}
		break
	}
	if err := s.SignalExec(ctx(t), "h", 9, true); err != nil {
		t.Errorf("end the command: %v", err)
	}
}

func TestKill(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	for _, c := range []struct {
		name    string
		do      func(*client.Process) error
		outcome sandbox.Outcome
		signal  int
	}{
		{"kill", func(p *client.Process) error { return p.Kill(ctx(t)) }, sandbox.Canceled, 9},
		{"signal", func(p *client.Process) error { return p.Signal(ctx(t), 15) }, sandbox.Signaled, 15},
	} {
		p, err := s.Start(ctx(t), c.name, argv("hang"), client.Output{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.do(p); err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(ctx(t)); err != nil || r.Outcome != c.outcome || r.Signal != c.signal {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}

func TestRunCanceled(t *testing.T) {
	s := newGuest(t).connect(nil, nil)
	c, cancel := context.WithCancel(ctx(t))
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := s.Run(c, argv("hang"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	list, err := s.Execs(ctx(t))
	if err != nil || len(list) != 1 {
		t.Fatalf("got %v, %v", list, err)
	}
	if i, err := s.WaitExec(ctx(t), list[0].ID, 0, false); err != nil || i.Result.Outcome != sandbox.Canceled {
		t.Errorf("the command was left as %+v, %v", i.Result, err)
	}
}

func TestAttach(t *testing.T) {
	g := newGuest(t)
	s := g.connect(&guestv1.GuestConfig{RingSize: 100_000}, nil)
	p, err := s.Start(ctx(t), "bg", sandbox.Command{Argv: []string{"spam", "300000"}, Background: true}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Detach(); err != nil {
		t.Fatal(err)
	}
	i, err := s.WaitExec(ctx(t), "bg", 0, true)
	if err != nil || i.Result.ExitCode != 3 || i.StdoutEnd != 300_000 || i.StdoutFirst == 0 || !i.Result.StdoutTruncated {
		t.Fatalf("got %+v, %v", i, err)
	}
	if int64(len(i.Result.Stdout)) != i.StdoutEnd-i.StdoutFirst {
		t.Errorf("%d bytes of %d to %d", len(i.Result.Stdout), i.StdoutFirst, i.StdoutEnd)
	}
	s = g.connect(nil, nil) // another session
	p, err = s.Attach(ctx(t), "bg", 250_000, 299_990, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait(ctx(t))
	if err != nil || len(r.Stdout) != 50_000 || string(r.Stderr) != "000299000\n" {
		t.Errorf("got %d and %q, %v", len(r.Stdout), r.Stderr, err)
	}
	p, err = s.Attach(ctx(t), "bg", 0, 0, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := p.Wait(ctx(t)); err != nil || !r.StdoutTruncated {
		t.Errorf("a gap is not told: %+v, %v", r, err)
	}
	if err := s.RemoveExec(ctx(t), "bg"); err != nil {
		t.Error(err)
	}
	if _, err := s.WaitExec(ctx(t), "bg", 0, false); !errdefs.IsNotFound(err) {
		t.Errorf("a removed exec gives %v", err)
	}
}

func TestQueue(t *testing.T) {
	s := newGuest(t).connect(&guestv1.GuestConfig{MaxExecs: 1, MaxQueued: 2}, nil)
	first, err := s.Start(ctx(t), "first", argv("hang"), client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Start(ctx(t), "second", argv("echo", "2"), client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	third, err := s.Start(ctx(t), "third", sandbox.Command{Argv: []string{"echo"}, Timeout: 50 * time.Millisecond}, client.Output{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Start(ctx(t), "fourth", argv("echo"), client.Output{}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a full queue gives %v", err)
	}
	if _, err := s.Start(ctx(t), "first", argv("echo"), client.Output{}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("an id in use gives %v", err)
	}
	if r, err := third.Wait(ctx(t)); err != nil || r.Outcome != sandbox.TimedOut {
		t.Errorf("the wait does not count against the time limit: %+v, %v", r, err)
	}
	if h, err := s.Ping(ctx(t)); err != nil || h.Running != 1 || h.Queued != 1 {
		t.Errorf("got %+v, %v", h, err)
	}
	if err := first.Kill(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if r, err := second.Wait(ctx(t)); err != nil || string(r.Stdout) != "2\n" {
		t.Errorf("got %+v, %v", r, err)
	}
}
