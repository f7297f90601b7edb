package egress_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
)

// minter has certificates for some hosts.
type minter struct {
	certs map[string]*tls.Certificate
	err   error
}

func (m minter) Certificate(_ *egress.Session, host string) (*tls.Certificate, error) {
	if m.certs[host] == nil && m.err == nil {
		return nil, errors.New("nobody asks for it")
	}
	return m.certs[host], m.err
}

// intercepted is a session whose sandbox may reach hosts, of which TLS to
// allowed.test is intercepted.
func (l *lab) intercepted(allow ...string) *egress.Session {
	l.t.Helper()
	p, err := policy.Compile(policy.Spec{Allow: allow, Intercept: []string{"allowed.test"}})
	if err != nil {
		l.t.Fatal(err)
	}
	return l.sessionOf(egress.SessionOptions{Sandbox: "s1", Owner: "t1", Policy: p})
}

// vault puts the secret in place of what the sandbox has of it.
type vault struct{}

func (vault) Wants(_ *egress.Session, t policy.Target) bool { return t.Host() == "allowed.test" }

func (v vault) Inject(s *egress.Session, t policy.Target, h http.Header) ([]string, error) {
	if !v.Wants(s, t) {
		return nil, nil
	}
	switch h.Get("X-Key") {
	case "broken":
		return nil, errors.New("secret X: broken")
	case "placeholder-" + s.Sandbox():
		h.Set("X-Key", secret)
	}
	return []string{secret}, nil
}

// secret is what the vault has.
const secret = "sk-secret-value"

func interceptingLab(t *testing.T) (*lab, *authority) {
	l := newLab(t)
	sandboxCA := newAuthority(t)
	l.options.Intercept = minter{certs: map[string]*tls.Certificate{"allowed.test": sandboxCA.leaf("allowed.test")}}
	l.options.Secrets = vault{}
	m := site(t).(*http.ServeMux)
	var last atomic.Value
	m.HandleFunc("/last", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "last.txt", time.Time{}, strings.NewReader(last.Load().(string)))
	})
	m.HandleFunc("/key", func(w http.ResponseWriter, r *http.Request) {
		last.Store(r.Header.Get("X-Key"))
		_, _ = io.WriteString(w, r.Method+" "+r.Header.Get("X-Key"))
	})
	m.HandleFunc("/length", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, len(r.Header.Get("X-Key"))) })
	m.HandleFunc("/repeat", repeatKey)
	m.HandleFunc("/says", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Query().Get("what")) })
	l.web(allowedAddr, 443, m, "allowed.test", "direct.test")
	l.web(allowedAddr, 80, m)
	l.name("direct.test", allowedAddr)
	return l, sandboxCA
}

// TestIntercepted: the flows of TestNET03_Flows with the proxy in between.
func TestIntercepted(t *testing.T) {
	l, ca := interceptingLab(t)
	l.options.Secrets = nil // there is nothing to hide
	d := l.open(l.intercepted("allowed.test", "direct.test"))
	c := d.clientWith("http", &tls.Config{RootCAs: ca.pool})
	f := flows{c: c, url: "https://allowed.test", size: 5 << 20}
	for name, flow := range map[string]func(*testing.T){
		"post": f.post, "chunked": f.chunked, "range": f.ranged, "download": f.download, "trailers": f.trailers, "redirect": f.redirect, "head": f.head,
		"bodiless": f.bodiless, "hints": f.hints, "compressed": f.compressed, "expect": f.expect, "expect refused": f.expectRefused, "websocket": f.webSocket, "duplex": f.duplex,
	} {
		t.Run(name, flow)
	}
	if _, body := get(t, c, "https://allowed.test/hello"); body != "hello HTTP/1.1 allowed.test" {
		t.Errorf("got %q", body)
	}
	// A host that is not named for it is nobody's business.
	if _, body := get(t, d.client("http"), "https://direct.test/hello"); body != "hello HTTP/2.0 direct.test" {
		t.Errorf("got %q", body)
	}
}

