package egress_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"agentbox/internal/egress"
)

// TestNET04_Denied: each way to a host that is not allowed is refused with a code
// and recorded once. Also B126: CONNECT, too.
func TestNET04_Denied(t *testing.T) {
	l := newLab(t)
	d := l.open(l.session("allowed.test"))
	for i, c := range []struct {
		kind egress.Kind
		port uint16
		ask  func(*peer)
	}{
		{egress.KindHTTP, 80, func(p *peer) {
			if resp, body := p.ask("GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"); resp.StatusCode != 403 || body != "Host not allowed: evil.test" || resp.Header.Get(egress.CodeHeader) != "host_not_allowed" {
				t.Errorf("GET: %s %q", resp.Status, body)
			}
		}},
		{egress.KindConnect, 443, func(p *peer) {
			// Programs show the line of the answer to CONNECT, and no more.
			if resp, body := p.ask("CONNECT evil.test:443 HTTP/1.1\r\n\r\n"); resp.Status != "403 Host not allowed: evil.test" || body != "Host not allowed: evil.test" {
				t.Errorf("CONNECT: %s %q", resp.Status, body)
			}
		}},
		{egress.KindSOCKS, 443, func(p *peer) {
			if code := p.socksName("evil.test", 443); code != 2 {
				t.Errorf("SOCKS: reply %d", code)
			}
		}},
	} {
		c.ask(d.dial())
		if r := l.record(i); r.Verdict != egress.Denied || r.Code != egress.CodeHost || r.Kind != c.kind || r.Name != "evil.test" || r.Port != c.port || r.Sandbox != "s1" || r.Reason == "" {
			t.Errorf("the record is %+v", r)
		}
	}
	if len(l.asked) > 0 || len(l.dialled) > 0 || l.recorded() != 3 {
		t.Errorf("resolved %v, dialled %v, %d records", l.asked, l.dialled, l.recorded())
	}
}

func TestB126_ConnectIsJudged(t *testing.T) { TestNET04_Denied(t) }

// socks sends a request of SOCKS5 and gives the code of the reply.
func (p *peer) socks(kind byte, address []byte, port uint16) byte {
	p.t.Helper()
	p.send("\x05\x02\x02\x00")
	if got := p.read(2); got != "\x05\x00" {
		p.t.Fatalf("the greeting is answered with %q", got)
	}
	b := append([]byte{5, 1, 0, kind}, address...)
	p.send("%s", binary.BigEndian.AppendUint16(b, port))
	return p.read(10)[1]
}

func (p *peer) socksName(name string, port uint16) byte {
	p.t.Helper()
	return p.socks(3, append([]byte{byte(len(name))}, name...), port)
}

