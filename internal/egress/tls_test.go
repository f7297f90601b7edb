package egress_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"agentbox/internal/egress"
)

// hello gives the bytes with which a client of TLS begins.
func hello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, c).Handshake()
	}()
	b := make([]byte, 64<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	client.Close()
	return b[:n]
}

// fragmented cuts the message of a record into records of n bytes.
func fragmented(record []byte, n int) []byte {
	var out []byte
	for body := record[5:]; len(body) > 0; {
		part := body[:min(n, len(body))]
		out = append(append(out, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part))), part...)
		body = body[len(part):]
	}
	return out
}

// TestB146_ServerName: the handshake must be for the host that was asked for.
func TestB146_ServerName(t *testing.T) {
	l := newLab(t)
	var got atomic.Int64
	l.serve(allowedAddr, 443, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		got.Add(n)
	})
	d := l.open(l.session("allowed.test", "also.test", "198.51.100.10"))
	plain := func(name string) []byte { return hello(t, &tls.Config{ServerName: name, InsecureSkipVerify: true}) }
	for i, c := range []struct {
		name, target string
		first        []byte
		code         egress.Code // "": passes
	}{
		{"the same", "allowed.test:443", plain("allowed.test"), ""},
		{"upper case", "allowed.test:443", plain("ALLOWED.test"), ""},
		{"another", "allowed.test:443", plain("denied.test"), egress.CodeServerName},
		{"another that is allowed", "allowed.test:443", plain("also.test"), egress.CodeServerName},
		{"a name below", "allowed.test:443", plain("x.allowed.test"), egress.CodeServerName},
		{"none", "allowed.test:443", plain(""), egress.CodeNoServerName},
		{"none, for an address", "198.51.100.10:443", plain(""), ""},
		{"an allowed name, for an address", "198.51.100.10:443", plain("allowed.test"), ""},
		{"another name, for an address", "198.51.100.10:443", plain("denied.test"), egress.CodeServerName},
		{"in pieces", "allowed.test:443", fragmented(plain("allowed.test"), 7), ""},
		{"another, in pieces", "allowed.test:443", fragmented(plain("denied.test"), 7), egress.CodeServerName},
		{"no ClientHello", "allowed.test:443", []byte("\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00"), egress.CodeHello},
		{"no end", "allowed.test:443", append([]byte("\x16\x03\x01\x40\x00\x01\x00\xff\xff"), make([]byte, 40<<10)...), egress.CodeHello},
		{"cut off", "allowed.test:443", plain("allowed.test")[:60], egress.CodeHello},
		{"behind empty records", "allowed.test:443", append([]byte("\x16\x03\x01\x00\x00"), plain("denied.test")...), egress.CodeHello},
		{"behind another record", "allowed.test:443", append([]byte("\x14\x03\x03\x00\x01\x01"), plain("denied.test")...), egress.CodeNoTLS},
		{"SSL 2", "allowed.test:443", []byte("\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10"), egress.CodeNoTLS},
		{"text", "allowed.test:443", []byte("EHLO x\r\n"), egress.CodeNoTLS},
		{"SSH", "allowed.test:443", []byte("SSH-2.0-x\r\n"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			before := got.Load()
			p := d.tunnel(c.target)
			// In two writes: the check waits for the rest.
			_, _ = p.Write(c.first[:len(c.first)/2])
			_, _ = p.Write(c.first[len(c.first)/2:])
			_ = p.CloseWrite()
			answer, _ := p.rest()
			r := l.record(i)
			if r.Code != c.code {
				t.Errorf("the record is %+v, want code %q", r, c.code)
			}
			passed := got.Load() - before
			if c.code == "" && passed != int64(len(c.first)) {
				t.Errorf("%d of %d bytes reached the server", passed, len(c.first))
			}
			if c.code != "" && (passed != 0 || r.BytesUp != 0 || r.Verdict != egress.Denied) {
				t.Errorf("%d bytes reached the server: %+v", passed, r)
			}
			if c.code != "" && c.first[0] == 0x16 && answer != "\x15\x03\x03\x00\x02\x02\x31" {
				t.Errorf("the client is told %x", answer)
			}
		})
	}
}

