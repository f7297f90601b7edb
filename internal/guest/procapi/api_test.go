package procapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentbox/internal/sandbox"
)

// TestAnswers: what each request is answered with.
func TestAnswers(t *testing.T) {
	s := newToy()
	s.files["/workspace/binary"] = []byte("\xffx")
	s.files["/mnt/user-data/uploads/u"] = []byte("up")
	srv := serve(t, s, Options{MaxTimeout: time.Hour})
	for _, c := range []struct{ method, route, body, want string }{
		{"GET", "/health", "", `200 {"status":"ok"}`},
		{"HEAD", "/health", "", `200 `},
		{"POST", "/health", "", `405 {"error":"Method not allowed"}`},
		{"GET", "/exec", "", `405 {"error":"Method not allowed"}`},
		{"OPTIONS", "/exec", "", `405 {"error":"Method not allowed"}`},
		{"GET", "/", "", `404 {"error":"Not found"}`},
		{"POST", "/exec/", "{}", `404 {"error":"Not found"}`},
		{"POST", "/exec", `{"command":"echo hi"}`, `200 {"exit_code":0,"stdout":"hi\n","stderr":"","timed_out":false}`},
		{"POST", "/exec", `{"command":"echo <&\u00e4>"}`, `200 {"exit_code":0,"stdout":"<&ä>\n","stderr":"","timed_out":false}`},
		{"POST", "/exec", `{`, `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec", ``, `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec", `[]`, `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec", `{"command":"x"} x`, `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec", "{\"command\":\"\xff\"}", `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec", strings.Repeat(`{"a":`, 20_000), `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec", `{}`, `400 {"error":"Missing 'command' field"}`},
		{"POST", "/exec", `{"command":""}`, `400 {"error":"Missing 'command' field"}`},
		{"POST", "/exec", `{"command":null}`, `400 {"error":"Missing 'command' field"}`},
		{"POST", "/exec", `{"command":7}`, `400 {"error":"'command' must not be of type number"}`},
		{"POST", "/exec", `{"command":"echo","timeout":"1"}`, `400 {"error":"'timeout' must not be of type string"}`},
		{"POST", "/exec", `{"command":"echo","timeout":-1}`, `400 {"error":"'timeout' must not be negative"}`},
		{"POST", "/exec", `{"command":"echo","timeout":3601}`, `400 {"error":"'timeout' must not be more than 3600"}`},
		{"POST", "/exec", `{"command":"echo","timeout":1e300}`, `400 {"error":"'timeout' must not be more than 3600"}`},
		{"POST", "/exec", `{"command":"` + strings.Repeat("x", 128<<10) + `"}`, `400 {"error":"'command' has more than 131071 bytes: a file takes more"}`},
		{"POST", "/exec", `{"command":"echo","workdir":"` + strings.Repeat("x", 33<<10) + `"}`, `400 {"error":"'workdir' has more than 32768 bytes"}`},
		{"POST", "/exec/stream", `{`, `400 {"error":"Invalid JSON"}`},
		{"POST", "/exec/stream", `{}`, `400 {"error":"Missing 'command' field"}`},
		{"POST", "/file/write", `{`, `400 {"error":"Invalid JSON"}`},
		{"POST", "/file/write", `{"path":"f"}`, `400 {"error":"Missing 'path' or 'content' field"}`},
		{"POST", "/file/write", `{"path":"f","content":null}`, `400 {"error":"Missing 'path' or 'content' field"}`},
		{"POST", "/file/write", `{"path":"","content":""}`, `400 {"error":"Missing 'path' or 'content' field"}`},
		{"POST", "/file/write", `{"path":"f","content":7}`, `400 {"error":"'content' must not be of type number"}`},
		{"POST", "/file/write", `{"path":"f","content":{}}`, `400 {"error":"'content' must not be of type object"}`},
		{"POST", "/file/write", `{"path":"f","content":"1\n"}`, `200 {"success":true}`},
		{"POST", "/file/write", `{"path":"f","content":"2\n","mode":"a"}`, `200 {"success":true}`},
		{"POST", "/file/write", `{"content":"\u00e4\ud83d\ude00\"\\\/\t","path":"/workspace/g"}`, `200 {"success":true}`},
		{"POST", "/file/write", `{"path":"f","content":"","mode":"x"}`, `200 {"success":false,"error":"Invalid mode"}`},
		{"POST", "/file/write", `{"path":"/etc/x","content":""}`, `403 {"error":"Path not allowed"}`},
		{"POST", "/file/write", `{"path":"/workspace_evil/x","content":""}`, `403 {"error":"Path not allowed"}`},
		{"POST", "/file/write", `{"path":"/mnt/user-data/uploads/x","content":""}`, `403 {"error":"Path not allowed"}`},
		{"POST", "/file/read", `{`, `400 {"error":"Invalid JSON"}`},
		{"POST", "/file/read", `{}`, `400 {"error":"Missing 'path' field"}`},
		{"POST", "/file/read", `{"path":"f"}`, `200 {"success":true,"content":"1\n2\n"}`},
		{"POST", "/file/read", `{"path":"g"}`, `200 {"success":true,"content":"ä😀\"\\/\t"}`},
		{"POST", "/file/read", `{"path":"/mnt/user-data/uploads/u"}`, `200 {"success":true,"content":"up"}`},
		{"POST", "/file/read", `{"path":"/etc/passwd"}`, `200 {"success":false,"error":"Path not allowed"}`},
		{"POST", "/file/read", `{"path":"none"}`, `200 {"success":false,"error":"File not found"}`},
		{"POST", "/file/read", `{"path":"dir"}`, `200 {"success":false,"error":"[Errno 21] Is a directory: '/workspace/dir'"}`},
		{"POST", "/file/read", `{"path":"binary"}`, `200 {"success":false,"error":"File is not valid UTF-8 text"}`},
	} {
		if got := ask(t, srv, c.method, c.route, c.body); got != c.want {
			t.Errorf("%s %s %.100s: %s, want %s", c.method, c.route, c.body, got, c.want)
		}
	}
	want := Command{Line: "echo hi", Dir: "/workspace", Timeout: 30 * time.Second}
	if s.ran[0] != want {
		t.Errorf("ran %+v, want %+v", s.ran[0], want)
	}
}

