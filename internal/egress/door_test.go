package egress_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
	"agentbox/internal/egress/token"
	"agentbox/internal/egress/token/tokentest"
	"agentbox/internal/sandbox"
)

// refusedAtBothDoors checks that tokens get 407 on the listener, from the right
// address, and in the tunnel, and that nobody is reached: neither the default hosts
// nor what a token names.
func refusedAtBothDoors(t *testing.T, tokens func(tokentest.Forger) map[string]string) {
	g := newGate(t)
	f := tokentest.Forger{Key: "test-signing-key", Session: "session-a", Lab: "http://allowed.test"}
	d := g.open(g.a)
	good := basic("sandbox", "jwt_"+f.Good())
	g.serves("the good one", fromA, good)
	if resp, _ := d.dial().ask(getHello + good + "\r\n"); resp.StatusCode != 200 {
		t.Fatalf("the good one in the tunnel: %s", resp.Status)
	}
	reached := len(g.dials())
	for what, bad := range tokens(f) {
		fields := basic("sandbox", "jwt_"+bad)
		g.refuses(what, fromA, fields)
		for _, line := range []string{getHello, "CONNECT allowed.test:2222 HTTP/1.1\r\n"} {
			if resp, body := d.dial().ask(line + fields + "\r\n"); resp.StatusCode != http.StatusProxyAuthRequired || resp.Header.Get("Proxy-Authenticate") != `Basic realm="agentbox"` || body == "" {
				t.Errorf("%s: %q in the tunnel: %s %q", what, line, resp.Status, body)
			}
		}
	}
	if n := len(g.dials()); n != reached {
		t.Errorf("%d connections were made", n-reached)
	}
	for i := range g.records {
		if r := g.record(i); strings.Contains(fmt.Sprint(r), "eyJ") {
			t.Errorf("a record has a token: %+v", r)
		}
	}
}

func TestJWT01_AtBothDoors(t *testing.T) { refusedAtBothDoors(t, tokentest.Forger.Algorithms) }
func TestJWT02_AtBothDoors(t *testing.T) { refusedAtBothDoors(t, tokentest.Forger.Headers) }
func TestJWT03_AtBothDoors(t *testing.T) { refusedAtBothDoors(t, tokentest.Forger.Times) }
func TestJWT06_AtBothDoors(t *testing.T) { refusedAtBothDoors(t, tokentest.Forger.Forgeries) }

// TestJ7_HostsOfATokenWidenNothing: as a list or a text, what counts is what the
// session may reach.
func TestJ7_HostsOfATokenWidenNothing(t *testing.T) {
	g := newGate(t)
	f := tokentest.Forger{Key: "test-signing-key", Session: "session-a"}
	d := g.open(g.a)
	for _, hosts := range []string{`["evil.test"]`, `"evil.test,*"`, `[]`, `""`} {
		auth := basic("sandbox", "jwt_"+f.Token(tokentest.Header, strings.Replace(f.Claims(tokentest.Forever), `"a.test"`, hosts, 1)))
		g.serves(hosts, fromA, auth)
		for _, p := range []*peer{g.from(fromA), d.dial()} {
			if resp, body := p.ask("GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n" + auth + "\r\n"); resp.StatusCode != http.StatusForbidden || body != "Host not allowed: evil.test" {
				t.Errorf("%s: %s %q", hosts, resp.Status, body)
			}
		}
	}
}

// daemon is a gateway with keys, for sandboxes that are called by address.
func (l *lab) daemon(address string) (*egress.Gateway, *token.Keys) {
	l.t.Helper()
	keys, err := token.NewKeys("test-signing-key")
	if err != nil {
		l.t.Fatal(err)
	}
	l.options.Tokens = keys
	g := egress.NewGateway(egress.GatewayOptions{Proxy: l.proxy(), Keys: keys, Address: address})
	l.t.Cleanup(func() { g.Close() })
	return g, keys
}

// TestProxyURL: its token names the sandbox and does not end before it.
func TestProxyURL(t *testing.T) {
	g, keys := newLab(t).daemon("host.docker.internal:15004")
	read := func(sb sandbox.Sandbox, until time.Time, own bool) (string, token.Claims) {
		t.Helper()
		text, err := g.ProxyURL(&sb, until, own)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || u.User.Username() != "sandbox" || u.Path != "" {
			t.Fatalf("%q: %v", text, err)
		}
		password, _ := u.User.Password()
		c, err := keys.Verify(strings.TrimPrefix(password, "jwt_"))
		if err != nil || !strings.HasPrefix(password, "jwt_") {
			t.Fatalf("%q: %v", text, err)
		}
		return u.Host, c
	}
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	host, c := read(sandbox.Sandbox{UID: "a", Tenant: "acme", Network: allowing("python", "x.test")}, end, true)
	python, _ := policy.Preset("python")
	if host != "host.docker.internal:15004" || c.Session != "a" || c.Tenant != "acme" || !slices.Equal(c.Hosts, append(python, "x.test")) {
		t.Errorf("at %s, %+v", host, c)
	}
	if late := c.Expires.Sub(end); late < 0 || late > token.Skew {
		t.Errorf("it ends %v after the sandbox", late)
	}
	host, c = read(sandbox.Sandbox{UID: "a", Network: sandbox.Network{Mode: sandbox.NetworkFull}, Expires: end}, time.Time{}, false)
	if host != "127.0.0.1:3128" || c.Expires.Unix() != 4102444800 || !slices.Equal(c.Hosts, []string{"*"}) {
		t.Errorf("at %s, %+v", host, c)
	}
	if _, c = read(sandbox.Sandbox{UID: "a", Network: allowing(slices.Repeat([]string{strings.Repeat("x", 200) + ".test"}, 1000)...)}, end, true); c.Hosts != nil {
		t.Errorf("a list that is too long has %d hosts", len(c.Hosts))
	}
	g, _ = newLab(t).daemon("")
	if _, err := g.ProxyURL(&sandbox.Sandbox{UID: "a"}, end, true); !errdefs.IsNotImplemented(err) {
		t.Errorf("without a listener: %v", err)
	}
}

