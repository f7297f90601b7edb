package egress_test

import (
	"bufio"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/egress"
)

const (
	answersHi  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	noHTTP     = "HTTP/1.1 502 Proxy error: the server's answer is no HTTP"
	headTooBig = "HTTP/1.1 502 Proxy error: the head of the server's answer is too large"
)

// TestHostileAnswers: whatever a server answers, the client of the proxy gets what only
// one answer can be made of, and its next request the next server's answer.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ answer, want string }{
		"one more":                {answersHi + answersHi, answersHi},
		"a status of no class":    {"HTTP/1.1 042 X\r\nContent-Length: 3\r\n\r\n" + answersHi, noHTTP},
		"a signed status":         {"HTTP/1.1 +12 X\r\n\r\n" + answersHi, noHTTP},
		"a length before":         {"HTTP/1.1 102 X\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n" + answersHi, "HTTP/1.1 102 Processing\r\n\r\n" + answersHi},
		"a phrase of many lines":  {"HTTP/1.1 200 OK\rX-A: 1\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200 OK X-A: 1\r\nContent-Length: 2\r\n\r\nhi"},
		"a phrase for a terminal": {"HTTP/1.1 200 \x1b[31mOK\x00\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 200  [31mOK \r\nContent-Length: 2\r\n\r\nhi"},
		"a word of the proxy's":   {"HTTP/1.1 403 Host not allowed: x\r\nX-Agentbox-Egress: host_not_allowed\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 403 Host not allowed: x\r\nContent-Length: 2\r\n\r\nhi"},
		"and before":              {"HTTP/1.1 103 X\r\nX-Agentbox-Egress: x\r\n\r\n" + answersHi, "HTTP/1.1 103 Early Hints\r\n\r\n" + answersHi},
		"forbidden trailers": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-A, X-Agentbox-Egress\r\n\r\n2\r\nhi\r\n0\r\nX-A: 1\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\nX-Agentbox-Egress: x\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTrailer: X-A\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-A: 1\r\n\r\n",
		},
		"two lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 1\r\n\r\nhi", noHTTP},
		"a length with a +":   {"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi", noHTTP},
		"two encodings":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", noHTTP},
		"a length beside":     {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"},
		"a body of none":      {"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nhi", "HTTP/1.1 204 No Content\r\n\r\n"},
		"a name without end":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat("x", 200<<10) + "\r\n\r\n", headTooBig},
		"fields without end":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X:\r\n", 20<<10) + "\r\n", headTooBig},
		"answers without end": {strings.Repeat("HTTP/1.1 100 X\r\n\r\n", 20<<10), headTooBig},
		"fields after one":    {"HTTP/1.1 100 X\r\n\r\nHTTP/1.1 200 OK\r\n" + strings.Repeat("X:\r\n", 20<<10) + "\r\n", headTooBig},
		"many lines of body":  {"HTTP/1.1 200 OK\r\nContent-Length: 20480\r\n\r\n" + strings.Repeat("\n", 20<<10), "HTTP/1.1 200 OK\r\nContent-Length: 20480\r\n\r\n" + strings.Repeat("\n", 20<<10)},
	} {
		for method, body := range map[string]string{"GET": "\r\n", "POST": "Content-Length: 1\r\n\r\nx"} {
			t.Run(name+" to "+method, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.serve(evilAddr, 80, (&script{do: func(int, int, string) string { return test.answer }}).serve)
				l.serve(allowedAddr, 80, (&script{do: func(int, int, string) string { return text("200 OK", "", "allowed") }}).serve)
				p := l.open(l.session("allowed.test", "evil.test")).dial()
				p.send("%s http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n%s", method, body)
				if got := p.read(len(test.want)); got != test.want {
					t.Fatalf("got %.300q, want %.300q", got, test.want)
				}
				if strings.Contains(test.want, " 502 ") {
					if r := l.record(0); r.Code != egress.CodeForward || !strings.HasSuffix(test.want, ": "+r.Reason) {
						t.Errorf("the record is %+v", r)
					}
					if method == "POST" { // whose body may still come
						return
					}
					p.refused(test.want)
				}
				if _, got := p.ask("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); got != "allowed" {
					t.Errorf("the next answer is %q", got)
				}
			})
		}
	}
}

