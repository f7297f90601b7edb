package egress_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/egress"
)

// ok says which host it was asked for.
func ok(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, name+" "+r.Host+r.URL.Path) })
}

// echo sends back what it gets, and then the end.
func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.(*net.TCPConn).CloseWrite()
}

func TestReplies(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	l.serve(allowedAddr, 2222, echo)
	l.serve(allowedAddr, 2223, func(c net.Conn) { _, _ = io.WriteString(c, "no HTTP\r\n\r\n") })
	l.serve(allowedAddr, 2224, func(c net.Conn) {
		_ = readHead(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 256<<10)+"\r\n\r\n")
	})
	l.serve(allowedAddr, 2225, func(c net.Conn) {
		if readHead(c) {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		}
	})
	l.name("private.test", internalAddr)
	d := l.open(l.session("allowed.test", "allowed.test:2222", "allowed.test:2223", "allowed.test:2224", "allowed.test:2225", "allowed.test:81", "private.test", "nowhere.test"))
	for _, c := range []struct {
		name, line string
		status     int
		body       string
		code       egress.Code
	}{
		{"allowed", "GET http://allowed.test/x", 200, "allowed allowed.test/x", ""},
		{"text that is not escaped", "GET http://allowed.test/é?ü", 200, "allowed allowed.test/é", ""},
		{"tunnel", "CONNECT allowed.test:2222", 200, "", ""},
		{"tunnel, default port", "CONNECT evil.test", 403, "Host not allowed: evil.test", egress.CodeHost},
		{"host not listed", "GET http://Evil.test:80/", 403, "Host not allowed: evil.test", egress.CodeHost},
		{"host not listed, tunnel", "CONNECT evil.test:443", 403, "Host not allowed: evil.test", egress.CodeHost},
		{"address not listed", "GET http://[2001:db8::1]:80/", 403, "Host not allowed: 2001:db8::1", egress.CodeHost},
		{"private address", "GET http://private.test/", 403, "Host not allowed: private.test", egress.CodeAddress},
		{"private address, tunnel", "CONNECT private.test:443", 403, "Host not allowed: private.test", egress.CodeAddress},
		{"path", "GET /", 400, "Invalid proxy request", egress.CodeInvalid},
		{"https URL", "GET https://allowed.test/", 400, "Invalid proxy request", egress.CodeInvalid},
		{"ftp URL", "GET ftp://allowed.test/", 400, "Invalid proxy request", egress.CodeInvalid},
		{"asterisk", "OPTIONS *", 400, "Invalid proxy request", egress.CodeInvalid},
		{"no host", "GET http:///x", 400, "Could not parse host from URL", egress.CodeInvalidHost},
		{"no host, port", "GET http://:80/x", 400, "Could not parse host from URL", egress.CodeInvalidHost},
		{"tunnel refused", "CONNECT allowed.test:81", 502, "Failed to connect: ", egress.CodeConnect},
		{"tunnel, no such host", "CONNECT nowhere.test:443", 502, "Failed to connect: resolve nowhere.test: no such host", egress.CodeConnect},
		{"forward refused", "GET http://allowed.test:81/", 502, "Proxy error: ", egress.CodeForward},
		{"forward, no HTTP", "GET http://allowed.test:2223/", 502, "Proxy error: the server's answer is no HTTP", egress.CodeForward},
		{"forward, large head", "GET http://allowed.test:2224/", 502, "Proxy error: the head of the server's answer is too large", egress.CodeForward},
		{"forward, upgrade", "GET http://allowed.test:2225/", 502, "Proxy error: the server switches to another protocol, which it was not asked for", egress.CodeForward},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			p := d.dial()
			method, _, _ := strings.Cut(c.line, " ")
			resp, body := p.ask(c.line + " HTTP/1.1\r\nHost: other.test\r\n\r\n")
			exact := body == c.body || strings.HasSuffix(c.body, ": ") && strings.HasPrefix(body, c.body) && len(body) > len(c.body)
			if resp.StatusCode != c.status || !exact || resp.Header.Get(egress.CodeHeader) != string(c.code) {
				t.Fatalf("got %d %q %s, want %d %q %s", resp.StatusCode, body, resp.Header.Get(egress.CodeHeader), c.status, c.body, c.code)
			}
			for _, secret := range []string{"127.0.0.1", internalAddr.String(), allowedAddr.String()} {
				if strings.Contains(body+resp.Status, secret) {
					t.Errorf("the answer names an address: %q", body)
				}
			}
			if c.status != 200 && resp.Header.Get("Content-Type") != "text/plain" {
				t.Errorf("the answer is %s", resp.Header.Get("Content-Type"))
			}
			if method == "CONNECT" && c.status == 200 && resp.Status != "200 Connection Established" {
				t.Errorf("the reason is %q", resp.Status)
			}
		})
	}
}

