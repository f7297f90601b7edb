package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// patience is how much later than its limit something may end on a busy
// machine.
const patience = 10 * time.Second

// raw opens a connection on which nothing is said yet.
func (w *world) raw() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.tcp.String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// status reads the answer on a raw connection, and 0 if it is closed instead.
func status(t *testing.T, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("the server waits for ever")
		}
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestSlowSenders stop in the middle of a request.
func TestSlowSenders(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{HeaderTimeout: time.Second, BodyTimeout: time.Second, IdleTimeout: time.Second},
		server.Route{Pattern: "POST /json", Handler: echo}, server.Route{Pattern: "POST /stream", Stream: true, Handler: echo},
		server.Route{Pattern: "POST /ignores", Handler: text("x")})
	for name, c := range map[string]struct {
		send string
		want int
	}{
		"nothing":               {"", 0},
		"half of a head":        {"GET /health HTTP/1.1\r\nHost: localhost\r\nX-", 400},
		"half of a line":        {"GET /hea", 400},
		"half of a body":        {"POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345", 408},
		"half of a stream":      {"POST /stream HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", 408},
		"refused":               {"POST /json HTTP/1.1\r\nHost: evil.test\r\nContent-Length: 10\r\n\r\n12345", 403},
		"body that nobody read": {"POST /ignores HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345", 200},
		"half of HTTP/2":        {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := w.raw()
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			if c.want == 0 && strings.HasPrefix(c.send, "PRI") {
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the server waits for ever")
				}
				return
			}
			if got := status(t, conn); got != c.want {
				t.Errorf("answered %d, want %d", got, c.want)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection stays open")
			}
		})
	}
}

// TestHijack hands the connection over without the deadlines of requests.
func TestHijack(t *testing.T) {
	const timeout = time.Second
	w := start(t, auth.Policy{NoAuth: true}, server.Options{BodyTimeout: timeout, WriteTimeout: timeout}, server.Route{Pattern: "POST /raw", Stream: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			server.WriteError(w, r, err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, rw) // echoes
	})})
	conn := w.raw()
	if _, err := io.WriteString(conn, "POST /raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(timeout * 3 / 2) // longer than every deadline
	if _, err := io.WriteString(conn, "still here"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("still here"))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "still here" {
		t.Errorf("after a while: %q, %v", got, err)
	}
}

// TestSlowButSteady: a stream may take longer than the timeout in all, a JSON
// body may not; and a handler may take longer than either.
func TestSlowButSteady(t *testing.T) {
	const timeout = time.Second
	w := start(t, auth.Policy{NoAuth: true}, server.Options{BodyTimeout: timeout, WriteTimeout: timeout},
		server.Route{Pattern: "POST /json", Handler: echo}, server.Route{Pattern: "POST /stream", Stream: true, Handler: echo},
		server.Route{Pattern: "POST /wait", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				_, _ = io.WriteString(w, ", but canceled")
			case <-time.After(3 * timeout / 2): // the end of the answer is sent after this
			}
		})})
	drip := func() io.Reader {
		r, w := io.Pipe()
		go func() {
			for range 8 {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				time.Sleep(timeout / 6)
			}
			w.Close()
		}()
		return r
	}
	wait := func(t *testing.T, c *http.Client) {
		if resp, body := w.with(c, "POST", w.url+"/wait", strings.NewReader("{}")); resp.StatusCode != 200 || body != "begun" {
			t.Errorf("answered %d %q", resp.StatusCode, body)
		}
	}
	for name, f := range map[string]func(t *testing.T){
		"stream": func(t *testing.T) {
			if resp, body := w.do("POST", "/stream", drip()); resp.StatusCode != 200 || body != "8\n" {
				t.Errorf("answered %d %q", resp.StatusCode, body)
			}
		},
		"JSON": func(t *testing.T) {
			if resp, body := w.do("POST", "/json", drip()); resp.StatusCode != 408 {
				t.Errorf("answered %d %q", resp.StatusCode, body)
			}
		},
		"slow handler": func(t *testing.T) { wait(t, w.client) },
		"slow handler, HTTP/2": func(t *testing.T) {
			tr := &http.Transport{Protocols: new(http.Protocols)}
			tr.Protocols.SetUnencryptedHTTP2(true)
			defer tr.CloseIdleConnections()
			wait(t, &http.Client{Transport: tr})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t)
		})
	}
}

// TestSlowReader takes nothing of a long answer.
func TestSlowReader(t *testing.T) {
	ended := make(chan error, 1)
	w := start(t, auth.Policy{NoAuth: true}, server.Options{WriteTimeout: 200 * time.Millisecond}, server.Route{Pattern: "GET /long", Stream: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				ended <- err
				return
			}
		}
	})})
	conn := w.raw()
	if _, err := io.WriteString(conn, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the server writes for ever")
	}
}

