package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// TestSessions: what lasts from one command to the next. Functions and the like
// are tested with real shells, in internal/shell.
func TestSessions(t *testing.T) {
	w := start(t)
	box := w.box()
	made := read[rest.ShellSession](t, w.in("POST", box+"/sessions", `{"name":"dev"}`, 201))
	w.in("POST", box+"/sessions", `{"name":"dev.2"}`, 201)
	if made.Name != "dev" || made.ExecID == "" {
		t.Errorf("%+v", made)
	}
	for _, c := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{"x=5; cd /tmp; export Y=6", "", "", 0}, {"echo $x $Y; pwd", "5 6\n/tmp\n", "", 0}, {"printf 'no newline'", "no newline", "", 0},
		{"echo a >&2; false", "", "a\n", 1}, {"cat", "", "", 0}, {"nothing-like-it", "", "sh: nothing-like-it: not found\n", 127},
		{"echo '$ '; echo 42", "$ \n42\n", "", 0},
	} {
		r := w.execute(box, `{"session":"dev","command":"`+c.line+`"}`)
		if r.Stdout != c.stdout || r.Stderr != c.stderr || *r.ExitCode != c.code {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
	if r := w.execute(box, `{"session":"dev.2","command":"echo $x; pwd"}`); r.Stdout != "\n/workspace\n" {
		t.Errorf("the other session: %+v", r)
	}
	// The shell's offsets, before it takes the command.
	shell := read[rest.Exec](t, w.in("GET", box+"/execs/"+made.ExecID, "", 200))
	s := w.stream("POST", box+"/execute/stream", `{"session":"dev","command":"echo $x; sleep 0.1; echo b >&2; exit 3"}`, nil)
	out, last, _ := s.collect([2]int64{shell.Stdout.End, shell.Stderr.End})
	if end := read[rest.ExecEnd](t, last.data); out != [2]string{"5\n", "b\n"} || *end.ExitCode != 3 {
		t.Errorf("stream: %q %+v", out, last)
	}
	l := read[rest.List[rest.ShellSession]](t, w.in("GET", box+"/sessions", "", 200))
	if len(l.Items) != 1 || l.Items[0].Name != "dev.2" {
		t.Errorf("after exit: %+v", l)
	}
	w.in("DELETE", box+"/sessions/dev.2", "", 204)
	p := strings.TrimPrefix(box, "/api/v1")
	for _, c := range []struct {
		method, path, body string
		status             int
		code               server.Code
	}{
		{"DELETE", "/sessions/dev.2", "", 404, server.CodeNotFound},
		{"POST", "/execute", `{"session":"dev.2","command":"true"}`, 404, server.CodeNotFound},
		{"POST", "/execute", `{"session":"dev","command":["true"]}`, 400, server.CodeInvalidValue},
		{"POST", "/execute", `{"session":"dev","command":"true","stdin":"x"}`, 400, server.CodeInvalidValue},
		{"POST", "/sessions", `{"name":"../x"}`, 400, server.CodeInvalidValue},
		{"POST", "/sessions", `{"name":".x"}`, 400, server.CodeInvalidValue},
	} {
		w.problem(w.user, c.method, p+c.path, c.body, c.status, c.code)
	}
	missing := func(want string) {
		t.Helper()
		if got := w.problem(w.user, "POST", p+"/execute", `{"session":"dev.2","command":"true"}`, 404, server.CodeNotFound); got.Detail != want {
			t.Errorf("of a session that is not there: %q, want %q", got.Detail, want)
		}
	}
	missing("there is no session dev.2, nor any other")
	w.in("POST", box+"/sessions", `{"name":"dev"}`, 201)
	missing("there is no session dev.2; there are dev")
	for i := range 11 {
		w.in("POST", box+"/sessions", fmt.Sprintf(`{"name":"s%d"}`, i), 201)
	}
	missing("there is no session dev.2; there are dev, s0, s1, s2, s3, s4, s5, s6, s7, s8 and 2 more")
	w.problem(w.user, "POST", p+"/sessions", `{"name":"dev"}`, 409, server.CodeAlreadyExists)
}

// TestSessionTimeout: X3, the session goes on after a command that was killed.
func TestSessionTimeout(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	w.in("POST", box+"/sessions", `{"name":"s"}`, 201)
	r := w.execute(box, `{"session":"s","command":"echo begun; sleep 600","timeout":0.3}`)
	if *r.ExitCode != -1 || !r.TimedOut || r.Stdout != "begun\n" {
		t.Errorf("%+v", r)
	}
	if r := w.execute(box, `{"session":"s","command":"echo next"}`); r.Stdout != "next\n" {
		t.Errorf("%+v", r)
	}
	s := w.stream("POST", box+"/execute/stream", `{"session":"s","command":"echo begun; sleep 600"}`, nil)
	s.next()
	s.close()
	if r := w.execute(box, `{"session":"s","command":"echo after"}`); r.Stdout != "after\n" {
		t.Errorf("after a client that went away: %+v", r)
	}
}

// TestSessionFollowedAgain: the stream of a command in a session goes on without
// its client, who comes back and loses and doubles nothing.
func TestSessionFollowedAgain(t *testing.T) {
	w := start(t)
	box := w.box()
	w.in("POST", box+"/sessions", `{"name":"s"}`, 201)
	w.execute(box, `{"session":"s","command":"echo before; echo bad >&2"}`)
	s := w.stream("POST", box+"/execute/stream",
		`{"session":"s","command":"echo one; echo err >&2; until [ -f go ]; do sleep 0.01; done; echo two; x=9; false","detach":true}`, nil)
	id := read[struct {
		ExecID string `json:"exec_id"`
	}](t, s.next().data).ExecID
	var got [2]string
	var last event
	for got != [2]string{"one\n", "err\n"} {
		last = s.next()
		got[map[string]int{"stdout": 0, "stderr": 1}[last.name]] += read[chunk](t, last.data).Data
	}
	s.close()
	w.in("PUT", box+"/files?path=go", "x", 204)
	again := w.stream("GET", box+"/execs/"+id+"/output", "", map[string]string{"Accept": "text/event-stream", "Last-Event-ID": last.id})
	var at [2]int64
	if _, err := fmt.Sscanf(last.id, "%d-%d", &at[0], &at[1]); err != nil {
		t.Fatal(err)
	}
	out, end, _ := again.collect(at)
	if r := read[rest.ExecEnd](t, end.data); out != [2]string{"two\n", ""} || end.name != "exit" || *r.ExitCode != 1 {
		t.Errorf("%q %+v", out, end)
	}
	if r := w.execute(box, `{"session":"s","command":"echo $x"}`); r.Stdout != "9\n" {
		t.Errorf("the session afterwards: %+v", r)
	}
}