// TestB146_OuterName: of an encrypted ClientHello the outer name counts, since the
// inner one can't be seen.
func TestB146_OuterName(t *testing.T) {
	// HPKE with X25519, HKDF-SHA256 and AES-128-GCM; the public name is outer.test.
	config := append([]byte{0xfe, 0x0d, 0, 0, 7, 0, 0x20, 0, 0x20}, bytes.Repeat([]byte{9}, 32)...)
	config = append(config, 0, 4, 0, 1, 0, 1, 0, 10)
	config = append(config, "outer.test"...)
	config = append(config, 0, 0)
	config[3] = byte(len(config) - 4)
	list := append([]byte{0, byte(len(config))}, config...)
	first := hello(t, &tls.Config{ServerName: "inner.test", EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13})

	l := newLab(t)
	l.serve(allowedAddr, 443, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	l.name("outer.test", allowedAddr)
	l.name("inner.test", allowedAddr)
	d := l.open(l.session("inner.test", "outer.test"))
	for i, c := range []struct {
		target string
		code   egress.Code
	}{{"inner.test:443", egress.CodeServerName}, {"outer.test:443", ""}} {
		p := d.tunnel(c.target)
		_, _ = p.Write(first)
		_ = p.CloseWrite()
		_, _ = p.rest()
		if r := l.record(i); r.Code != c.code {
			t.Errorf("%s: %+v", c.target, r)
		}
	}
}

// TestB149_OtherPorts: what is no TLS works where the policy names the port, also
// when the server speaks first, when the client says little, and beside a check.
func TestB149_OtherPorts(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-banner\r\n")
		echo(c)
	})
	l.serve(allowedAddr, 2223, echo)
	l.serve(allowedAddr, 443, func(c net.Conn) {
		_, _ = io.WriteString(c, "220 ready\r\n")
		echo(c)
	})
	d := l.open(l.session("allowed.test", "allowed.test:2222", "allowed.test:2223"))

	p := d.tunnel("allowed.test:2222")
	if got := p.read(16); got != "SSH-2.0-banner\r\n" {
		t.Fatalf("the banner is %q", got)
	}
	p.send("GET x")
	if got := p.read(5); got != "GET x" {
		t.Errorf("got %q", got)
	}
	p = d.tunnel("allowed.test:443")
	if got := p.read(11); got != "220 ready\r\n" {
		t.Fatalf("the banner is %q", got)
	}
	p.send("EHLO")
	if got := p.read(4); got != "EHLO" {
		t.Errorf("got %q", got)
	}
	for _, text := range []string{"ping", "x", "\x00", "\x16", "*1\r\n$4\r\nPING\r\n", "hello\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		p := d.tunnel("allowed.test:2223")
		p.send("%s", text)
		if text == "\x16" {
			continue // the beginning of TLS: it waits
		}
		if got := p.read(len(text)); got != text {
			t.Errorf("%q: got %q", text, got)
		}
	}
	if resp, _ := d.dial().ask("CONNECT allowed.test:2224 HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("port 2224: %s", resp.Status)
	}
	// Servers that skip what stands before a request would take these for requests
	// of any host.
	for _, before := range []string{" ", "\t", "\r\n ", "\v\f"} {
		p := d.tunnel("allowed.test:2223")
		p.send("%sGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", before)
		if resp, _ := p.answer("GET"); resp.StatusCode != 400 {
			t.Errorf("a request behind %q: %s", before, resp.Status)
		}
	}
}

