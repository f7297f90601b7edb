package rest_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
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

// event is a server-sent event.
type event struct{ name, id, data string }

// stream is an open stream of events.
type stream struct {
	t      testing.TB
	resp   *http.Response
	cancel context.CancelFunc
	lines  *bufio.Scanner
	alive  int
}

func (w *world) stream(method, path, body string, header map[string]string) *stream {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", w.user)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	for k, v := range header {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &stream{t: w.t, resp: resp, cancel: cancel, lines: bufio.NewScanner(resp.Body)}
	s.lines.Buffer(nil, 1<<20)
	w.t.Cleanup(s.close)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		w.t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, b)
	}
	return s
}

func (s *stream) close() {
	s.cancel()
	s.resp.Body.Close()
}

// next reads an event; an empty one is the end.
func (s *stream) next() (e event) {
	for s.lines.Scan() {
		line := s.lines.Text()
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && e.name != "":
			return e
		case strings.HasPrefix(line, ":"):
			s.alive++
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			e.data = value
		}
	}
	return event{}
}

// until reads lines, of events or of frames, up to the one that has a text.
func (s *stream) until(text string) {
	s.t.Helper()
	for s.lines.Scan() {
		if strings.Contains(s.lines.Text(), text) {
			return
		}
	}
	s.t.Fatalf("the stream has no %s", text)
}

type chunk struct {
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
	Base64 []byte `json:"data_base64"`
}

// collect reads a stream to its end and returns the two outputs, the ids and the
// last event.
func (s *stream) collect(from [2]int64) (out [2]string, last event, lastID string) {
	at := from
	var all [2]strings.Builder
	defer func() { out = [2]string{all[0].String(), all[1].String()} }()
	for e := s.next(); e.name != ""; e = s.next() {
		last = e
		i := map[string]int{"stdout": 0, "stderr": 1}[e.name]
		if e.name != "stdout" && e.name != "stderr" {
			continue
		}
		c := read[chunk](s.t, e.data)
		if c.Offset != at[i] {
			s.t.Errorf("%s at %d, want %d", e.name, c.Offset, at[i])
		}
		all[i].WriteString(c.Data + string(c.Base64))
		at[i] += int64(len(c.Data) + len(c.Base64))
		if lastID = fmt.Sprintf("%d-%d", at[0], at[1]); e.id != lastID {
			s.t.Errorf("id %q, want %q", e.id, lastID)
		}
	}
	return out, last, lastID
}

func TestExecuteStream(t *testing.T) {
	w := start(t)
	box := w.box()
	s := w.stream("POST", box+"/execute/stream", `{"command":"echo one; echo two >&2; exit 4"}`, nil)
	if e := s.next(); e.name != "start" || !strings.Contains(e.data, `"exec_id":"`) {
		t.Fatalf("%+v", e)
	}
	out, last, _ := s.collect([2]int64{})
	if end := read[rest.ExecEnd](t, last.data); out != [2]string{"one\n", "two\n"} || last.name != "exit" || *end.ExitCode != 4 || last.id != "4-4" {
		t.Errorf("%q %+v", out, last)
	}
	all := make([]byte, 0, 1024)
	for i := range 256 {
		all = append(all, byte(i), 0xe2, 0x82, 0xac)
	}
	body, _ := json.Marshal(map[string]any{"command": "cat", "stdin_base64": all})
	out, last, _ = w.stream("POST", box+"/execute/stream?encoding=base64", string(body), nil).collect([2]int64{})
	if out[0] != string(all) || last.name != "exit" {
		t.Errorf("bytes: %q %+v", out[0], last)
	}
}

// TestStreamSplitsNoCharacter: a character that comes in two writes is one.
func TestStreamSplitsNoCharacter(t *testing.T) {
	w := start(t)
	box := w.box()
	w.execute(box, `{"command":"cat >/tmp/a","stdin_base64":"`+base64.StdEncoding.EncodeToString([]byte("x\xe2\x82"))+`"}`)
	w.execute(box, `{"command":"cat >/tmp/b","stdin_base64":"`+base64.StdEncoding.EncodeToString([]byte("\xacy\xe2"))+`"}`)
	s := w.stream("POST", box+"/execute/stream", `{"command":"cat /tmp/a; sleep 0.2; cat /tmp/b"}`, nil)
	var data []string
	for e := s.next(); e.name != ""; e = s.next() {
		if e.name == "stdout" {
			data = append(data, e.data+" "+e.id)
		}
	}
	if got := strings.Join(data, "|"); got != `{"offset":0,"data":"x"} 1-0|{"offset":1,"data":"€y"} 5-0|{"offset":5,"data":"\ufffd"} 6-0` {
		t.Errorf("%s", got)
	}
}

// TestComeBack: a client that comes back with its last id loses and doubles
// nothing, and the command lives on.
func TestComeBack(t *testing.T) {
	w := start(t)
	box := w.box()
	s := w.stream("POST", box+"/execute/stream", `{"command":"echo one; sleep 1; echo two; exit 9"}`, nil)
	id := read[map[string]string](t, s.next().data)["exec_id"]
	first := s.next()
	s.close()
	back := w.stream("GET", box+"/execs/"+id+"/output", "", map[string]string{"Last-Event-ID": first.id})
	if e := back.next(); e.name != "start" {
		t.Errorf("%+v", e)
	}
	out, last, _ := back.collect([2]int64{4, 0})
	if out[0] != "two\n" || *read[rest.ExecEnd](t, last.data).ExitCode != 9 {
		t.Errorf("%q %+v", out, last)
	}
}

// TestClientGone: what becomes of a command whose client is gone.
func TestClientGone(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	kept := w.stream("POST", box+"/execute/stream", `{"command":"echo begun; sleep 600","detach":true}`, nil)
	killed := w.stream("POST", box+"/execute/stream", `{"command":"echo begun; sleep 600"}`, nil)
	ids := [2]string{}
	for i, s := range []*stream{kept, killed} {
		ids[i] = read[map[string]string](t, s.next().data)["exec_id"]
		s.next()
		s.close()
	}
	ended := read[rest.Exec](t, w.in("POST", box+"/execs/"+ids[1]+"/wait?timeout=60", "", 200))
	if ended.State != "ended" || *ended.Result.ExitCode != 137 {
		t.Errorf("the stream's command: %+v", ended)
	}
	if e := read[rest.Exec](t, w.in("GET", box+"/execs/"+ids[0], "", 200)); e.State != "running" {
		t.Errorf("the detached one: %+v", e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "POST", w.url+box+"/execute", strings.NewReader(`{"command":"echo waits; sleep 1; exit 5"}`))
	r.Header.Set("X-API-Key", w.user)
	r.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Fatal("it has answered already")
	}
	list := read[rest.List[rest.Exec]](t, w.in("GET", box+"/execs", "", 200))
	last := list.Items[len(list.Items)-1]
	e := read[rest.Exec](t, w.in("POST", box+"/execs/"+last.ExecID+"/wait", "", 200))
	if *e.Result.ExitCode != 5 || e.Result.Stdout != "waits\n" {
		t.Errorf("the waiting one: %+v", e.Result)
	}
}

func TestHeartbeat(t *testing.T) {
	t.Cleanup(rest.SetHeartbeat(20 * time.Millisecond))
	w := start(t)
	s := w.stream("POST", w.box()+"/execute/stream", `{"command":"sleep 0.5"}`, nil)
	for s.next().name != "" {
	}
	if s.alive == 0 {
		t.Error("a silent stream sends nothing")
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