func TestJ2_AbsoluteForm(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "X-Hop", "Connection"} {
			if v, is := r.Header[name]; is {
				t.Errorf("the server sees %s: %q", name, v)
			}
		}
		if r.Host != "allowed.test" || r.RequestURI != "/a%2Fb//c?q=%20&r" || r.Header.Get("User-Agent") != "" {
			t.Errorf("the server sees %s %s, %s", r.Host, r.RequestURI, r.Header)
		}
		w.Header().Set("X-Of", "server")
		w.Header().Set("Connection", "X-Internal")
		w.Header().Set("X-Internal", "1")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "body")
	}))
	p := l.open(l.session("allowed.test")).dial()
	resp, body := p.ask("GET http://allowed.test/a%2Fb//c?q=%20&r HTTP/1.1\r\nHost: evil.test\r\nProxy-Authorization: Basic eA==\r\n" +
		"Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\r\n")
	if resp.StatusCode != http.StatusTeapot || body != "body" || resp.Header.Get("X-Of") != "server" || resp.Header.Get("X-Internal") != "" {
		t.Fatalf("got %s %v %q", resp.Status, resp.Header, body)
	}
	if r := l.record(0); r.Verdict != egress.Allowed || r.Kind != egress.KindHTTP || r.Method != "GET" || r.Path != "/a%2Fb//c" || r.Status != 418 ||
		r.Name != "allowed.test" || r.Addr != allowedAddr || r.Port != 80 || r.Rule != "allowed.test" || r.Sandbox != "s1" || r.Owner != "t1" || r.BytesUp == 0 || r.BytesDown == 0 {
		t.Errorf("the record is %+v", r)
	}
}

func TestJ3_TunnelWithHalfClose(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, func(c net.Conn) {
		b, _ := io.ReadAll(c) // to the end of the client's direction
		_, _ = io.WriteString(c, "got "+string(b))
	})
	p := l.open(l.session("allowed.test:2222")).tunnel("allowed.test:2222")
	p.send("hello")
	_ = p.CloseWrite()
	if got, err := p.rest(); got != "got hello" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	if r := l.record(0); r.Verdict != egress.Allowed || r.Kind != egress.KindConnect || r.BytesUp != 5 || r.BytesDown != 9 || r.Method != "CONNECT" {
		t.Errorf("the record is %+v", r)
	}
}

// The other way round: the server ends first and still gets all.
func TestTunnelServerEndsFirst(t *testing.T) {
	l := newLab(t)
	got := make(chan string, 1)
	l.serve(allowedAddr, 2222, func(c net.Conn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	p := l.open(l.session("allowed.test:2222")).tunnel("allowed.test:2222")
	if s, err := p.rest(); s != "bye" || err != nil {
		t.Fatalf("got %q, %v", s, err)
	}
	p.send("still here")
	_ = p.CloseWrite()
	if s := <-got; s != "still here" {
		t.Errorf("the server got %q", s)
	}
}

// A reset of the server is a reset for the client, not an end.
func TestTunnelReset(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, func(c net.Conn) {
		b := make([]byte, 1)
		_, _ = c.Read(b)
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	p := l.open(l.session("allowed.test:2222")).tunnel("allowed.test:2222")
	p.send("x")
	if s, err := p.rest(); err == nil {
		t.Fatalf("got %q and an end", s)
	}
	if r := l.record(0); r.Verdict != egress.Failed || r.Code != egress.CodeForward {
		t.Errorf("the record is %+v", r)
	}
}