// TestHostInTunnels: plain HTTP in a tunnel must be for the host of the tunnel,
// each request anew.
func TestHostInTunnels(t *testing.T) {
	l := newLab(t)
	for _, port := range []uint16{80, 443, 8080} {
		l.web(allowedAddr, port, ok("allowed"))
	}
	d := l.open(l.session("allowed.test", "allowed.test:8080", "198.51.100.10"))
	for _, c := range []struct {
		target, request string
		want            int
	}{
		{"allowed.test:80", "GET / HTTP/1.1\r\nHost: allowed.test", 200},
		{"allowed.test:80", "GET / HTTP/1.1\r\nHost: ALLOWED.test.:80", 200},
		{"allowed.test:80", "GET / HTTP/1.1\r\nHost: evil.test", 403},
		{"allowed.test:80", "GET / HTTP/1.1\r\nHost: allowed.test:8080", 403},
		{"allowed.test:80", "GET / HTTP/1.0", 403},
		{"allowed.test:80", "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test", 400},
		{"allowed.test:80", "CONNECT evil.test:443 HTTP/1.1\r\nHost: allowed.test", 400},
		{"allowed.test:80", "\r\nFOO / HTTP/1.1\r\nHost: evil.test", 403},
		{"allowed.test:8080", "GET / HTTP/1.1\r\nHost: allowed.test:8080", 200},
		{"allowed.test:8080", "FOO / HTTP/1.1\r\nHost: evil.test", 403},
		{"allowed.test:8080", "\r\nGET / HTTP/1.1\r\nHost: evil.test", 403},
		{"allowed.test:8080", "get\t/ http/1.1\r\nHost: evil.test", 400},
		{"allowed.test:443", "GET / HTTP/1.1\r\nHost: allowed.test", 200},
		{"allowed.test:443", "GET / HTTP/1.1\r\nHost: evil.test", 403},
		{"198.51.100.10:80", "GET / HTTP/1.1\r\nHost: 198.51.100.10", 200},
		{"198.51.100.10:80", "GET / HTTP/1.1\r\nHost: allowed.test", 200},
		{"198.51.100.10:80", "GET / HTTP/1.1\r\nHost: evil.test", 403},
	} {
		p := d.tunnel(c.target)
		p.send("%s\r\n\r\n", c.request)
		if resp, body := p.answer("GET"); resp.StatusCode != c.want {
			t.Errorf("%s %q: %s %q, want %d", c.target, c.request, resp.Status, body, c.want)
		}
	}
	p := d.tunnel("allowed.test:80")
	for i, host := range []string{"allowed.test", "evil.test", "allowed.test"} {
		p.send("GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", i, host)
		if resp, body := p.answer("GET"); resp.StatusCode != map[bool]int{true: 200, false: 403}[host == "allowed.test"] {
			t.Errorf("request %d for %s: %s %q", i, host, resp.Status, body)
		}
	}
}

// openName serves connections to a name, as the sandbox's resolver makes them.
func (l *lab) openName(s *egress.Session, name string, port uint16) *door {
	p := l.proxy()
	return &door{lab: l, s: s, p: p, addr: l.accept(func(ctx context.Context, c net.Conn) { p.ServeName(ctx, c, s, name, port) })}
}

// TestTransparent: connections to a name without a proxy.
func TestTransparent(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	l.web(allowedAddr, 443, ok("allowed"), "allowed.test")
	l.serve(allowedAddr, 2222, echo)
	s := l.session("allowed.test", "allowed.test:2222")
	for _, c := range []struct {
		name, host string
		want       int
	}{{"allowed.test", "allowed.test", 200}, {"Allowed.test.", "allowed.test", 200}, {"allowed.test", "evil.test", 403}, {"evil.test", "evil.test", 403}} {
		p := l.openName(s, c.name, 80).dial()
		p.send("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", c.host)
		if resp, body := p.answer("GET"); resp.StatusCode != c.want {
			t.Errorf("%s, Host %s: %s %q", c.name, c.host, resp.Status, body)
		}
	}
	d := l.openName(s, "allowed.test", 443)
	for name, good := range map[string]bool{"allowed.test": true, "evil.test": false} {
		c := tls.Client(d.dial(), &tls.Config{ServerName: name, RootCAs: l.ca.pool})
		if err := c.Handshake(); good != (err == nil) || !good && !strings.Contains(err.Error(), "access denied") {
			t.Errorf("TLS for %s: %v", name, err)
		}
	}
	c := tls.Client(l.openName(s, "evil.test", 443).dial(), &tls.Config{ServerName: "evil.test"})
	if err := c.Handshake(); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("TLS for a denied host: %v", err)
	}
	p := l.openName(s, "allowed.test", 2222).dial()
	p.send("ping")
	if got := p.read(4); got != "ping" {
		t.Errorf("got %q", got)
	}
	for name, port := range map[string]uint16{"allowed.test": 2223, "127.1": 80} {
		raw, err := net.Dial("tcp", l.openName(s, name, port).addr)
		if err == nil {
			_, err = io.ReadAll(raw)
			raw.Close()
		}
		if err == nil {
			t.Errorf("%s:%d ends without a reset", name, port)
		}
	}
	if l.reached(evilAddr) {
		t.Errorf("dialled: %v", l.dialled)
	}
}