// TestResults: what becomes of each outcome, at once and in a stream.
func TestResults(t *testing.T) {
	s := newToy()
	srv := serve(t, s, Options{MaxOutput: 10})
	for name, c := range map[string]struct {
		result         sandbox.Result
		stdout, stderr string
		want, stream   string
	}{
		"a signal":    {sandbox.Result{Outcome: sandbox.Signaled, Signal: 9}, "", "", `-9,"stdout":"","stderr":"","timed_out":false`, `{"type":"exit","exit_code":-9}`},
		"a time-out":  {sandbox.Result{Outcome: sandbox.TimedOut, Signal: 9}, "a\n", "", `-1,"stdout":"a\n","stderr":"Command timed out","timed_out":true`, `{"type":"error","data":"Command timed out"}`},
		"with stderr": {sandbox.Result{Outcome: sandbox.TimedOut, Signal: 9}, "", "e", `-1,"stdout":"","stderr":"e\nCommand timed out","timed_out":true`, `{"type":"error","data":"Command timed out"}`},
		"no directory": {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 126, Reason: "working directory /workspace: No such file or directory"}, "", "x",
			`-1,"stdout":"","stderr":"[Errno 2] No such file or directory: '/workspace'","timed_out":false`, `{"type":"error","data":"[Errno 2] No such file or directory: '/workspace'"}`},
		"lost":      {sandbox.Result{Outcome: sandbox.Lost, Reason: "no more descriptors"}, "", "", `-1,"stdout":"","stderr":"no more descriptors","timed_out":false`, `{"type":"error","data":"no more descriptors"}`},
		"no text":   {sandbox.Result{Outcome: sandbox.Exited}, "\xffx\xc3", "", `0,"stdout":"\ufffdx\ufffd","stderr":"","timed_out":false`, `{"type":"exit","exit_code":0}`},
		"too much":  {sandbox.Result{Outcome: sandbox.Exited}, "0123456789x", "", `0,"stdout":"0123456789\n... [output truncated]","stderr":"","timed_out":false`, `{"type":"exit","exit_code":0}`},
		"cut there": {sandbox.Result{Outcome: sandbox.Exited, StderrTruncated: true}, "", "e\xc3", `0,"stdout":"","stderr":"e\n... [output truncated]","timed_out":false`, `{"type":"exit","exit_code":0}`},
	} {
		s.result(c.result, c.stdout, c.stderr)
		if got := ask(t, srv, "POST", "/exec", `{"command":"result"}`); got != `200 {"exit_code":`+c.want+`}` {
			t.Errorf("%s: %s", name, got)
		}
		got := ask(t, srv, "POST", "/exec/stream", `{"command":"result"}`)
		if frames := strings.Split(strings.TrimPrefix(got, "200 "), "\n\n"); frames[len(frames)-1] != "data: "+c.stream {
			t.Errorf("%s: the stream ends in %q", name, frames[len(frames)-1])
		}
	}
}

