package egress_test

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentbox/internal/egress"
	"agentbox/internal/egress/token"
)

// from are addresses of sandboxes, all of this machine.
var (
	fromA       = netip.MustParseAddr("127.0.0.101")
	fromB       = netip.MustParseAddr("127.0.0.102")
	fromUnknown = netip.MustParseAddr("127.0.0.103")
)

// gate is the documented listener with the sessions A and B.
type gate struct {
	*lab
	keys *token.Keys
	l    *egress.Listener
	a, b *egress.Session
	addr string
}

func newGate(t *testing.T) *gate {
	g := &gate{lab: newLab(t)}
	var err error
	if g.keys, err = token.NewKeys("test-signing-key"); err != nil {
		t.Fatal(err)
	}
	g.options.Tokens = g.keys
	g.web(allowedAddr, 80, site(t))
	g.serve(allowedAddr, 2222, echo)
	allow := g.policy("allowed.test", "*.allowed.test", "allowed.test:2222", "private.test")
	g.a = g.sessionOf(egress.SessionOptions{Sandbox: "session-a", Policy: allow})
	g.b = g.sessionOf(egress.SessionOptions{Sandbox: "session-b", Policy: allow})
	g.l = egress.NewListener(g.proxy())
	for addr, s := range map[netip.Addr]*egress.Session{fromA: g.a, fromB: g.b} {
		if err := g.l.Register(s, addr); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.l.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		g.l.Close()
	})
	return g
}

func (g *gate) token(session string, life time.Duration) string {
	g.t.Helper()
	s, err := g.keys.Sign(token.Claims{Session: session, Hosts: []string{"allowed.test"}, Expires: time.Now().Add(life)})
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// from connects as a program at an address.
func (g *gate) from(addr netip.Addr) *peer {
	g.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: addr.AsSlice()}}
	c, err := d.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(wait))
	g.t.Cleanup(func() { c.Close() })
	return connected(g.t, c)
}

func basic(user, password string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n"
}

const getHello = "GET http://allowed.test/hello HTTP/1.1\r\nHost: allowed.test\r\n"

// refuses checks that a request gets 407 and reaches nobody.
func (g *gate) refuses(what string, addr netip.Addr, fields string) {
	g.t.Helper()
	before := len(g.dials())
	for _, line := range []string{getHello, "CONNECT allowed.test:2222 HTTP/1.1\r\n", "GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: x\r\n"} {
		resp, body := g.from(addr).ask(line + fields + "\r\n")
		if resp.StatusCode != 407 || resp.Header.Get("Proxy-Authenticate") != `Basic realm="agentbox"` || body == "" || resp.Header.Get(egress.CodeHeader) != "token_required" {
			g.t.Errorf("%s: %q: %s %q", what, line, resp.Status, body)
		}
	}
	if after := len(g.dials()); after != before {
		g.t.Errorf("%s: dialled", what)
	}
}

func (g *gate) serves(what string, addr netip.Addr, fields string) {
	g.t.Helper()
	if resp, body := g.from(addr).ask(getHello + fields + "\r\n"); resp.StatusCode != 200 || body != "hello HTTP/1.1 allowed.test" {
		g.t.Errorf("%s: %s %q", what, resp.Status, body)
	}
}

func TestJ2_Listener(t *testing.T) {
	g := newGate(t)
	good := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	g.serves("a good token", fromA, good)
	g.serves("any user", fromA, basic("x", "jwt_"+g.token("session-a", time.Hour)))
	g.serves("scheme in lower case", fromA, strings.Replace(good, "Basic", "basic", 1))
	p := g.from(fromA)
	if resp, _ := p.ask("CONNECT allowed.test:2222 HTTP/1.1\r\n" + good + "\r\n"); resp.StatusCode != 200 {
		t.Fatalf("CONNECT: %s", resp.Status)
	}
	p.send("ping")
	if got := p.read(4); got != "ping" {
		t.Errorf("got %q", got)
	}
	// A client as programs have it, which knows the URL alone.
	c := &http.Client{Transport: &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: g.addr, User: url.UserPassword("sandbox", "jwt_"+g.token("session-a", time.Hour))}),
		DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: fromA.AsSlice()}}).DialContext,
	}}
	defer c.CloseIdleConnections()
	if _, body := get(t, c, "http://allowed.test/hello"); body != "hello HTTP/1.1 allowed.test" {
		t.Errorf("got %q", body)
	}
}

