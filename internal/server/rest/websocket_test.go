package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

// socket is a WebSocket of a client.
type socket struct {
	t   testing.TB
	ws  *websocket.Conn
	ctx context.Context
}

func (w *world) dial(path string, header http.Header) (*socket, *http.Response, error) {
	w.t.Helper()
	return w.dialWith(path, &websocket.DialOptions{HTTPHeader: header})
}

func (w *world) dialWith(path string, o *websocket.DialOptions) (*socket, *http.Response, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	if o.HTTPHeader == nil {
		o.HTTPHeader = http.Header{}
	}
	o.HTTPHeader.Set("X-API-Key", w.user)
	ws, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(w.url, "http")+path, o)
	if err != nil {
		return nil, resp, err
	}
	w.t.Cleanup(func() { _ = ws.CloseNow() })
	return &socket{w.t, ws, ctx}, resp, nil
}

func (w *world) socket(path string) *socket { return w.socketWith(path, &websocket.DialOptions{}) }

func (w *world) socketWith(path string, o *websocket.DialOptions) *socket {
	w.t.Helper()
	s, _, err := w.dialWith(path, o)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (s *socket) write(kind websocket.MessageType, text string) {
	s.t.Helper()
	if err := s.ws.Write(s.ctx, kind, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

type message struct {
	Type     string      `json:"type"`
	ExecID   string      `json:"exec_id"`
	Offset   int64       `json:"offset"`
	ExitCode *int        `json:"exit_code"`
	Code     server.Code `json:"code"`
}

// control reads the next text message, and what came as bytes before it.
func (s *socket) control() (m message, out string) {
	s.t.Helper()
	for {
		kind, b, err := s.ws.Read(s.ctx)
		if err != nil {
			s.t.Fatal(err)
		}
		if kind == websocket.MessageBinary {
			out += string(b)
			continue
		}
		if err := json.Unmarshal(b, &m); err != nil {
			s.t.Fatal(err)
		}
		return m, out
	}
}

// until reads bytes until they hold a text.
func (s *socket) until(want string) (out string) {
	s.t.Helper()
	for !strings.Contains(out, want) {
		_, b, err := s.ws.Read(s.ctx)
		if err != nil {
			s.t.Fatalf("%v after %q", err, out)
		}
		out += string(b)
	}
	return out
}

func TestTerminal(t *testing.T) {
	w := start(t)
	box := w.box()
	s := w.socket(box + "/terminal?cols=100&rows=30&command=stty+size;read+x;echo+got+$x;stty+size;exit+7")
	begun, _ := s.control()
	if begun.Type != "start" || begun.ExecID == "" || begun.Offset != 0 {
		t.Fatalf("%+v", begun)
	}
	s.until("30 100")
	s.write(websocket.MessageText, `{"type":"resize","cols":90,"rows":20}`)
	s.write(websocket.MessageText, `{"type":"nonsense"}`)
	if m, _ := s.control(); m.Type != "error" || m.Code != server.CodeInvalidValue {
		t.Errorf("nonsense: %+v", m)
	}
	s.write(websocket.MessageBinary, "hello\n")
	m, out := s.control()
	if m.Type != "exit" || *m.ExitCode != 7 || !strings.Contains(out, "got hello") || !strings.Contains(out, "20 90") {
		t.Errorf("%+v %q", m, out)
	}
	if _, _, err := s.ws.Read(s.ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("it ends with %v", err)
	}
}

// TestWebSocketKey: a page, which can't set headers, brings its key as a subprotocol, and
// hears the other one; what it offers besides makes no difference.
func TestWebSocketKey(t *testing.T) {
	w := start(t)
	url := "ws" + strings.TrimPrefix(w.url, "http") + w.box() + "/terminal?command=true"
	for key, good := range map[string]bool{w.user: true, w.user + "0": false} {
		ws, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: []string{"agentbox", "other", "agentbox.key." + key}})
		switch {
		case !good && (err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized):
			t.Errorf("with a wrong key: %v, %v", resp, err)
		case good && (err != nil || ws.Subprotocol() != "agentbox"):
			t.Errorf("with a key: %v, %v", resp, err)
		}
		if err == nil {
			_ = ws.CloseNow()
		}
	}
}

// TestTerminalComeBack: a client that lost its connection goes on where it was.
func TestTerminalComeBack(t *testing.T) {
	w := start(t)
	box := w.box()
	s := w.socket(box + "/terminal?command=echo+one;read+x;echo+two;read+x")
	begun, _ := s.control()
	have := len(s.until("one\r\n"))
	_ = s.ws.CloseNow()
	back := w.socket(box + "/terminal?exec_id=" + begun.ExecID + "&offset=" + itoa(have))
	if m, _ := back.control(); m.ExecID != begun.ExecID || m.Offset != int64(have) {
		t.Errorf("%+v", m)
	}
	back.write(websocket.MessageBinary, "\n")
	if out := back.until("two"); strings.Contains(out, "one") {
		t.Errorf("doubled: %q", out)
	}
	back.write(websocket.MessageText, `{"type":"signal","signal":"KILL"}`)
	if m, _ := back.control(); m.Type != "exit" || *m.ExitCode != 137 {
		t.Errorf("%+v", m)
	}
	w.problemOf(box+"/terminal?exec_id="+begun.ExecID+"&offset=99999", 416, server.CodeOutOfRange)
	w.problemOf(box+"/terminal?exec_id=none", 404, server.CodeNotFound)
	plain := w.execute(box, `{"command":"true"}`)
	w.problemOf(box+"/terminal?exec_id="+plain.ExecID, 409, server.CodeConflict)
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// problemOf wants a WebSocket to be refused.
func (w *world) problemOf(path string, status int, code server.Code) {
	w.t.Helper()
	_, resp, err := w.dial(path, nil)
	if err == nil || resp == nil || resp.StatusCode != status {
		w.t.Errorf("%s: %v %v", path, resp, err)
		return
	}
	b := make([]byte, 1024)
	n, _ := resp.Body.Read(b)
	var p server.Problem
	if err := json.Unmarshal(b[:n], &p); err != nil || p.Code != code {
		w.t.Errorf("%s: %s", path, b[:n])
	}
}

// TestTerminalControlAfterEnd: a command may end while the client resizes its
// terminal. That is no error; nonsense is.
func TestTerminalControlAfterEnd(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{}`)
	e, err := w.boxes.StartExec(t.Context(), sandbox.Caller{Owner: "acme"}, sb.ID, sandbox.Command{Shell: "true", TTY: true, Stdin: true}, client.Output{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`{"type":"resize","cols":90,"rows":20}`, `{"type":"signal","signal":"TERM"}`} {
		if err := rest.ControlRunning(t.Context(), e, []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := rest.ControlRunning(t.Context(), e, []byte(`{"type":"signal","signal":"NONE"}`)); err == nil {
		t.Error("no such signal: no error")
	}
}

// TestTerminalGone: the shell of a client that is gone for good ends.
func TestTerminalGone(t *testing.T) {
	t.Parallel() // it waits most of the time
	w := start(t)
	box := w.box()
	s := w.socket(box + "/terminal?command=sleep+600")
	begun, _ := s.control()
	_ = s.ws.CloseNow()
	e := read[rest.Exec](t, w.in("POST", box+"/execs/"+begun.ExecID+"/wait?timeout=60", "", 200))
	if e.State != "ended" {
		t.Errorf("%+v", e)
	}
}

// TestWebSocketOrigin: WEB-03, pages of other sites open no WebSocket, whatever
// key their browser has.
func TestWebSocketOrigin(t *testing.T) {
	w := start(t)
	box := w.box()
	for _, path := range []string{"/terminal", "/ports/80/connect"} {
		for _, h := range []http.Header{{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}, {"Sec-Fetch-Site": {"cross-site"}}} {
			if _, resp, err := w.dial(box+path, h); err == nil || resp == nil || resp.StatusCode != 403 {
				t.Errorf("%s %v: %v %v", path, h, resp, err)
			}
		}
		w.problem(w.user, "GET", strings.TrimPrefix(box, "/api/v1")+path, "", 400, server.CodeInvalidRequest)
	}
	if list := read[rest.List[rest.Exec]](t, w.in("GET", box+"/execs", "", 200)); len(list.Items) != 0 {
		t.Errorf("something ran: %+v", list)
	}
}

func TestPorts(t *testing.T) {
	w := start(t)
	box := w.box()
	if l := read[rest.PortList](t, w.in("GET", box+"/ports", "", 200)); len(l.Items) != 0 {
		t.Errorf("%+v", l)
	}
	w.problemOf(box+"/ports/8080/connect", 409, server.CodeConflict)
	w.problem(w.user, "GET", strings.TrimPrefix(box, "/api/v1")+"/ports/70000/connect", "", 400, server.CodeInvalidValue)
	w.in("POST", box+"/execute", `{"command":["echod","8080"],"detach":true}`, 202)
	var l rest.PortList
	for len(l.Items) == 0 {
		l = read[rest.PortList](t, w.in("GET", box+"/ports", "", 200))
	}
	if l.Items[0].Port != 8080 || l.Truncated {
		t.Errorf("%+v", l)
	}
	asked := 0
	s := w.socketWith(box+"/ports/8080/connect", &websocket.DialOptions{OnPingReceived: func(context.Context, []byte) bool { asked++; return true }})
	s.write(websocket.MessageBinary, "ping\n")
	if out := s.until("\n"); out != "ping\n" {
		t.Errorf("%q", out)
	}
	s.write(websocket.MessageBinary, strings.Repeat("x", 200_000))
	got := 0
	for got < 200_000 {
		_, b, err := s.ws.Read(s.ctx)
		if err != nil {
			t.Fatal(err)
		}
		got += len(b)
	}
	s.write(websocket.MessageText, `{"type":"eof"}`)
	if _, _, err := s.ws.Read(s.ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("it ends with %v", err)
	}
	if asked == 0 {
		t.Error("it ended without asking whether all was taken: a client that reads slowly would lose the end")
	}
}

// TestPublishedPorts: the object says where the ports are to be had, and two
// sandboxes never share one.
func TestPublishedPorts(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{"ports":[{"guest":8080},{"guest":8081,"host":0}]}`)
	if len(sb.Ports) != 2 || sb.Ports[0].Guest.Value != 8080 || sb.Ports[0].Host.Value == 0 || sb.Ports[0].Host.Value == sb.Ports[1].Host.Value {
		t.Fatalf("%+v", sb.Ports)
	}
	box := "/api/v1/sandboxes/" + sb.ID
	if got := read[rest.Sandbox](t, w.in("GET", box, "", 200)); !reflect.DeepEqual(got.Ports, sb.Ports) {
		t.Errorf("%+v", got.Ports)
	}
	p := w.problem(w.user, "POST", "/sandboxes", fmt.Sprintf(`{"ports":[{"guest":1,"host":%d}]}`, sb.Ports[0].Host.Value), 409, server.CodeAlreadyExists)
	if !strings.Contains(p.Detail, fmt.Sprint(sb.Ports[0].Host.Value)) {
		t.Errorf("the clash is told as %q", p.Detail)
	}
	w.in("POST", box+"/execute", `{"command":["echod","8080"],"detach":true}`, 202)
	var got string
	for got != "hello" { // until it listens, the connection is reset
		got = ask(fmt.Sprintf("127.0.0.1:%d", sb.Ports[0].Host.Value), "hello")
	}
}

// ask sends a text to an address and returns what comes back.
func ask(address, text string) string {
	c, err := net.Dial("tcp4", address)
	if err != nil {
		return ""
	}
	defer c.Close()
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	b, _ := io.ReadAll(c) // what is missing shows
	return string(b)
}
