package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rpc"
)

// TestExec: numbers and texts of results.
func TestExec(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	for line, want := range map[string]*sandboxv1.ExecResponse{
		"echo hi; echo e >&2; exit 3":          {ExitCode: 3, Stdout: "hi\n", Stderr: "e\n"},
		"kill -9 $$":                           {ExitCode: -9},
		"pwd":                                  {Stdout: "/workspace\n"},
		"sleep 60 & echo bg":                   {Stdout: "bg\n"},
		"cat":                                  {},
		"no-such-program-is-there 2>/dev/null": {ExitCode: 127},
	} {
		if got := w.exec(c, id, line); got.GetExitCode() != want.GetExitCode() || got.GetStdout() != want.GetStdout() || got.GetStderr() != want.GetStderr() || got.GetTimedOut() {
			t.Errorf("%s gives %v, want %v", line, got, want)
		}
	}
	got, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: "echo a; echo -n b >&2; sleep 60", Timeout: 1})
	if err != nil || got.GetExitCode() != -1 || !got.GetTimedOut() || got.GetStdout() != "a\n" || got.GetStderr() != "b\nCommand timed out" {
		t.Errorf("a time-out gives %v, %v", got, err)
	}
	got, err = c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: "none", Command: "true"})
	if err != nil || got.GetExitCode() != -1 || got.GetStdout() != "" || got.GetStderr() != "Session not found" || got.GetTimedOut() {
		t.Errorf("in no session: %v, %v", got, err)
	}
	for name, q := range map[string]*sandboxv1.ExecRequest{
		"negative timeout": {SessionId: id, Command: "true", Timeout: -1},
		"a year":           {SessionId: id, Command: "true", Timeout: 365 * 24 * 3600},
		"no command":       {SessionId: id},
		"NUL":              {SessionId: id, Command: "echo \x00"},
	} {
		if _, err := c.Exec(t.Context(), q); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.boxes.Stop(t.Context(), sandbox.Caller{Owner: "acme"}, id); err != nil {
		t.Fatal(err)
	}
	if got := w.exec(c, id, "true"); got.GetExitCode() != -1 || got.GetStderr() != "Sandbox is not running" {
		t.Errorf("in a stopped one: %v", got)
	}
	if got, err := c.GetSession(t.Context(), &sandboxv1.GetSessionRequest{SessionId: id}); err != nil || got.GetSession().GetStatus() != "exited" {
		t.Errorf("a stopped one is %v, %v", got, err)
	}
}

// TestShortMaximum: a command that names no time has no more than the operator allows.
func TestShortMaximum(t *testing.T) {
	w := start(t, func(_ *server.Options, p *rpc.Parts) { p.Session.MaxExec = time.Second })
	c := w.client(w.acme)
	if got := w.exec(c, w.session(c).GetSessionId(), "sleep 20"); !got.GetTimedOut() {
		t.Errorf("it gives %v", got)
	}
}

type execStream = sandboxv1connect.SandboxServiceExecStreamClientStream

// stream runs a command and returns its messages up to the end.
func (w *world) stream(s execStream, err error) (all []*sandboxv1.ExecStreamResponse) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	defer s.Close()
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, m)
	}
}

func outputOf(all []*sandboxv1.ExecStreamResponse, kind string) (data string) {
	for _, m := range all {
		if m.GetType() == kind {
			data += m.GetData()
		}
	}
	return data
}

// TestExecStream: by each protocol output comes while the command runs, whole
// characters only, and then its end.
func TestExecStream(t *testing.T) {
	w := start(t)
	for name := range protocols {
		t.Run(name, func(t *testing.T) {
			c := w.by(name, w.acme)
			id := w.session(c).GetSessionId()
			s, err := c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo first; cat fifo 2>/dev/null || sleep 60"})
			if err != nil {
				t.Fatal(err)
			}
			if m, err := s.Receive(); err != nil || m.GetType() != "stdout" || m.GetData() != "first\n" || m.ExitCode != nil {
				t.Errorf("first comes %v, %v", m, err)
			}
			s.Close()
			all := w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo a; echo b >&2; exit 4"}))
			last := all[len(all)-1]
			if outputOf(all, "stdout") != "a\n" || outputOf(all, "stderr") != "b\n" || last.GetType() != "exit" || last.GetExitCode() != 4 || last.GetData() != "" {
				t.Errorf("the messages are %v", all)
			}
			all = w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "exit 0"}))
			if len(all) != 1 || all[0].ExitCode == nil {
				t.Errorf("exit 0 is %v", all)
			}
			all = w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: "none", Command: "true"}))
			if len(all) != 1 || all[0].GetType() != "error" || all[0].GetData() != "Session not found" {
				t.Errorf("in no session: %v", all)
			}
			all = w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "sleep 60", Timeout: 1}))
			if len(all) != 1 || all[0].GetType() != "error" || all[0].GetData() != "Command timed out" {
				t.Errorf("a time-out is %v", all)
			}
		})
	}
}

