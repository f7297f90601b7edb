package rest_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// TestDestroyUnderCommand: X23, what runs in a sandbox that is destroyed ends at
// once, with the reason.
func TestDestroyUnderCommand(t *testing.T) {
	w := start(t)
	box := w.box()
	s := w.stream("POST", box+"/execute/stream", `{"command":"echo begun; sleep 600"}`, nil)
	s.next()
	s.next()
	answer := make(chan string, 1)
	go func() {
		resp, text := w.send("POST", box+"/execute", strings.NewReader(`{"command":"sleep 600"}`), map[string]string{"Content-Type": "application/json"})
		answer <- fmt.Sprint(resp.StatusCode, " ", text)
	}()
	for n := 0; n < 2; {
		n = len(read[rest.List[rest.Exec]](t, w.in("GET", box+"/execs", "", 200)).Items)
	}
	w.in("DELETE", box, "", 204)
	if e := s.next(); e.name != "error" || !strings.Contains(e.data, `"code":"sandbox_destroyed"`) {
		t.Errorf("stream: %+v", e)
	}
	if a := <-answer; !strings.HasPrefix(a, "404") || !strings.Contains(a, `"code":"sandbox_destroyed"`) || !strings.Contains(a, `"reason":"destroyed"`) {
		t.Errorf("waiting: %s", a)
	}
}

// TestSlowReader: a command waits for a client that reads slowly, and nothing is
// lost or piled up.
func TestSlowReader(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	const line = "0123456789abcde\n"
	content := strings.Repeat(line, 24<<20/len(line))
	w.put(box, "path=big", content, 204)
	s := w.stream("POST", box+"/execute/stream", `{"command":"cat big"}`, nil)
	id := read[map[string]string](t, s.next().data)["exec_id"]
	before, still := int64(-1), 0
	for still < 10 { // its output has stopped growing
		e := read[rest.Exec](t, w.in("GET", box+"/execs/"+id, "", 200))
		if e.State != "running" {
			t.Fatalf("it ran to its end: %+v", e)
		}
		if still++; e.Stdout.End != before {
			before, still = e.Stdout.End, 0
		}
		time.Sleep(20 * time.Millisecond)
	}
	out, last, _ := s.collect([2]int64{})
	if last.name != "exit" || out[0] != content {
		t.Errorf("%d bytes, %+v", len(out[0]), last)
	}
}

// TestOutputBytes: raw output, in parts and followed.
func TestOutputBytes(t *testing.T) {
	w := start(t)
	box := w.box()
	id := read[rest.ExecResult](t, w.in("POST", box+"/execute", `{"command":"echo one; echo two >&2; read x; echo three","detach":true,"tty":false,"stdin":""}`, 202)).ExecID
	w.in("POST", box+"/execs/"+id+"/wait", "", 200)
	for query, want := range map[string]string{
		"stream=stdout": "one\nthree\n", "stream=stderr": "two\n", "stream=stdout&offset=4": "three\n", "stream=stdout&offset=10": "", "stream=both&offset=4-1": "three\nwo\n",
		"stream=stdout&follow=1": "one\nthree\n", "stream=stderr&follow=1&offset=2": "o\n",
	} {
		if resp, text := w.send("GET", box+"/execs/"+id+"/output?"+query, nil, nil); resp.StatusCode != 200 || text != want {
			t.Errorf("%s: %d %q", query, resp.StatusCode, text)
		}
	}
	resp, text := w.send("GET", box+"/execs/"+id+"/output?stream=stdout&offset=11", nil, nil)
	if p := read[server.Problem](t, text); resp.StatusCode != 416 || p.Code != server.CodeOutOfRange || resp.Header.Get("X-First-Offset") != "0" {
		t.Errorf("behind the end: %d %v %s", resp.StatusCode, resp.Header, text)
	}
	p := strings.TrimPrefix(box, "/api/v1")
	w.problem(w.user, "GET", p+"/execs/"+id+"/output?offset=3", "", 400, server.CodeInvalidValue)
	w.in("GET", box+"/execs/"+id+"/output?offset=x", "", 422)
	w.problem(w.user, "GET", p+"/execs/none/output", "", 404, server.CodeNotFound)
	w.problem(w.user, "GET", p+"/execs/none", "", 404, server.CodeNotFound)
	w.problem(w.user, "POST", p+"/execs/none/wait", "", 404, server.CodeNotFound)
	w.problem(w.user, "POST", p+"/execs/"+id+"/stdin", "x", 409, server.CodeConflict)
	w.problem(w.user, "POST", p+"/execs/"+id+"/signal", `{"signal":"NONSENSE"}`, 400, server.CodeInvalidValue)
	w.problem(w.user, "POST", p+"/execs/"+id+"/signal", `{"signal":65}`, 400, server.CodeInvalidValue)
}