// TestSecretsGoToTheServerOnly, over TLS only.
func TestSecretsGoToTheServerOnly(t *testing.T) {
	l, ca := interceptingLab(t)
	d := l.open(l.intercepted("allowed.test"))
	c := d.clientWith("http", &tls.Config{RootCAs: ca.pool})
	ask := func(method, url string) (int, string) {
		r, _ := http.NewRequest(method, url, nil)
		r.Header.Set("X-Key", "placeholder-s1")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if _, body := ask("GET", "https://allowed.test/length"); body != "15" {
		t.Errorf("over TLS: %q", body)
	}
	if _, body := ask("GET", "https://allowed.test/key"); body != "GET "+strings.Repeat("*", len(secret)) {
		t.Errorf("repeated by the server: %q", body)
	}
	if _, body := ask("GET", "http://allowed.test/key"); body != "GET placeholder-s1" {
		t.Errorf("in clear: %q", body)
	}
	if status, body := ask("TRACE", "https://allowed.test/key"); status != 403 {
		t.Errorf("TRACE: %d %q", status, body)
	}
}

// TestMethodsAndPaths: rules for requests hold where they can be seen, and nothing
// passes where they can't.
func TestMethodsAndPaths(t *testing.T) {
	l, ca := interceptingLab(t)
	d := l.open(l.session("GET allowed.test/hello*", "GET http://direct.test/hello*", "HEAD http://direct.test:443/"))
	seen, unseen := d.clientWith("http", &tls.Config{RootCAs: ca.pool}), d.client("http")
	for _, c := range []struct {
		client      *http.Client
		method, url string
		want        int // 0: the connection fails
	}{
		{seen, "GET", "https://allowed.test/hello", 200}, {seen, "POST", "https://allowed.test/hello", 403}, {seen, "GET", "https://allowed.test/key", 403},
		{seen, "GET", "https://allowed.test/hello/../key", 403}, {seen, "GET", "http://allowed.test/hello?x", 200}, {seen, "POST", "http://allowed.test/hello", 403},
		{seen, "GET", "http://allowed.test/hello/%2e%2e/key", 403}, {unseen, "GET", "https://direct.test/hello", 0}, {unseen, "GET", "http://direct.test/hello", 200},
	} {
		n := l.recorded()
		r, _ := http.NewRequest(c.method, c.url, nil)
		resp, err := c.client.Do(r)
		if err != nil {
			if c.want != 0 {
				t.Errorf("%s %s: %v", c.method, c.url, err)
			} else if rec := l.record(n); rec.Code != egress.CodeUnseen || rec.Verdict != egress.Denied {
				t.Errorf("%s %s: the record is %+v", c.method, c.url, rec)
			}
			continue
		}
		resp.Body.Close()
		rec := l.record(n)
		if resp.StatusCode != c.want || rec.Method != c.method || rec.Path == "" || c.want == 403 && (rec.Code != egress.CodeRequest || resp.Header.Get(egress.CodeHeader) != "request_not_allowed") {
			t.Errorf("%s %s: %s, want %d; the record is %+v", c.method, c.url, resp.Status, c.want, rec)
		}
	}
	if asks := d.s.Requests(); len(asks) > 0 {
		t.Errorf("hosts that are allowed are asked for: %+v", asks)
	}
}

// TestInterceptionFails: closed, never open.
func TestInterceptionFails(t *testing.T) {
	l, _ := interceptingLab(t)
	d := l.open(l.intercepted("allowed.test"))
	// The client does not know the sandbox's authority.
	if _, err := d.client("http").Get("https://allowed.test/"); err == nil {
		t.Error("a client takes a certificate that it does not know")
	}
	if r := l.record(0); r.Code != egress.CodeMintFailed || !r.Intercepted {
		t.Errorf("the record is %+v", r)
	}
	l.options.Intercept = minter{err: errors.New("no key")}
	if _, err := l.open(l.intercepted("allowed.test")).client("http").Get("https://allowed.test/"); err == nil {
		t.Error("without a certificate the connection passes")
	}
	// The server's certificate is another host's.
	l2, ca := interceptingLab(t)
	l2.web(evilAddr, 443, ok("evil"), "evil.test")
	l2.name("allowed.test", evilAddr)
	resp, body := get(t, l2.open(l2.intercepted("allowed.test")).clientWith("http", &tls.Config{RootCAs: ca.pool}), "https://allowed.test/")
	if resp.StatusCode != 502 || body != "Proxy error: the server's certificate is not good for this host" {
		t.Errorf("got %s %q", resp.Status, body)
	}
}

// TestWebSocketOnlyUpgrade: no upgrade leads to a form in which requests are not
// judged.
func TestWebSocketOnlyUpgrade(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" || r.Header.Get("Http2-Settings") != "" {
			t.Errorf("the server sees %v", r.Header)
		}
		_, _ = io.WriteString(w, "plain")
	}))
	l.serve(allowedAddr, 81, func(c net.Conn) {
		readHead(c)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("behind the upgrade comes %q", b)
		}
	})
	d := l.open(l.session("allowed.test", "allowed.test:81"))
	const fields = " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	if resp, body := d.dial().ask("GET http://allowed.test/" + fields); resp.StatusCode != 200 || body != "plain" {
		t.Errorf("got %s %q", resp.Status, body)
	}
	if resp, _ := d.dial().ask("GET http://allowed.test:81/" + fields); resp.StatusCode != 502 {
		t.Errorf("an upgrade that was not asked for: %s", resp.Status)
	}
	// A server that repeats a status it was told is no server of WebSockets.
	p := d.dial()
	if resp, _ := p.ask("GET http://allowed.test:81/status/101 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"); resp.StatusCode != 502 {
		t.Errorf("an upgrade that no WebSocket server accepted: %s", resp.Status)
	}
	_, _ = io.WriteString(p, "GET /admin HTTP/1.1\r\nHost: evil.test\r\n\r\n")
}

