package egress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// script is a server that notes the requests of each connection and answers with what
// do says; "" closes the connection.
type script struct {
	do func(conn, n int, method string) string

	mu    sync.Mutex
	asked [][]string
}

func (s *script) serve(c net.Conn) {
	s.mu.Lock()
	conn := len(s.asked)
	s.asked = append(s.asked, nil)
	s.mu.Unlock()
	r := bufio.NewReader(c)
	for n := 0; ; n++ {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		s.mu.Lock()
		s.asked[conn] = append(s.asked[conn], req.Method)
		s.mu.Unlock()
		answer := s.do(conn, n, req.Method)
		if _, err := io.WriteString(c, answer); err != nil || answer == "" || strings.Contains(answer, "\r\nX-Last: ") {
			return
		}
	}
}

// got is how the requests came, a word for each connection.
func (s *script) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var words []string
	for _, c := range s.asked {
		words = append(words, strings.Join(c, "+"))
	}
	return strings.Join(words, " ")
}

func text(status, head, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, head, len(body), body)
}

// client of the proxy, or in a tunnel of it.
func (s *script) client(t *testing.T, kind string) func(method string) (*http.Response, string) {
	l := newLab(t)
	l.serve(allowedAddr, 80, s.serve)
	d := l.open(l.session("allowed.test"))
	var p *peer
	prefix := ""
	if kind == "tunnel" {
		p = d.tunnel("allowed.test:80")
	} else {
		p, prefix = d.dial(), "http://allowed.test"
	}
	return func(method string) (*http.Response, string) {
		t.Helper()
		head := method + " " + prefix + "/ HTTP/1.1\r\nHost: allowed.test\r\n"
		if method == http.MethodPost {
			return p.ask(head + "Content-Length: 1\r\n\r\nx")
		}
		return p.ask(head + "\r\n")
	}
}

// TestOneConnection: requests go over one connection as long as it can be used, and none
// gets another one's answer.
func TestOneConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do       func(conn, n int, method string) string
		ask      string
		statuses string
		proxy    string // how the server sees the requests
		tunnel   string // "": as proxy
	}{
		"kept": {
			do: func(_, n int, method string) string {
				switch {
				case method == http.MethodHead:
					return "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"
				case n == 2:
					return "HTTP/1.1 204 No Content\r\n\r\n"
				case n == 3:
					return "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"
				case n == 4:
					return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
				}
				return text("200 OK", "", "hi")
			},
			ask: "GET HEAD GET GET OPTIONS DELETE", statuses: "200 200 204 304 200 200", proxy: "GET+HEAD+GET+GET+OPTIONS+DELETE",
		},
		"closed between two": {
			do:  func(int, int, string) string { return text("200 OK", "X-Last: 1\r\n", "hi") },
			ask: "GET DELETE GET", statuses: "200 200 200", proxy: "GET DELETE GET",
		},
		"to be closed": {
			do:  func(int, int, string) string { return text("200 OK", "Connection: close\r\n", "hi") },
			ask: "GET GET", statuses: "200 200", proxy: "GET GET",
		},
		"up to the end": {
			do:  func(int, int, string) string { return "HTTP/1.1 200 OK\r\nX-Last: 1\r\n\r\nhi" },
			ask: "GET", statuses: "200", proxy: "GET",
		},
		"out of turn": {
			do:  func(int, int, string) string { return text("200 OK", "", "hi") + text("418 Forged", "", "forged") },
			ask: "GET GET", statuses: "200 200", proxy: "GET GET",
		},
		"given up": {
			do: func(conn, n int, _ string) string {
				if conn == 0 && n == 1 {
					return ""
				}
				return text("200 OK", "", "hi")
			},
			ask: "GET GET", statuses: "200 200", proxy: "GET+GET GET",
		},
		"given up in a deletion": {
			do: func(_, n int, _ string) string {
				if n == 1 {
					return ""
				}
				return text("200 OK", "", "hi")
			},
			ask: "GET DELETE", statuses: "200 502", proxy: "GET+DELETE",
		},
		"given up at once": {
			do:  func(int, int, string) string { return "" },
			ask: "GET", statuses: "502", proxy: "GET",
		},
		"no end of a head": {
			do: func(int, int, string) string {
				return "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("x", 1000)+"\r\n", 200)
			},
			ask: "GET", statuses: "502", proxy: "GET",
		},
		"with a body": {
			do:  func(int, int, string) string { return text("200 OK", "", "hi") },
			ask: "GET POST GET", statuses: "200 200 200", proxy: "GET POST+GET", tunnel: "GET+POST+GET",
		},
		"a status below all": {
			do:  func(int, int, string) string { return text("099 Odd", "", "hi") },
			ask: "GET GET", statuses: "99 99", proxy: "GET+GET",
		},
		"an upgrade that nobody asked for": {
			do:  func(int, int, string) string { return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" },
			ask: "GET", statuses: "502", proxy: "GET",
		},
	} {
		for _, kind := range []string{"proxy", "tunnel"} {
			t.Run(name+" by "+kind, func(t *testing.T) {
				t.Parallel()
				s := &script{do: test.do}
				ask := s.client(t, kind)
				var statuses []string
				for _, method := range strings.Fields(test.ask) {
					resp, body := ask(method)
					statuses = append(statuses, fmt.Sprint(resp.StatusCode))
					if strings.Contains(body, "forged") {
						t.Errorf("%s was answered with %q", method, body)
					}
					time.Sleep(10 * time.Millisecond) // what the server does after its answer arrives
				}
				if got := strings.Join(statuses, " "); got != test.statuses {
					t.Errorf("answers %s, want %s", got, test.statuses)
				}
				server := test.proxy
				if kind == "tunnel" && test.tunnel != "" {
					server = test.tunnel
				}
				if got := s.got(); got != server {
					t.Errorf("the server got %q, want %q", got, server)
				}
			})
		}
	}
}

// TestGoneBeforeAsked: what happened to a connection before the first request goes over
// it is not taken for something else.
func TestGoneBeforeAsked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{
		"closed": {func(net.Conn) {}, "the server closed the connection"},
		"spoke":  {func(c net.Conn) { _, _ = io.WriteString(c, "220 ready\r\n"); _, _ = io.Copy(io.Discard, c) }, "the server's answer is no HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.serve(allowedAddr, 80, test.serve)
			p := l.open(l.session("allowed.test")).dial()
			for range 50 { // with luck it happens after the request was written
				resp, body := p.ask("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
				if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, test.want) {
					t.Fatalf("%s, %q; want %q", resp.Status, body, test.want)
				}
			}
		})
	}
}