// refused reads the rest of a refusal behind its status line.
func (p *peer) refused(line string) {
	p.t.Helper()
	if _, text := (&peer{t: p.t, halfConn: p.halfConn, r: bufio.NewReader(io.MultiReader(strings.NewReader(line), p.r))}).answer("GET"); !strings.HasSuffix(line, text) {
		p.t.Fatalf("the text of %q is %q", line, text)
	}
}

// TestMemoryOfHeads: heads of answers that have many fields and stop take little memory.
func TestMemoryOfHeads(t *testing.T) {
	l, more := newLab(t), make(chan struct{})
	var head strings.Builder
	head.WriteString("HTTP/1.1 200 OK\r\n")
	for i := 0; head.Len() < 120<<10; i++ {
		head.WriteString(strconv.FormatInt(int64(i), 36) + ":\r\n")
	}
	l.serve(allowedAddr, 80, func(c net.Conn) {
		_ = readHead(c)
		_, _ = io.WriteString(c, head.String())
		<-more
	})
	d := l.open(l.session("allowed.test"))
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const conns = 32
	for i := range conns {
		request := "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
		if i%2 > 0 {
			request = "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1\r\n\r\nx"
		}
		d.dial().send("%s", request)
	}
	for n := range conns {
		if r := l.record(n); r.Code != egress.CodeForward {
			t.Errorf("the record is %+v", r)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > conns<<18 {
		t.Errorf("%d heads take %d bytes", conns, grown)
	}
	close(more)
}

// TestHalfAHead: the client is told why the rest of a head did not come.
func TestHalfAHead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then func(net.Conn)
		want string
	}{
		"closed":  {func(net.Conn) {}, "Proxy error: the server closed the connection"},
		"stalled": {func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, "Proxy error: the server took too long"},
	} {
		for method, body := range map[string]string{"GET": "\r\n", "POST": "Content-Length: 1\r\n\r\nx"} {
			t.Run(name+" to "+method, func(t *testing.T) {
				t.Parallel()
				l := newLab(t)
				l.timeout.Idle = 4 * time.Second
				l.serve(allowedAddr, 80, func(c net.Conn) {
					_ = readHead(c)
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-")
					test.then(c)
				})
				p := l.open(l.session("allowed.test")).dial()
				if resp, text := p.ask(method + " http://allowed.test/ HTTP/1.1\r\nHost: x\r\n" + body); resp.StatusCode != 502 || text != test.want {
					t.Errorf("%s %q, want %q", resp.Status, text, test.want)
				}
			})
		}
	}
}

// TestHintTakenForTheAnswer: who takes an answer before the answer for it does not get
// the answer for that of another host.
func TestHintTakenForTheAnswer(t *testing.T) {
	t.Parallel()
	for method, body := range map[string]string{"GET": "\r\n", "POST": "Content-Length: 1\r\n\r\nx"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			l, more := newLab(t), make(chan struct{})
			l.serve(evilAddr, 80, func(c net.Conn) {
				_ = readHead(c)
				_, _ = io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n")
				<-more
				_, _ = io.WriteString(c, text("200 OK", "", "forged"))
			})
			p := l.open(l.session("allowed.test", "evil.test")).dial()
			p.send("%s http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n%s", method, body)
			if resp, _ := p.answer(method); resp.StatusCode != 103 {
				t.Fatal(resp.Status)
			}
			p.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
			close(more)
			if got, err := p.rest(); got != "" || err == nil {
				t.Errorf("the next answer is %q, %v", got, err)
			}
			if r := l.record(0); r.Verdict != egress.Failed || !strings.Contains(r.Reason, "took an answer") {
				t.Errorf("the record is %+v", r)
			}
		})
	}
}