// TestStreamSplitsNoCharacter: whatever pieces the output comes in.
func TestStreamSplitsNoCharacter(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	text := strings.Repeat("aäö€😀", 40_000)
	if a, err := c.WriteFile(t.Context(), &sandboxv1.WriteFileRequest{SessionId: id, Path: "text", Content: text}); err != nil || !a.GetSuccess() {
		t.Fatalf("%v %v", a, err)
	}
	all := w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "cat text"}))
	if len(all) < 3 || outputOf(all, "stdout") != text {
		t.Errorf("%d messages do not add up to the text", len(all))
	}
	for _, m := range all {
		if strings.ContainsRune(m.GetData(), utf8.RuneError) {
			t.Errorf("a character was split: %.40q", m.GetData())
		}
	}
}

// ended waits until no command runs in a session.
func (w *world) ended(owner, id string) {
	w.t.Helper()
	for begin := time.Now(); ; {
		all, err := w.boxes.Execs(w.t.Context(), sandbox.Caller{Owner: owner}, id)
		if err != nil {
			w.t.Fatal(err)
		}
		running := 0
		for _, e := range all {
			if e.Result.Outcome == sandbox.Running {
				running++
			}
		}
		if running == 0 {
			return
		}
		if time.Since(begin) > 20*time.Second {
			w.t.Fatalf("%d commands still run", running)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestClientGoesAway: a stream's command goes with its client; one that is waited for
// runs on; neither holds up a server that stops, which kills none.
func TestClientGoesAway(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.ExecStream(ctx, &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo up; sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	cancel()
	w.ended("acme", id)

	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err = c.Exec(ctx, &sandboxv1.ExecRequest{SessionId: id, Command: "sleep 1; echo done >f"}); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("a call that is over: %v", err)
	}
	w.ended("acme", id)
	if got := w.exec(c, id, "cat f").GetStdout(); got != "done\n" {
		t.Errorf("the command did not run on: %q", got)
	}

	if s, err = c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo up; sleep 600"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if _, err := s.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the stream of a server that stops: %v", err)
	}
	all, err := w.boxes.Execs(t.Context(), sandbox.Caller{Owner: "acme"}, id)
	if err != nil || len(all) == 0 || all[len(all)-1].Result.Outcome != sandbox.Running {
		t.Errorf("its command was ended: %+v, %v", all, err)
	}
}

// TestX23DestroyEndsCalls: what runs in a session that goes ends at once with a reason.
func TestX23DestroyEndsCalls(t *testing.T) {
	w := start(t)
	c := w.client(w.acme)
	id := w.session(c).GetSessionId()
	s, err := c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "echo up; sleep 600"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err != nil {
		t.Fatal(err)
	}
	got := make(chan *sandboxv1.ExecResponse)
	go func() {
		a, err := c.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: id, Command: "echo >waits; sleep 600", Timeout: 600})
		if err != nil {
			t.Error(err)
		}
		got <- a
	}()
	for w.exec(c, id, "cat waits").GetExitCode() != 0 {
		time.Sleep(5 * time.Millisecond)
	}
	if a, err := c.DestroySession(t.Context(), &sandboxv1.DestroySessionRequest{SessionId: id}); err != nil || !a.GetSuccess() {
		t.Fatalf("%v %v", a, err)
	}
	if m, err := s.Receive(); err != nil || m.GetType() != "error" || m.GetData() == "" {
		t.Errorf("the stream ends with %v, %v", m, err)
	}
	if a := <-got; a.GetExitCode() != -1 || a.GetStderr() == "" || a.GetTimedOut() {
		t.Errorf("the call ends with %v", a)
	}
}

// TestLongStream: what bounds the sending of a request, or of one part of an answer, does
// not bound how long an answer pauses, by any protocol.
func TestLongStream(t *testing.T) {
	const timeout = time.Second
	w := start(t, func(o *server.Options, _ *rpc.Parts) {
		o.BodyTimeout, o.HeaderTimeout, o.WriteTimeout = timeout, timeout, timeout
	})
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			w := *w
			w.t = t
			c := w.by(protocol, w.acme)
			id := w.session(c).GetSessionId()
			all := w.stream(c.ExecStream(t.Context(), &sandboxv1.ExecStreamRequest{SessionId: id, Command: "sleep 2; echo first; sleep 2; echo second"}))
			if outputOf(all, "stdout") != "first\nsecond\n" {
				t.Errorf("the messages are %v", all)
			}
			if got := w.exec(c, id, "sleep 2; echo late"); got.GetStdout() != "late\n" {
				t.Errorf("answered %v", got)
			}
		})
	}
}