// TestRegister: an address is one sandbox's, and nobody's when it is gone.
func TestRegister(t *testing.T) {
	l := newLab(t)
	g, _ := l.daemon("")
	addr := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	if err := g.Register("a", []netip.Addr{addr("192.0.2.1")}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a sandbox that has no way: %v", err)
	}
	g.Open(&sandbox.Sandbox{UID: "a", Owner: "o", Network: allowing("allowed.test")})
	g.Open(&sandbox.Sandbox{UID: "b", Owner: "o", Network: allowing("allowed.test")})
	for _, c := range []struct {
		uid   string
		addrs []string
		ok    bool
	}{
		{"a", []string{"192.0.2.1", "2001:db8::1"}, true}, {"a", []string{"192.0.2.1"}, true},
		{"b", []string{"192.0.2.1"}, false}, {"b", []string{"192.0.2.2", "::ffff:192.0.2.1"}, false},
		{"b", []string{"2001:db8::1"}, true}, // a has it no more
		{"a", []string{"2001:db8::1%eth0"}, false}, {"a", []string{"0.0.0.0"}, false}, {"a", []string{"::"}, false}, {"a", []string{"224.0.0.1"}, false},
	} {
		var addrs []netip.Addr
		for _, s := range c.addrs {
			addrs = append(addrs, addr(s))
		}
		if err := g.Register(c.uid, addrs); c.ok != (err == nil) {
			t.Errorf("%s for %v: %v", c.uid, c.addrs, err)
		}
	}
	if err := g.Register("a", []netip.Addr{{}}); err == nil {
		t.Error("no address is registered")
	}
	g.Shut("b")
	if err := g.Register("a", []netip.Addr{addr("2001:db8::1")}); err != nil {
		t.Errorf("an address of a sandbox that is gone: %v", err)
	}
}

// TestUnknownAddressesAreBounded: whoever is no sandbox can't take the proxy's
// memory.
func TestUnknownAddressesAreBounded(t *testing.T) {
	g := newGate(t)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: fromUnknown.AsSlice()}}
	var all []net.Conn
	for range 200 {
		c, err := d.Dial("tcp", g.addr)
		if err != nil {
			continue // it was reset at once
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(wait))
		_, _ = io.WriteString(c, getHello) // the head is not over: it waits, if it is served
		all = append(all, c)
	}
	answers := map[string]int{}
	for _, c := range all {
		_, _ = io.WriteString(c, "\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		status, _, _ := strings.Cut(strings.TrimPrefix(line, "HTTP/1.1 "), " ")
		answers[status]++
	}
	if n := answers["407"]; n == 0 || n > 100 || n+answers[""] != len(all) {
		t.Errorf("of %d connections: %v", len(all), answers)
	}
	g.serves("a sandbox meanwhile", fromA, basic("sandbox", "jwt_"+g.token("session-a", time.Hour)))
}

// TestJWT10_InTheTunnel: where the channel tells who it is, nothing needs to be
// sent; what is sent must be in the documented form.
func TestJWT10_InTheTunnel(t *testing.T) {
	g := newGate(t)
	good := g.token("session-a", time.Hour)
	encoded := base64.StdEncoding.EncodeToString([]byte("sandbox:jwt_" + good))
	d := g.open(g.a)
	for what, c := range map[string]struct {
		fields string
		want   int
	}{
		"missing":     {"", 200},
		"good":        {"Proxy-Authorization: Basic " + encoded + "\r\n", 200},
		"empty":       {"Proxy-Authorization: \r\n", 407},
		"Basic alone": {"Proxy-Authorization: Basic\r\n", 407},
		"Bearer":      {"Proxy-Authorization: Bearer jwt_" + good + "\r\n", 407},
		"twice":       {"Proxy-Authorization: Basic " + encoded + "\r\nProxy-Authorization: Basic " + encoded + "\r\n", 407},
		"of the site": {"Authorization: Basic " + encoded + "\r\n", 200}, // that is between it and the sandbox
	} {
		if resp, _ := d.dial().ask(getHello + c.fields + "\r\n"); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", what, resp.Status, c.want)
		}
	}
	if resp, _ := d.dial().ask("GET http://sandbox:jwt_" + good + "@allowed.test/hello HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode != 400 {
		t.Errorf("in the URL: %s", resp.Status)
	}
}