// TestControl: input, signals and the size of a terminal of a command by its id.
func TestControl(t *testing.T) {
	w := start(t)
	box := w.box()
	detach := func(body string) string {
		return box + "/execs/" + read[rest.ExecResult](t, w.in("POST", box+"/execute", body, 202)).ExecID
	}
	cat := detach(`{"command":"read x; echo got $x; sleep 600","detach":true,"tty":true}`)
	w.in("POST", cat+"/resize", `{"cols":100,"rows":50}`, 204)
	w.in("POST", cat+"/stdin", "hello\n", 204)
	for !strings.Contains(w.in("GET", cat+"/output", "", 200), "got hello") {
		time.Sleep(10 * time.Millisecond)
	}
	w.in("POST", cat+"/signal", `{"signal":"SIGKILL","tree":true}`, 204)
	if e := read[rest.Exec](t, w.in("POST", cat+"/wait", "", 200)); *e.Result.ExitCode != 137 || *e.Result.Signal != 9 {
		t.Errorf("%+v", e.Result)
	}
	if e := read[rest.Exec](t, w.in("POST", detach(`{"command":"sleep 30","detach":true}`)+"/wait?timeout=0", "", 200)); e.State != "running" {
		t.Errorf("a look: %+v", e)
	}
	if e := read[rest.Exec](t, w.in("POST", detach(`{"command":"sleep 600","detach":true}`)+"/wait?timeout=0.1", "", 200)); e.State != "running" || e.Result != nil {
		t.Errorf("%+v", e)
	}
}

// TestRecords: commands, files and ports are in the audit log, with who and where.
func TestRecords(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, "{}")
	box := "/api/v1/sandboxes/" + sb.ShortID
	w.in("POST", box+"/execute", `{"command":"echo hi"}`, 200)
	w.put(box, "path=/tmp/a", "x", 204)
	w.in("GET", box+"/files?path=/tmp/none", "", 404)
	w.in("GET", box+"/files/list?path=/tmp", "", 200)
	w.problemOf(box+"/ports/81/connect", 409, server.CodeConflict)
	page, err := w.audit.Query(t.Context(), audit.Query{Owner: "acme", Sandbox: sb.ID, OldestFirst: true, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range page.Records {
		got = append(got, fmt.Sprint(r.Action, " ", r.Result, " ", r.Details["op"], r.Details["command"], r.Details["path"], r.Details["port"]))
	}
	want := "create ok |exec ok echo hi|file_write ok write/tmp/a|file_read not_found read/tmp/none|file_read ok list/tmp|port conflict 81"
	if strings.Join(got, "|") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, "|"), want)
	}
}

// openGate lets everybody in as acme.
type openGate struct{}

func (openGate) Enter(*http.Request, auth.Access) (sandbox.Caller, error) {
	return sandbox.Caller{Owner: "acme"}, nil
}

func (openGate) Stay(ctx context.Context, _ sandbox.Caller) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

// TestServerStops: streams end with the reason, and their commands go on.
func TestServerStops(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	origins, err := auth.NewOrigins(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(server.Options{Gate: openGate{}, Origins: origins, NoAuth: true})
	rest.New(s.Router(), rest.Parts{Audit: w.audit, Sandboxes: w.boxes, Images: w.images, Inside: w.boxes, Networks: w.boxes, Draining: s.Draining()})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	other := &world{t: t, url: "http://" + l.Addr().String(), user: w.user}
	cmd := other.stream("POST", box+"/execute/stream", `{"command":"echo begun; sleep 600"}`, nil)
	id := read[map[string]string](t, cmd.next().data)["exec_id"]
	cmd.next()
	watch := other.stream("GET", box+"/files/watch", "", nil)
	watch.next()
	tty := other.socket(box + "/terminal?command=sleep+600")
	begun, _ := tty.control()
	stop()
	for _, s := range []*stream{cmd, watch} {
		if e := s.next(); e.name != "error" || !strings.Contains(e.data, `"code":"unavailable"`) {
			t.Errorf("%+v", e)
		}
	}
	if m, _ := tty.control(); m.Type != "error" || m.Code != server.CodeUnavailable {
		t.Errorf("%+v", m)
	}
	cmd.close()
	watch.close()
	_ = tty.ws.CloseNow()
	if err := <-served; err != nil {
		t.Error(err)
	}
	// Longer than the grace for clients that are gone.
	if e := read[rest.Exec](t, w.in("POST", box+"/execs/"+id+"/wait?timeout=6", "", 200)); e.State != "running" {
		t.Errorf("the stream's command: %+v", e)
	}
	if e := read[rest.Exec](t, w.in("GET", box+"/execs/"+begun.ExecID, "", 200)); e.State != "running" {
		t.Errorf("the terminal's command: %+v", e)
	}
}