// TestNET05_Spellings: no way of writing an address leads to it, through any door.
// The names among them resolve to what they mean elsewhere.
func TestNET05_Spellings(t *testing.T) {
	spellings := strings.Fields("127.0.0.1 127.1 127.0.1 127.255.255.254 0 0.0.0.0 2130706433 017700000001 0x7f000001 0x7F.0.0.1 0177.0.0.1 127.0x0.0.1 " +
		"127.000.000.001 127.0.0.1. localhost LOCALHOST localhost. foo.localhost localhost.localdomain loopback.test 127。0。0。1 ①②⑦.0.0.1 127.0.0.1%20 " +
		"169.254.169.254 169.254.43518 169.16689662 2852039166 0xa9fea9fe 0xa9.0xfe.0xa9.0xfe 0251.0376.0251.0376 metadata.test 10.4325381 172097541 0x0a420005 " +
		"[::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::] [64:ff9b::7f00:1] [fd00:66::5]")
	l := newLab(t)
	all := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), netip.IPv4Unspecified(), metadataAddr, internalAddr}
	for _, a := range all {
		l.web(a, 80, ok("inside"))
	}
	for _, s := range spellings {
		l.name(strings.ToLower(strings.TrimSuffix(s, ".")), netip.MustParseAddr("127.0.0.1"))
	}
	l.name("metadata.test", metadataAddr)
	p, err := fullPolicy()
	if err != nil {
		t.Fatal(err)
	}
	// With everything public allowed: what is refused is refused for what it is.
	d := l.open(l.sessionOf(egress.SessionOptions{Sandbox: "s1", Policy: p}))
	for _, s := range spellings {
		for name, refused := range map[string]func() bool{
			"GET": func() bool {
				resp, _ := d.dial().ask("GET http://" + s + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
				return resp.StatusCode == 403 || resp.StatusCode == 400
			},
			"CONNECT": func() bool {
				resp, _ := d.dial().ask("CONNECT " + s + ":80 HTTP/1.1\r\nHost: x\r\n\r\n")
				return resp.StatusCode == 403 || resp.StatusCode == 400
			},
			"SOCKS": func() bool { return d.dial().socksName(strings.Trim(s, "[]"), 80) == 2 },
		} {
			if !refused() {
				t.Errorf("%s %s is not refused", name, s)
			}
		}
	}
	for _, a := range all {
		code := d.dial().socks(map[bool]byte{true: 1, false: 4}[a.Is4()], a.AsSlice(), 80)
		mapped := d.dial().socks(4, netip.AddrFrom16(a.As16()).AsSlice(), 80)
		if code != 2 || mapped != 2 {
			t.Errorf("SOCKS with the address %s: replies %d, %d", a, code, mapped)
		}
	}
	if len(l.dialled) > 0 {
		t.Errorf("dialled: %v", l.dialled)
	}
}

// TestNET11_Ports: 80 and 443 unless the policy names another.
func TestNET11_Ports(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	d := l.open(l.session("allowed.test", "allowed.test:2222"))
	for _, port := range []string{"22", "25", "2375", "3306", "5432", "6443", "8080", "0", "65536", "-1", "+80", "80 ", "0x50", "443x"} {
		if resp, _ := d.dial().ask("CONNECT allowed.test:" + port + " HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 && resp.StatusCode != 400 {
			t.Errorf("port %q: %s", port, resp.Status)
		}
	}
	if resp, _ := d.dial().ask("CONNECT allowed.test:2223 HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("port 2223: %s", resp.Status)
	}
	if len(l.dialled) > 0 {
		t.Errorf("dialled: %v", l.dialled)
	}
	d.tunnel("allowed.test:2222")
}

// TestNET14_Confusion: requests that two readers could take for two hosts.
func TestNET14_Confusion(t *testing.T) {
	l := newLab(t)
	for _, a := range []netip.Addr{allowedAddr, evilAddr} {
		l.web(a, 80, ok(a.String()))
		l.serve(a, 443, echo)
	}
	d := l.open(l.session("allowed.test"))
	for _, line := range []string{
		"GET http://allowed.test@evil.test/", "GET http://evil.test@allowed.test/", "GET http://evil.test#@allowed.test/", `GET http://evil.test\@allowed.test/`,
		`GET http://evil.test\\@allowed.test/`, "GET http://evil.test%23@allowed.test/", "GET http://allowed.test%00.evil.test/", "GET http://allowed.test%2eevil.test/",
		"CONNECT evil.test:443@allowed.test:443", "CONNECT http://evil.test:443/", "CONNECT https://allowed.test:443", "CONNECT /allowed.test:443", "GET //evil.test/",
		"GET http:/allowed.test/", "GET http:allowed.test", "GET http:\\\\allowed.test/", "GET http:// allowed.test/", "GET http://allowed.test:80:80/", "GET http://[allowed.test]/",
		"GET http://allowed.test,evil.test/", "GET http://allowed.test\tx/", "CONNECT allowed.test:443/evil", "CONNECT allowed.test:443?x", "CONNECT allowed.test:443#x",
		"GET\thttp://allowed.test/", "GET  http://allowed.test/", "GET http://allowed.test/ x", "G(T http://allowed.test/",
	} {
		resp, body := d.dial().ask(line + " HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
		if resp.StatusCode != 400 && resp.StatusCode != 403 {
			t.Errorf("%q: %s %q", line, resp.Status, body)
		}
	}
	for _, head := range []string{
		"GET http://allowed.test/ HTTP/2.0\r\n\r\n", "GET http://allowed.test/ HTTP/1.2\r\n\r\n", "GET http://allowed.test/\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\nHost: allowed.test\n\r\n\r\n", "GET http://allowed.test/ HTTP/1.1\r\n Host: x\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "GET http://allowed.test/ HTTP/1.1\r\nA : b\r\n\r\n", "GET http://allowed.test/ HTTP/1.1\r\nA: b\rc\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nA: b\x00\r\n\r\n", "GET http://allowed.test/ HTTP/1.1\r\nno field\r\n\r\n", "GET http://allowed.test/ HTTP/1.1\r\n: b\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		if resp, body := d.dial().ask(head); resp.StatusCode != 400 || body != "Invalid proxy request" {
			t.Errorf("%q: %s %q", head, resp.Status, body)
		}
	}
	if len(l.dialled) > 0 {
		t.Errorf("dialled: %v", l.dialled)
	}
}