// TestStreamKeepsCharacters: a character that is written in two parts is one.
func TestStreamKeepsCharacters(t *testing.T) {
	s := newToy()
	s.commands["parts"] = func(_ context.Context, _ Command, stdout, stderr io.Writer) (*sandbox.Result, error) {
		for _, b := range []byte("ä€😀") {
			_, _ = stdout.Write([]byte{b})
			_, _ = stderr.Write([]byte("e"))
		}
		_, _ = stdout.Write([]byte("\xe2\x82"))
		return &sandbox.Result{Outcome: sandbox.Exited, ExitCode: 4}, nil
	}
	got := ask(t, serve(t, s, Options{}), "POST", "/exec/stream", `{"command":"parts"}`)
	var text strings.Builder
	var last frame
	for f := range strings.SplitSeq(strings.TrimPrefix(got, "200 "), "\n\n") {
		last = frame{}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(f, "data: ")), &last); err != nil {
			t.Fatalf("%q: %v", f, err)
		}
		if last.Type == "stdout" {
			text.WriteString(*last.Data)
		}
	}
	if want := "ä€😀\ufffd\ufffd"; text.String() != want || last.Type != "exit" || *last.ExitCode != 4 {
		t.Errorf("got %q and %+v, want %q", text.String(), last, want)
	}
}

// TestSilenceIsFilled: a stream sends a comment every 15 s in which there is no output,
// and is not ended by them.
func TestSilenceIsFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newToy()
		s.commands["slow"] = func(_ context.Context, _ Command, stdout, _ io.Writer) (*sandbox.Result, error) {
			time.Sleep(31 * time.Second)
			_, _ = stdout.Write([]byte("x"))
			time.Sleep(14 * time.Second)
			return &sandbox.Result{Outcome: sandbox.Exited}, nil
		}
		w := httptest.NewRecorder()
		New(s, Options{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/exec/stream", strings.NewReader(`{"command":"slow"}`)))
		want := ": ping\n\n: ping\n\ndata: {\"type\":\"stdout\",\"data\":\"x\"}\n\ndata: {\"type\":\"exit\",\"exit_code\":0}\n\n"
		if w.Body.String() != want {
			t.Errorf("got %q, want %q", w.Body, want)
		}
		if h := w.Header(); h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("the headers are %v", h)
		}
	})
}

// TestUnwantedBodies: who announces a body that nobody wants, and sends none, is not
// waited for for ever.
func TestUnwantedBodies(t *testing.T) {
	for _, head := range []string{"POST /nowhere", "GET /exec", "POST /health"} {
		synctest.Test(t, func(t *testing.T) {
			srv := New(newToy(), Options{}).Server()
			conns := make(pipes, 1)
			served := make(chan error, 1)
			go func() { served <- srv.Serve(conns) }()
			here, there := net.Pipe()
			conns <- there
			began := time.Now()
			if _, err := io.WriteString(here, head+" HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, here) // an answer may come or not
			if took := time.Since(began); took > 2*bodyTime {
				t.Errorf("%s: the connection ended after %v", head, took)
			}
			close(conns)
			<-served
			_ = here.Close()
		})
	}
}

// pipes is a listener for connections within the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return new(net.TCPAddr) }

// TestClientThatLeaves: it takes its command with it.
func TestClientThatLeaves(t *testing.T) {
	for _, route := range []string{"/exec", "/exec/stream"} {
		s := newToy()
		begun, ended := make(chan struct{}), make(chan error, 1)
		s.commands["hang"] = func(ctx context.Context, _ Command, _, _ io.Writer) (*sandbox.Result, error) {
			close(begun)
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}
		srv := serve(t, s, Options{})
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "POST "+route+" HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n"+`{"command":"hang"}`)
		<-begun
		_ = c.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", route, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: the command goes on", route)
		}
	}
}

