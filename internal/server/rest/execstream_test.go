package rest_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentbox/internal/server/rest"
)

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