// TestOtherProtocols: who takes the proxy for one of TLS or SOCKS4 hears at once that
// it is none, not when a head of a request should have ended.
func TestOtherProtocols(t *testing.T) {
	l := newLab(t)
	d := l.open(l.session())
	for what, first := range map[string]string{"TLS": "\x16\x03\x01\x02\x00\x01", "SOCKS4": "\x04\x01\x00\x50", "SSL 2": "\x80\x2e\x01", "nothing": "\x00"} {
		if resp, body := d.dial().ask(first); resp.StatusCode != 400 || body != "Invalid proxy request" {
			t.Errorf("%s: %s %q", what, resp.Status, body)
		}
	}
}

// TestB129_Spellings: the forms of one host are one host.
func TestB129_Spellings(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	l.name("xn--bcher-kva.test", allowedAddr)
	d := l.open(l.session("Allowed.test", "bücher.test"))
	for host, want := range map[string]int{
		"ALLOWED.test": 200, "allowed.test.": 200, "allowed.test:80": 200, "allowed.test:22": 403, "denied.test": 403,
		"bücher.test": 200, "BÜCHER.test": 200, "xn--bcher-kva.test": 200, "XN--BCHER-KVA.test": 200, "allowed.test%20denied.test": 400,
		"cafe": 403, "deadbeef:80": 403, "f00d.test": 403,
	} {
		if resp, body := d.dial().ask("GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != want {
			t.Errorf("%s: %s %q, want %d", host, resp.Status, body, want)
		}
	}
	if resp, _ := d.dial().ask("GET http://allowed.test denied.test/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 400 {
		t.Errorf("a blank: %s", resp.Status)
	}
}

// TestNET20_EachRequestIsJudged on one connection.
func TestNET20_EachRequestIsJudged(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	l.web(evilAddr, 80, ok("evil"))
	l.web(metadataAddr, 80, ok("metadata"))
	p := l.open(l.session("allowed.test")).dial()
	for i, c := range []struct {
		head string
		want int
	}{
		{"GET http://allowed.test/", 200}, {"GET http://evil.test/", 403}, {"GET http://169.254.169.254/", 403}, {"HEAD http://evil.test/", 403},
		{"CONNECT evil.test:443", 403}, {"GET /", 400}, {"GET http://allowed.test/", 200},
	} {
		if resp, _ := p.ask(c.head + " HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); resp.StatusCode != c.want {
			t.Fatalf("request %d, %s: %s", i, c.head, resp.Status)
		}
	}
	if l.reached(evilAddr) || l.reached(metadataAddr) {
		t.Errorf("dialled: %v", l.dialled)
	}
}

// TestNET20_Pipelined: the same, sent at once.
func TestNET20_Pipelined(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	p := l.open(l.session("allowed.test")).dial()
	p.send("POST http://allowed.test/sum HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello" +
		"GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n" +
		"POST http://allowed.test/sum HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" +
		"GET http://allowed.test/hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	for i, want := range []int{200, 403, 403, 200, 200} {
		if resp, body := p.answer("GET"); resp.StatusCode != want || want == 200 && i < 4 && !strings.HasPrefix(body, "5 ") {
			t.Fatalf("answer %d: %s %q", i, resp.Status, body)
		}
	}
	if rest, err := p.rest(); rest != "" || err != nil {
		t.Errorf("then came %q, %v", rest, err)
	}
}

