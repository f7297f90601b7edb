package rest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// box makes a sandbox of the user and returns the path of it.
func (w *world) box() string {
	w.t.Helper()
	return "/api/v1/sandboxes/" + w.create(w.user, `{"user":"user","workdir":"/workspace"}`).ShortID
}

// in asks for something in a sandbox and wants a status.
func (w *world) in(method, path, body string, status int) string {
	w.t.Helper()
	resp, text := w.do(w.user, method, path, "application/json", body)
	if resp.StatusCode != status {
		w.t.Errorf("%s %s %.200s: %d %.500s, want %d", method, path, body, resp.StatusCode, text, status)
	}
	return text
}

func (w *world) execute(box, body string) rest.ExecResult {
	w.t.Helper()
	return read[rest.ExecResult](w.t, w.in("POST", box+"/execute", body, 200))
}

// TestExecute: Q4, Q5, Q6 and the numbers of results.
func TestExecute(t *testing.T) {
	w := start(t)
	box := w.box()
	for _, c := range []struct {
		body           string
		code           int
		stdout, stderr string
	}{
		{`{"command":"echo hi"}`, 0, "hi\n", ""},
		{`{"command":"echo a; echo b >&2; exit 3"}`, 3, "a\n", "b\n"},
		{`{"command":"echo a | tr a b"}`, 0, "b\n", ""},
		{`{"command":["echo","a  b"]}`, 0, "a  b\n", ""},
		{`{"command":"kill -TERM $$"}`, 143, "", ""},
		{`{"command":["nothing-like-it"]}`, 127, "", "nothing-like-it: not found\n"},
		{`{"command":"cat","stdin":"abc"}`, 0, "abc", ""},
		{`{"command":"cat","stdin_base64":"/w=="}`, 0, "\uFFFD", ""},
		{`{"command":"pwd; echo $A","workdir":"/tmp","env":{"A":"1 2"}}`, 0, "/tmp\n1 2\n", ""},
		{`{"command":"whoami","user":"root"}`, 0, "root\n", ""},
		{`{"command":"echo xxxxxxxx","max_output":5}`, 0, "xxxxx\n... [output truncated]", ""},
	} {
		r := w.execute(box, c.body)
		if r.ExitCode == nil || *r.ExitCode != c.code || r.Stdout != c.stdout || r.Stderr != c.stderr || len(r.ExecID) != 20 {
			t.Errorf("%s: %+v %v", c.body, r, deref(r.ExitCode))
		}
	}
	if r := w.execute(box, `{"command":"echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c"}`); r.Output != "a\nb\nc\n" {
		t.Errorf("merged: %q", r.Output)
	}
	r := w.execute(box, `{"command":"echo begun; sleep 60","timeout":0.2}`)
	if *r.ExitCode != -1 || !r.TimedOut || r.Stdout != "begun\n" {
		t.Errorf("time-out: %+v", r)
	}
	text := w.in("POST", box+"/execute?encoding=base64", `{"command":"cat","stdin_base64":"//4A"}`, 200)
	if got := read[rest.ExecResult](t, text); got.Stdout != "//4A" || got.Output != "//4A" {
		t.Errorf("base64: %s", text)
	}
}

func deref(p *int) any {
	if p == nil {
		return nil
	}
	return *p
}