// TestJ4_Wildcard: the list of the session counts, with the apex named beside it.
func TestJ4_Wildcard(t *testing.T) {
	g := newGate(t)
	g.name("x.y.allowed.test", allowedAddr)
	auth := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	for host, want := range map[string]int{"x.y.allowed.test": 200, "allowed.test": 200, "evil-allowed.test": 403, "allowed.test.evil.test": 403} {
		if resp, _ := g.from(fromA).ask("GET http://" + host + "/hello HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"); resp.StatusCode != want {
			t.Errorf("%s: %s", host, resp.Status)
		}
	}
}

func TestJ5_HostNotListed(t *testing.T) {
	g := newGate(t)
	auth := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	if resp, body := g.from(fromA).ask("GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"); resp.StatusCode != 403 || body != "Host not allowed: evil.test" {
		t.Errorf("got %s %q", resp.Status, body)
	}
}

func TestJ6_BadTokens(t *testing.T) {
	g := newGate(t)
	good := g.token("session-a", time.Hour)
	parts := strings.Split(good, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"typ":"JWT","alg":"none"}`))
	for what, password := range map[string]string{
		"expired":        "jwt_" + g.token("session-a", -time.Second),
		"forged":         "jwt_" + parts[0] + "." + parts[1] + "." + strings.Repeat("A", 43),
		"alg none":       "jwt_" + none + "." + parts[1] + ".",
		"no prefix":      good,
		"another prefix": "JWT_" + good,
		"nothing":        "jwt_",
		"no session":     "jwt_" + g.token("session-c", time.Hour),
	} {
		g.refuses(what, fromA, basic("sandbox", password))
	}
	g.refuses("no header", fromA, "")
	g.serves("the good one", fromA, basic("sandbox", "jwt_"+good))
}

func TestJWT10_Forms(t *testing.T) {
	g := newGate(t)
	good := g.token("session-a", time.Hour)
	encoded := base64.StdEncoding.EncodeToString([]byte("sandbox:jwt_" + good))
	for what, fields := range map[string]string{
		"missing":             "",
		"empty":               "Proxy-Authorization: \r\n",
		"Basic alone":         "Proxy-Authorization: Basic\r\n",
		"Bearer":              "Proxy-Authorization: Bearer " + good + "\r\n",
		"Bearer with prefix":  "Proxy-Authorization: Bearer jwt_" + good + "\r\n",
		"no colon":            "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("jwt_"+good)) + "\r\n",
		"no base64":           "Proxy-Authorization: Basic sandbox:jwt_" + good + "\r\n",
		"rest behind":         "Proxy-Authorization: Basic " + encoded + ", Basic x\r\n",
		"in another field":    "Authorization: Basic " + encoded + "\r\n",
		"user instead":        basic("jwt_"+good, ""),
		"in the query string": "X-Token: jwt_" + good + "\r\n",
	} {
		g.refuses(what, fromA, fields)
	}
	one := "Proxy-Authorization: Basic " + encoded + "\r\n"
	g.refuses("twice", fromA, one+one)
	g.refuses("good and bad", fromA, one+"Proxy-Authorization: Basic eDp5\r\n")
	if resp, _ := g.from(fromA).ask("GET http://sandbox:jwt_" + good + "@allowed.test/hello HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 407 {
		t.Errorf("in the URL: %s", resp.Status)
	}
	// SOCKS has no place for a token.
	p := g.from(fromA)
	p.send("\x05\x01\x00\x05\x01\x00\x03\x0callowed.test\x00\x50\r\n\r\n")
	if got, _ := p.rest(); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
		t.Errorf("SOCKS: %q", got)
	}
	if len(g.dials()) > 0 {
		t.Errorf("dialled: %v", g.dials())
	}
}

func TestJ8_DestroyedSession(t *testing.T) {
	g := newGate(t)
	auth := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	p := g.from(fromA)
	if resp, _ := p.ask(getHello + auth + "\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	g.a.Close()
	if got, err := p.rest(); err == nil {
		t.Errorf("the open connection ends with %q and no reset", got)
	}
	g.refuses("its token", fromA, auth)
	if err := g.l.Register(g.a, fromUnknown); err == nil {
		t.Error("one that has ended is given an address")
	}
	// The address goes to another sandbox; the old token stays dead.
	c := g.sessionOf(egress.SessionOptions{Sandbox: "box-c", Policy: g.a.Policy()})
	if err := g.l.Register(c, fromA); err != nil {
		t.Fatal(err)
	}
	g.refuses("its token at an address of another", fromA, auth)
	g.serves("the new sandbox", fromA, basic("sandbox", "jwt_"+g.token("box-c", time.Hour)))
	g.l.Unregister(c)
	g.refuses("without the address", fromA, basic("sandbox", "jwt_"+g.token("box-c", time.Hour)))
}

func TestJ9_PrivateAddress(t *testing.T) {
	g := newGate(t)
	g.web(internalAddr, 80, ok("internal"))
	g.name("private.test", internalAddr)
	auth := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	if resp, body := g.from(fromA).ask("GET http://private.test/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"); resp.StatusCode != 403 || body != "Host not allowed: private.test" {
		t.Errorf("got %s %q", resp.Status, body)
	}
	if g.reached(internalAddr) {
		t.Error("dialled")
	}
}

func TestJ12_AnotherSandbox(t *testing.T) {
	g := newGate(t)
	auth := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	g.serves("from its own", fromA, auth)
	g.refuses("from another", fromB, auth)
	g.refuses("from an unknown address", fromUnknown, auth)
	if err := g.l.Register(g.b, fromA); err == nil {
		t.Error("an address of a live session is given away")
	}
}

// TestTokenInTheTunnel: where the channel tells who it is, no token is needed, but
// one that is sent must be good.
func TestTokenInTheTunnel(t *testing.T) {
	g := newGate(t)
	d := g.open(g.a)
	ask := func(fields string) int {
		resp, _ := d.dial().ask(getHello + fields + "\r\n")
		return resp.StatusCode
	}
	for what, c := range map[string]struct {
		fields string
		want   int
	}{
		"none":      {"", 200},
		"its own":   {basic("sandbox", "jwt_"+g.token("session-a", time.Hour)), 200},
		"another's": {basic("sandbox", "jwt_"+g.token("session-b", time.Hour)), 407},
		"expired":   {basic("sandbox", "jwt_"+g.token("session-a", -time.Hour)), 407},
		"no token":  {basic("user", "password"), 407},
	} {
		if got := ask(c.fields); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}

// TestKeyRotation: a new key leaves tokens alone for the overlap, and open tunnels
// for ever.
func TestKeyRotation(t *testing.T) {
	g := newGate(t)
	auth := basic("sandbox", "jwt_"+g.token("session-a", time.Hour))
	if err := g.keys.Rotate(token.GenerateKey(), time.Hour); err != nil {
		t.Fatal(err)
	}
	g.serves("a token of the key before", fromA, auth)
	g.serves("a token of the new key", fromA, basic("sandbox", "jwt_"+g.token("session-a", time.Hour)))
	// A tunnel outlives the token that opened it.
	p := g.from(fromA)
	if resp, _ := p.ask("CONNECT allowed.test:2222 HTTP/1.1\r\n" + auth + "\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	if err := g.keys.Rotate(token.GenerateKey(), 0); err != nil {
		t.Fatal(err)
	}
	p.send("ping")
	if got := p.read(4); got != "ping" {
		t.Errorf("got %q", got)
	}
}