// TestNET20_Smuggling: no second request hides in a body whose length can be read
// in two ways.
func TestNET20_Smuggling(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	d := l.open(l.session("allowed.test"))
	for _, fields := range []string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Length: 5\r\nContent-Length: 5",
		"Content-Length: 5\r\nContent-Length: 6", "Content-Length: 5, 5", "Content-Length: +5", "Content-Length: 0x5", "Content-Length: -1", "Content-Length:",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: xchunked",
		"Transfer-Encoding: \x0bchunked", "Transfer-Encoding:\tchunked, chunked", "Transfer-Encoding : chunked", "Content-Length: 99999999999999999999",
	} {
		p := d.dial()
		resp, body := p.ask("POST http://allowed.test/sum HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n\r\n0\r\n\r\nGET http://allowed.test/hello HTTP/1.1\r\nHost: x\r\n\r\n")
		if resp.StatusCode != 400 || body != "Invalid proxy request" {
			t.Errorf("%q: %s %q", fields, resp.Status, body)
		}
		if rest, _ := p.rest(); rest != "" {
			t.Errorf("%q: then came %q", fields, rest)
		}
	}
	if resp, _ := d.dial().ask("POST http://allowed.test/sum HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"); resp.StatusCode != 400 {
		t.Errorf("chunks of HTTP/1.0: %s", resp.Status)
	}
	if resp, _ := d.dial().ask("CONNECT allowed.test:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"); resp.StatusCode != 400 {
		t.Errorf("CONNECT with a body: %s", resp.Status)
	}
	if len(l.dialled) > 0 {
		t.Errorf("dialled: %v", l.dialled)
	}
}

// TestBrokenChunks: a body that breaks its framing ends the connection, and no
// server takes it for whole.
func TestBrokenChunks(t *testing.T) {
	l := newLab(t)
	whole := make(chan bool, 1)
	l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		whole <- err == nil
	}))
	for _, body := range []string{"x\r\n", "5\r\nhel", "5\r\nhelloX\r\n0\r\n\r\n", "-1\r\n", "FFFFFFFFFFFFFFFFF\r\n", "5;" + strings.Repeat("x", 5000) + "\r\nhello\r\n0\r\n\r\n"} {
		p := l.open(l.session("allowed.test")).dial()
		p.send("POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n%s", body)
		_ = p.CloseWrite()
		if <-whole {
			t.Errorf("%q: the server takes the body for whole", body)
		}
	}
}

// TestHeads: what a head may have, at most.
func TestHeads(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	d := l.open(l.session("allowed.test"))
	const line = "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n"
	for name, c := range map[string]struct {
		head string
		want int
	}{
		"20 KiB":       {line + "X: " + strings.Repeat("x", 20<<10) + "\r\n\r\n", 200},
		"40 KiB":       {line + "X: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", 431},
		"40 KiB line":  {"GET http://allowed.test/" + strings.Repeat("x", 40<<10) + " HTTP/1.1\r\n\r\n", 431},
		"200 fields":   {line + strings.Repeat("X: y\r\n", 200) + "\r\n", 200},
		"5,000 fields": {line + strings.Repeat("X: y\r\n", 5000) + "\r\n", 431},
	} {
		if resp, body := d.dial().ask(c.head); resp.StatusCode != c.want {
			t.Errorf("%s: %s %q, want %d", name, resp.Status, body, c.want)
		}
	}
}

// TestHTTP10: an old client gets an answer that it understands.
func TestHTTP10(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	p := l.open(l.session("allowed.test")).dial()
	p.send("GET http://allowed.test/big?n=100000 HTTP/1.0\r\n\r\n")
	resp, body := p.answer("GET")
	if len(body) != 100000 || len(resp.TransferEncoding) > 0 {
		t.Errorf("got %d bytes, %v", len(body), resp.TransferEncoding)
	}
	if rest, err := p.rest(); rest != "" || err != nil {
		t.Errorf("then came %q, %v", rest, err)
	}
}