func TestExecuteRefuses(t *testing.T) {
	w := start(t)
	box := strings.TrimPrefix(w.box(), "/api/v1")
	for _, c := range []struct {
		body   string
		status int
		code   server.Code
		field  string
	}{
		{`{"command":""}`, 400, server.CodeInvalidValue, "command"},
		{`{"command":[]}`, 400, server.CodeInvalidValue, "command"},
		{`{"command":"x","timeout":"25h"}`, 400, server.CodeInvalidValue, "timeout"},
		{`{"command":"x","timeout":0}`, 400, server.CodeInvalidValue, "timeout"},
		{`{"command":"x","max_output":"1g"}`, 400, server.CodeInvalidValue, "max_output"},
		{`{"command":"x","env":{"A=B":"c"}}`, 400, server.CodeInvalidValue, "env"},
		{`{"command":"x","stdin":"a","stdin_base64":"YQ=="}`, 400, server.CodeInvalidValue, "stdin_base64"},
		{`{"command":"a\u0000b"}`, 400, server.CodeInvalidValue, ""},
	} {
		if p := w.problem(w.user, "POST", box+"/execute", c.body, c.status, c.code); p.Field != c.field {
			t.Errorf("%s: field %q", c.body, p.Field)
		}
		w.problem(w.user, "POST", box+"/execute/stream", c.body, c.status, c.code)
	}
	for _, user := range []string{"nobody-like-this", "user:nobody-like-this"} {
		p := w.problem(w.user, "POST", box+"/execute", `{"command":"x","user":"`+user+`"}`, 400, server.CodeInvalidValue)
		if p.Field != "user" || !strings.Contains(p.Detail, strconv.Quote(user)) || !strings.Contains(p.Allowed, "/etc/passwd") {
			t.Errorf("user %s: %+v", user, p)
		}
	}
	for body, loc := range map[string]string{`{}`: "[body command]", `{"command":1}`: "[body command]", `{"command":[1]}`: "[body command]", `{"command":"x","comand":"y"}`: "[body comand]", `{"command":"x","stdin_base64":"%"}`: "[body stdin_base64]"} {
		text := w.in("POST", "/api/v1"+box+"/execute", body, 422)
		if p := read[rest.FormProblem](t, text); fmt.Sprint(p.Detail[0].Loc) != loc {
			t.Errorf("%s: %s", body, text)
		}
	}
	w.in("POST", "/api/v1"+box+"/stop", "", 200)
	if p := w.problem(w.user, "POST", box+"/execute", `{"command":"true"}`, 409, server.CodeNotRunning); p.Detail != "Sandbox is not running" {
		t.Errorf("stopped: %q", p.Detail)
	}
}

// TestOpenStdin: a command's input goes on behind what came with the request, and
// ends when somebody says so.
func TestOpenStdin(t *testing.T) {
	w := start(t)
	box := w.box()
	id := read[rest.ExecResult](t, w.in("POST", box+"/execute", `{"command":"cat; echo end","detach":true,"open_stdin":true,"stdin":"a"}`, 202)).ExecID
	for _, part := range []string{"b", "c"} {
		for read[rest.Exec](t, w.in("GET", box+"/execs/"+id, "", 200)).Stdout.End == 0 { // what came with the request is first
			time.Sleep(10 * time.Millisecond)
		}
		if resp, text := w.send("POST", box+"/execs/"+id+"/stdin", strings.NewReader(part), nil); resp.StatusCode != 204 {
			t.Errorf("stdin: %d %s", resp.StatusCode, text)
		}
	}
	if resp, text := w.send("POST", box+"/execs/"+id+"/stdin?eof=1", strings.NewReader("\n"), nil); resp.StatusCode != 204 {
		t.Errorf("end of stdin: %d %s", resp.StatusCode, text)
	}
	if e := read[rest.Exec](t, w.in("POST", box+"/execs/"+id+"/wait", "", 200)); e.Result == nil || e.Result.Stdout != "abc\nend\n" {
		t.Errorf("it has %+v", e.Result)
	}
	s := w.stream("POST", box+"/execute/stream", `{"command":"cat","open_stdin":true}`, nil)
	id = read[map[string]string](t, s.next().data)["exec_id"]
	if resp, text := w.send("POST", box+"/execs/"+id+"/stdin?eof=1", strings.NewReader("late"), nil); resp.StatusCode != 204 {
		t.Errorf("stdin of a stream: %d %s", resp.StatusCode, text)
	}
	if out, last, _ := s.collect([2]int64{}); out[0] != "late" || last.name != "exit" {
		t.Errorf("the stream has %q, %+v", out, last)
	}
	if p := w.problem(w.user, "POST", strings.TrimPrefix(box, "/api/v1")+"/execute", `{"command":"cat","open_stdin":true}`, 400, server.CodeInvalidValue); p.Field != "open_stdin" {
		t.Errorf("with nobody to write: %+v", p)
	}
}