// TestSlowTaker takes a long answer, which the handler writes at once, for longer than the
// timeout.
func TestSlowTaker(t *testing.T) {
	const timeout, size = 2 * time.Second, 24 << 20
	w := start(t, auth.Policy{NoAuth: true}, server.Options{WriteTimeout: timeout}, server.Route{Pattern: "GET /large", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, size))
	})})
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err == nil {
					err = c.(*net.TCPConn).SetReadBuffer(64 << 10) // else this machine takes it for us
				}
				return c, err
			}}
			tr.Protocols.SetHTTP1(version == "HTTP/1.1")
			tr.Protocols.SetUnencryptedHTTP2(version == "HTTP/2")
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Get(w.url + "/large")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			n := int64(0)
			for err == nil {
				var some int64
				some, err = io.CopyN(io.Discard, resp.Body, size/50)
				n += some
				time.Sleep(2 * timeout / 50)
			}
			if n != size || !errors.Is(err, io.EOF) {
				t.Errorf("of %d bytes came %d: %v", size, n, err)
			}
		})
	}
}

func TestAPI01_Giants(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "POST /json", Handler: echo}, server.Route{Pattern: "POST /data", MaxBody: 2 << 20, Handler: echo})
	var read atomic.Int64
	giant := io.LimitReader(readerFunc(func(p []byte) (int, error) { read.Add(int64(len(p))); return len(p), nil }), 100<<20)
	resp, body := w.do("POST", "/json", giant)
	problem(t, resp, body, 413, server.CodeTooLarge)
	if n := read.Load(); n > 16<<20 {
		t.Errorf("%d bytes of a body that is too long were taken", n)
	}
	conn := w.raw()
	fmt.Fprintf(conn, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", int64(1)<<62)
	if got := status(t, conn); got != 413 {
		t.Errorf("a body of 4 EiB: %d", got)
	}
	if resp, body := w.do("POST", "/json", strings.NewReader(strings.Repeat("x", server.MaxBody))); body != fmt.Sprintln(server.MaxBody) {
		t.Errorf("a body of just the allowed size: %d %q", resp.StatusCode, body)
	}
	if resp, body := w.do("POST", "/data", strings.NewReader(strings.Repeat("x", 2<<20))); body != fmt.Sprintln(2<<20) {
		t.Errorf("a route with a bound of its own: %d %q", resp.StatusCode, body)
	}
	for name, head := range map[string]string{
		"one long header": "X-A: " + strings.Repeat("a", 1<<20),
		"many headers":    strings.Repeat("X-A: a\r\n", 100_000),
		"long path":       "",
	} {
		conn := w.raw()
		path := "/health"
		if head == "" {
			path += strings.Repeat("a", 1<<20)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", path, head) // may be cut off before the end
		if got := status(t, conn); got != 431 && got != 0 {
			t.Errorf("%s: %d", name, got)
		}
	}
	if resp, _ := w.do("GET", "/health", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestMalformed requests get an answer that tells nothing, or none.
func TestLEAK10_MalformedRequests(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "POST /json", Handler: echo})
	for _, request := range []string{
		"\x00\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"GET /health HTTP/1.1\r\nHost: local host\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\nX : y\r\n\r\n",
		"POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"POST /json HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n", "POST /json HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n\r\n", "GET http://evil.test/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 100),
	} {
		conn := w.raw()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(conn)
		for _, leak := range []string{" 200 ", "goroutine", ".go:", "panic"} {
			if strings.Contains(string(answer), leak) {
				t.Errorf("%q is answered with %q", request, answer)
			}
		}
	}
	if strings.Contains(w.log.String(), "panic") {
		t.Error("the server panicked")
	}
}

// TestHTTP2 has both versions on one port, in the clear and with TLS.
func TestHTTP2(t *testing.T) {
	proto := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	routes := []server.Route{{Pattern: "GET /proto", Handler: proto}, {Pattern: "POST /json", Handler: echo}}
	certFile, keyFile := certificate(t, t.TempDir(), "one")
	cert, err := server.LoadCertificate(certFile, keyFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]server.Options{"clear": {}, "TLS": {TLS: cert.Config()}} {
		w := start(t, auth.Policy{NoAuth: true}, opts, routes...)
		url := w.url
		if opts.TLS != nil {
			url = strings.Replace(url, "http:", "https:", 1)
		}
		for want, only := range map[string]func(*http.Protocols){
			"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
			"HTTP/2.0": func(p *http.Protocols) { p.SetHTTP2(opts.TLS != nil); p.SetUnencryptedHTTP2(opts.TLS == nil) },
		} {
			tr := &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			only(tr.Protocols)
			c := &http.Client{Transport: tr}
			if resp, body := w.with(c, "GET", url+"/proto", nil); resp.StatusCode != 200 || body != want {
				t.Errorf("%s, %s: %d %q", name, want, resp.StatusCode, body)
			}
			resp, body := w.with(c, "POST", url+"/json", io.LimitReader(readerFunc(func(p []byte) (int, error) { return len(p), nil }), 3<<20))
			problem(t, resp, body, 413, server.CodeTooLarge)
			tr.CloseIdleConnections()
		}
	}
}

// TestBrokenBody: a body that breaks off, or has no form, is its sender's error.
func TestBrokenBody(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "POST /json", Handler: echo}, server.Route{Pattern: "POST /stream", Stream: true, Handler: echo})
	for _, path := range []string{"/json", "/stream"} {
		for _, rest := range []string{"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nab", "Content-Length: 9\r\n\r\nab"} {
			conn := w.raw()
			if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\n"+rest); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := status(t, conn); got != 400 {
				t.Errorf("%s, %q: %d", path, rest, got)
			}
		}
	}
	if strings.Contains(w.log.String(), "level=ERROR") {
		t.Errorf("it counts as the server's error: %s", w.log.String())
	}
}