// TestSOCKS_Odd: what is no proper request is refused without a lookup.
func TestSOCKS_Odd(t *testing.T) {
	l := newLab(t)
	d := l.open(l.session("allowed.test"))
	for _, name := range []string{"allowed.test\x00.evil.test", "allowed.test\n", "allowed test", "al\xffowed.test", "", "allowed.test:80", "a@allowed.test", "*.test", "..", strings.Repeat("a.", 127) + "a"} {
		if name == "" {
			if code := d.dial().socks(3, []byte{0}, 80); code == 0 {
				t.Error("no name is taken")
			}
			continue
		}
		if code := d.dial().socksName(name, 80); code == 0 {
			t.Errorf("%q is taken", name)
		}
	}
	for what, c := range map[string]struct {
		request string
		reply   byte
	}{
		"BIND":              {"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", 7},
		"UDP":               {"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50", 7},
		"kind 2":            {"\x05\x01\x00\x02\x7f\x00\x00\x01\x00\x50", 8},
		"reserved":          {"\x05\x01\x01\x01\x7f\x00\x00\x01\x00\x50", 1},
		"version 4":         {"\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x50", 1},
		"port 0":            {"\x05\x01\x00\x03\x0callowed.test\x00\x00", 2},
		"host not on list":  {"\x05\x01\x00\x03\x09evil.test\x00\x50", 2},
		"zone in a literal": {"\x05\x01\x00\x03\x09fe80::1%1\x00\x50", 2},
	} {
		p := d.dial()
		p.send("\x05\x01\x00")
		p.read(2)
		p.send("%s", c.request)
		if got := p.read(10); got[1] != c.reply {
			t.Errorf("%s: reply %d, want %d", what, got[1], c.reply)
		}
	}
	p := d.dial()
	p.send("\x05\x01\x02") // with a password, or not at all
	if got, _ := p.rest(); got != "\x05\xff" {
		t.Errorf("the greeting is answered with %q", got)
	}
	if len(l.asked) > 0 || len(l.dialled) > 0 {
		t.Errorf("resolved %v, dialled %v", l.asked, l.dialled)
	}
}

// TestB142_DeniedNamesAreNotResolved: data does not leave inside of names.
func TestB142_DeniedNamesAreNotResolved(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	d := l.open(l.session("allowed.test"))
	p := d.dial()
	for i := range 300 {
		name := fmt.Sprintf("s3cret-%d.exfil.test", i)
		p.ask("GET http://" + name + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		p.ask("CONNECT " + name + ":443 HTTP/1.1\r\nHost: x\r\n\r\n")
		if d.p.MayResolve(d.s, name) {
			t.Fatalf("%s may be resolved", name)
		}
	}
	if len(l.asked) > 0 {
		t.Fatalf("resolved: %v", l.asked)
	}
	// The log works: a name that is allowed is in it.
	p.ask("GET http://allowed.test/ HTTP/1.1\r\nHost: x\r\n\r\n")
	if len(l.asked) != 1 || l.asked[0] != "allowed.test" || !d.p.MayResolve(d.s, "Allowed.test.") {
		t.Errorf("resolved: %v", l.asked)
	}
	// What the resolver denied is recorded and can be allowed, as what the proxy did.
	s := l.session("allowed.test")
	before := l.recorded()
	if d.p.MayResolve(s, "evil.test") || d.p.MayResolve(s, "no name") || l.recorded() != before+1 {
		t.Fatalf("%d records of a denied name", l.recorded()-before)
	}
	rec := l.record(before)
	if rec.Name != "evil.test" || rec.Port != 0 || rec.Verdict != egress.Denied || rec.Code != egress.CodeHost || rec.Kind != egress.KindTransparent {
		t.Errorf("the record is %+v", rec)
	}
	if asked := s.Requests(); len(asked) != 1 || asked[0].Target.String() != "evil.test:443" {
		t.Errorf("requests: %+v", asked)
	}
}