// TestPagesAreRefused: a browser in the sandbox does not run commands for a page, also
// not for one whose name leads to the loopback interface.
func TestPagesAreRefused(t *testing.T) {
	s := newToy()
	srv := serve(t, s, Options{})
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://evil.example:2024", "Host", "evil.example:2024"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-origin"},
	} {
		if got := ask(t, srv, "POST", "/exec", `{"command":"echo"}`, headers...); got != `403 {"error":"Web pages may not use this API"}` {
			t.Errorf("%q: %s", headers, got)
		}
	}
	if got := ask(t, srv, "GET", "/health", "", "Sec-Fetch-Site", "none"); got != `200 {"status":"ok"}` {
		t.Errorf("a person who asks for it: %s", got)
	}
	if len(s.ran) != 0 {
		t.Errorf("ran %v", s.ran)
	}
}

// TestLargeBodies: 64 MiB are taken, more is an error in JSON, sent with a length or
// without.
func TestLargeBodies(t *testing.T) {
	s := newToy()
	a := New(s, Options{})
	send := func(route string, body io.Reader) string {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, route, body))
		return fmt.Sprintf("%d %s", w.Code, strings.TrimSpace(w.Body.String()))
	}
	head, tail := `{"path":"big","content":"`, `"}`
	body := head + strings.Repeat("x", maxBody-len(head)-len(tail)) + tail
	if got := send("/file/write", strings.NewReader(body)); got != `200 {"success":true}` {
		t.Fatalf("64 MiB: %.100s", got)
	}
	if n := len(s.files["/workspace/big"]); n != len(body)-len(head)-len(tail) || s.rests != 1 {
		t.Errorf("%d bytes arrived; rested %d times", n, s.rests)
	}
	want := `413 {"error":"The body has more than 67108864 bytes"}`
	for name, body := range map[string]io.Reader{"with a length": strings.NewReader(" " + body), "without": io.MultiReader(strings.NewReader(" " + body))} {
		if got := send("/file/write", body); got != want {
			t.Errorf("%s: %.100s", name, got)
		}
	}
	s.files["/workspace/big"] = s.files["/workspace/big"][:1<<20]
	if got := send("/file/read", strings.NewReader(`{"path":"big"}`)); len(got) != len(`200 {"success":true,"content":""}`)+1<<20 {
		t.Errorf("%d bytes are read: %.100s", len(got), got)
	}
	s.files["/workspace/big"] = make([]byte, 64<<20+1)
	if got := send("/file/read", strings.NewReader(`{"path":"big"}`)); got != `200 {"success":false,"error":"[Errno 27] File too large: '/workspace/big'"}` {
		t.Errorf("a file of more than 64 MiB: %.100s", got)
	}
}

// TestOutputHasABudget: what is kept of output is what there is memory for.
func TestOutputHasABudget(t *testing.T) {
	s := newToy()
	s.most = 1 << 20
	srv := serve(t, s, Options{MaxOutput: 10 << 20})
	s.commands["flood"] = func(_ context.Context, _ Command, stdout, stderr io.Writer) (*sandbox.Result, error) {
		for range 100 {
			_, _ = stdout.Write(bytes.Repeat([]byte("x"), 32<<10))
		}
		_, _ = io.WriteString(stderr, "e")
		return &sandbox.Result{Outcome: sandbox.Exited}, nil
	}
	got := ask(t, srv, "POST", "/exec", `{"command":"flood"}`)
	if n := strings.Count(got, "x"); n < 256<<10 || n > 1<<20 || !strings.Contains(got, `[output truncated]","stderr":"e"`) {
		t.Errorf("%d bytes are kept: … %s", n, got[max(len(got)-100, 0):])
	}
}

// FuzzContent: a string is what package json makes of it.
func FuzzContent(f *testing.F) {
	for _, s := range []string{`""`, `"a"`, `"\u00e4\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d\ud83d\ude00"`, `"\ud83dx\u0041"`, `"\"\\\/\b\f\n\r\t"`, `7`, `null`, `"\ud83d\n"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var want *string
		wantErr := json.Unmarshal(b, &want)
		var got *content
		err := json.Unmarshal(bytes.Clone(b), &got)
		switch {
		case (err == nil) != (wantErr == nil):
			t.Errorf("%q: %v, want %v", b, err, wantErr)
		case err != nil:
		case (got == nil) != (want == nil):
			t.Errorf("%q: %v, want %v", b, got, want)
		case got != nil && string(*got) != strings.ToValidUTF8(*want, "\ufffd") && json.Valid(b) && strings.ToValidUTF8(string(b), "") == string(b):
			t.Errorf("%q: %q, want %q", b, *got, *want)
		}
	})
}