// TestWebSocketEnd: the end of one side ends the other, with a record.
func TestWebSocketEnd(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	d := l.open(l.session("allowed.test"))
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://allowed.test/ws", &websocket.DialOptions{HTTPClient: d.client("http")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(ctx, websocket.MessageText, bytes.Repeat([]byte("x"), 10_000)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	if r := l.record(0); r.Verdict != egress.Allowed || r.Status != 101 || r.Path != "/ws" || r.BytesUp < 10_000 || r.BytesDown < 10_000 {
		t.Errorf("the record is %+v", r)
	}
}

// TestInterceptedServers: what is wrong with a server's certificate or its TLS is
// told in words; nothing is sent to it.
func TestInterceptedServers(t *testing.T) {
	l, ca := interceptingLab(t)
	now := time.Now()
	late := l.ca.leaf("allowed.test")
	cert, key := l.ca.sign(&x509.Certificate{
		SerialNumber: big.NewInt(7), DNSNames: []string{"allowed.test"}, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour),
	}, l.ca)
	late.Certificate, late.PrivateKey = [][]byte{cert.Raw}, key
	c := l.open(l.intercepted("allowed.test")).clientWith("http", &tls.Config{RootCAs: ca.pool})
	for _, server := range []struct {
		name string
		tls  *tls.Config // nil: it speaks none
		want string
	}{
		{"no TLS", nil, "the server does not speak TLS 1.2 or later with the proxy"},
		{"old TLS", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, Certificates: []tls.Certificate{*l.ca.leaf("allowed.test")}}, "the server does not speak TLS 1.2 or later with the proxy"},
		{"unknown authority", &tls.Config{Certificates: []tls.Certificate{*newAuthority(t).leaf("allowed.test")}}, "the server's certificate is of no authority that the proxy trusts"},
		{"the sandbox's authority", &tls.Config{Certificates: []tls.Certificate{*ca.leaf("allowed.test")}}, "the server's certificate is of no authority that the proxy trusts"},
		{"another name", &tls.Config{Certificates: []tls.Certificate{*l.ca.leaf("other.test")}}, "the server's certificate is not good for this host"},
		{"expired", &tls.Config{Certificates: []tls.Certificate{*late}}, "the server's certificate has expired, or is not valid yet"},
	} {
		var sent atomic.Int64
		l.serve(allowedAddr, 443, func(conn net.Conn) {
			if server.tls == nil {
				_, _ = conn.Read(make([]byte, 1))
				_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
				return
			}
			s := tls.Server(conn, server.tls)
			if s.Handshake() == nil {
				n, _ := io.Copy(io.Discard, s)
				sent.Add(n)
			}
		})
		n := l.recorded()
		resp, body := get(t, c, "https://allowed.test/")
		if resp.StatusCode != 502 || body != "Proxy error: "+server.want || sent.Load() != 0 {
			t.Errorf("%s: %s %q, and it was sent %d bytes", server.name, resp.Status, body, sent.Load())
		}
		if r := l.record(n); r.Verdict != egress.Failed || r.Code != egress.CodeForward || r.Reason != server.want || !r.Intercepted {
			t.Errorf("%s: the record is %+v", server.name, r)
		}
	}
}

// TestInterceptedClients that can't be intercepted get an error, and the record
// says why.
func TestInterceptedClients(t *testing.T) {
	l, ca := interceptingLab(t)
	d := l.open(l.intercepted("allowed.test"))
	pinned := errors.New("pinned")
	for name, c := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"pins":        {&tls.Config{RootCAs: ca.pool, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return pinned }}, "refuses the proxy's certificate"},
		"other roots": {&tls.Config{RootCAs: l.ca.pool}, "refuses the proxy's certificate"},
		"HTTP/2 only": {&tls.Config{RootCAs: ca.pool, NextProtos: []string{"h2"}}, "speaks no HTTP/1.1"},
		"old TLS":     {&tls.Config{RootCAs: ca.pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}, "speaks no TLS 1.2"},
	} {
		n := l.recorded()
		c.config.ServerName = "allowed.test"
		p := d.tunnel("allowed.test:443")
		if err := tls.Client(p, c.config).Handshake(); err == nil {
			t.Errorf("%s: the handshake went well", name)
		}
		p.Close()
		if r := l.record(n); r.Code != egress.CodeMintFailed || !strings.Contains(r.Reason, c.want) || !r.Intercepted {
			t.Errorf("%s: the record is %+v", name, r)
		}
	}
}