// TestOnDisconnect: what a command that nobody follows does is what its client
// asked for.
func TestOnDisconnect(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	begin := func(body string) string {
		return read[rest.ExecResult](t, w.in("POST", box+"/execute", body, 202)).ExecID
	}
	goes := begin(`{"command":"sleep 600","detach":true,"on_disconnect":"kill"}`)
	stays := begin(`{"command":"sleep 600","detach":true}`)
	e := read[rest.Exec](t, w.in("POST", box+"/execs/"+goes+"/wait?timeout=60", "", 200))
	if e.Result == nil || *e.Result.ExitCode != 137 {
		t.Errorf("nobody follows it: %+v", e)
	}
	if e := read[rest.Exec](t, w.in("GET", box+"/execs/"+stays, "", 200)); e.State != "running" {
		t.Errorf("it was to stay: %+v", e)
	}
	s := w.stream("POST", box+"/execute/stream", `{"command":"sleep 600","on_disconnect":"keep"}`, nil)
	kept := read[map[string]string](t, s.next().data)["exec_id"]
	s.close()
	waiting := begin(`{"command":"sleep 600","detach":true,"on_disconnect":"kill"}`) // is gone when the kept one would be, too
	w.in("POST", box+"/execs/"+waiting+"/wait?timeout=60", "", 200)
	if e := read[rest.Exec](t, w.in("GET", box+"/execs/"+kept, "", 200)); e.State != "running" {
		t.Errorf("its stream ended: %+v", e)
	}
	w.in("POST", box+"/execute", `{"command":"true","on_disconnect":"maybe"}`, 400)
}

// TestKilledAtOnce: clients of the process API, and whoever asks for it, take their
// command with them; another one has five seconds to come back.
func TestKilledAtOnce(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	w.in("POST", box+"/sessions", `{"name":"main"}`, 201)
	frames := map[string]string{"Accept": "text/event-stream; profile=process-api"}
	// follow begins a command, is gone when it runs, and returns how long it lived on.
	follow := func(body string, header map[string]string) time.Duration {
		t.Helper()
		mark := fmt.Sprint("m", rand.Int64())
		s := w.stream("POST", box+"/execute/stream", strings.Replace(body, "MARK", "echo "+mark+"; sleep 600", 1), header)
		s.until(mark)
		began := time.Now()
		s.close()
		for {
			list := read[rest.List[rest.Exec]](t, w.in("GET", box+"/execs?limit=1000", "", 200))
			running := slices.ContainsFunc(list.Items, func(e rest.Exec) bool {
				return e.State == "running" && strings.Contains(strings.Join(e.Command, " "), mark)
			})
			if !running {
				return time.Since(began)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, c := range []struct {
		body   string
		header map[string]string
		atOnce bool
	}{
		{`{"command":"MARK"}`, nil, false},
		{`{"command":"MARK"}`, frames, true},
		{`{"command":"MARK","on_disconnect":"kill_now"}`, nil, true},
		{`{"command":"MARK","on_disconnect":"kill"}`, frames, false},
	} {
		if took := follow(c.body, c.header); (took < sandbox.DisconnectGrace) != c.atOnce {
			t.Errorf("%s with %v lived on for %v", c.body, c.header, took)
		}
	}
	for body, header := range map[string]map[string]string{`{"command":"echo m; sleep 600","session":"main"}`: frames, `{"command":"echo m; sleep 600","session":"main","on_disconnect":"kill_now"}`: nil} {
		s := w.stream("POST", box+"/execute/stream", body, header)
		s.until(`"m\n"`)
		began := time.Now()
		s.close()
		for status := 0; status != 200; time.Sleep(10 * time.Millisecond) {
			resp, _ := w.do(w.user, "POST", box+"/execute", "application/json", `{"command":"true","session":"main"}`)
			status = resp.StatusCode
		}
		if took := time.Since(began); took >= sandbox.DisconnectGrace {
			t.Errorf("%s lived on for %v", body, took)
		}
	}
	if p := w.problem(w.user, "POST", strings.TrimPrefix(box, "/api/v1")+"/execute", `{"command":"true","detach":true,"on_disconnect":"kill_now"}`, 400, server.CodeInvalidValue); p.Field != "on_disconnect" {
		t.Errorf("for a detached one: %+v", p)
	}
}
