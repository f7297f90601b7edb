package egress_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/egress/token"
	"agentbox/internal/sandbox"
)

// namespace is a network of its own, as a sandbox of another back end has one.
type namespace struct {
	t    *testing.T
	name string
}

func newNamespace(t *testing.T, what string) namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("network namespaces are made with ip, which is not here")
	}
	n := namespace{t, fmt.Sprintf("agentbox-test-%d-%s", os.Getpid(), what)}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("this machine gives no network namespace: %v: %s", err, out)
	}
	t.Cleanup(func() { ip(t, "netns", "del", n.name) })
	return n
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// join connects a sandbox's namespace to the host's by a wire of its own.
func (n namespace) join(host namespace, wire string, hostAddr, addr netip.Prefix) {
	n.t.Helper()
	ip(n.t, "-n", host.name, "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", n.name)
	ip(n.t, "-n", host.name, "addr", "add", hostAddr.String(), "dev", wire)
	ip(n.t, "-n", host.name, "link", "set", wire, "up")
	ip(n.t, "-n", n.name, "addr", "add", addr.String(), "dev", "eth0")
	ip(n.t, "-n", n.name, "link", "set", "eth0", "up")
	ip(n.t, "-n", n.name, "route", "add", "default", "via", hostAddr.Addr().String())
}

// within runs f in the namespace. Sockets stay where they were made.
func (n namespace) within(f func() error) {
	n.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			file, err := os.Open(filepath.Join("/run/netns", n.name))
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

func (n namespace) dial(addr string, from netip.Addr) (p *peer) {
	n.t.Helper()
	n.within(func() error {
		d := net.Dialer{Timeout: wait}
		if from.IsValid() {
			d.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
		}
		c, err := d.Dial("tcp", addr)
		if err != nil {
			return err
		}
		_ = c.SetDeadline(time.Now().Add(wait))
		n.t.Cleanup(func() { c.Close() })
		p = connected(n.t, c)
		return nil
	})
	return p
}

// TestJ12_NetworkNamespaces: two sandboxes with networks of their own reach the
// listener. Each is known by its address and its token together, and with the
// sandbox both end.
func TestJ12_NetworkNamespaces(t *testing.T) {
	host, a, b := newNamespace(t, "host"), newNamespace(t, "a"), newNamespace(t, "b")
	addrA, addrB := netip.MustParsePrefix("169.254.101.2/30"), netip.MustParsePrefix("169.254.102.2/30")
	a.join(host, "wire-a", netip.MustParsePrefix("169.254.101.1/30"), addrA)
	b.join(host, "wire-b", netip.MustParsePrefix("169.254.102.1/30"), addrB)
	second := netip.MustParseAddr("169.254.101.9") // a's own, and not registered
	ip(t, "-n", a.name, "addr", "add", second.String()+"/32", "dev", "eth0")
	ip(t, "-n", host.name, "route", "add", second.String()+"/32", "dev", "wire-a")

	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	l.serve(allowedAddr, 2222, echo)
	var ln net.Listener
	host.within(func() (err error) { ln, err = net.Listen("tcp", "0.0.0.0:0"); return err })
	port := ln.Addr().(*net.TCPAddr).Port
	atA, atB := fmt.Sprintf("169.254.101.1:%d", port), fmt.Sprintf("169.254.102.1:%d", port)
	g, keys := l.daemon(atA)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, ln) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	network := allowing("allowed.test", "allowed.test:2222")
	begin := func(uid string, addr netip.Prefix) {
		g.Open(&sandbox.Sandbox{UID: uid, Owner: "o", Network: network})
		if err := g.Register(uid, []netip.Addr{addr.Addr()}); err != nil {
			t.Fatal(err)
		}
	}
	auth := func(uid string) string {
		t.Helper()
		text, err := g.ProxyURL(&sandbox.Sandbox{UID: uid, Network: network}, time.Now().Add(time.Hour), true)
		u, bad := url.Parse(text)
		if err != nil || bad != nil || u.Host != atA {
			t.Fatalf("%q: %v, %v", text, err, bad)
		}
		password, _ := u.User.Password()
		return basic(u.User.Username(), password)
	}
	want := func(what string, n namespace, at string, from netip.Addr, fields string, code int) {
		t.Helper()
		before := len(l.dials())
		if resp, body := n.dial(at, from).ask(getHello + fields + "\r\n"); resp.StatusCode != code {
			t.Errorf("%s: %s %q, want %d", what, resp.Status, body, code)
		}
		if after := len(l.dials()); code != http.StatusOK && after != before {
			t.Errorf("%s: dialled", what)
		}
	}
	any := netip.Addr{}
	want("before it is registered", a, atA, any, auth("box-a"), 407)
	begin("box-a", addrA)
	begin("box-b", addrB)
	want("a", a, atA, any, auth("box-a"), 200)
	want("b", b, atB, any, auth("box-b"), 200)
	want("no token", a, atA, any, "", 407)
	want("b's token from a", a, atA, any, auth("box-b"), 407)
	want("a's token from b", b, atB, any, auth("box-a"), 407)
	want("a's token from an address that is not registered", a, atA, second, auth("box-a"), 407)
	old, err := keys.Sign(token.Claims{Session: "box-a", Expires: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	want("an expired token", a, atA, any, basic("sandbox", "jwt_"+old), 407)
	if resp, body := a.dial(atA, any).ask("GET http://evil.test/ HTTP/1.1\r\nHost: x\r\n" + auth("box-a") + "\r\n"); resp.StatusCode != 403 || body != "Host not allowed: evil.test" {
		t.Errorf("a host that is not listed: %s %q", resp.Status, body)
	}

	// J3: both directions, and their ends one after the other.
	p := a.dial(atA, any)
	if resp, _ := p.ask("CONNECT allowed.test:2222 HTTP/1.1\r\n" + auth("box-a") + "\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	p.send("ping")
	if err := p.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := p.rest(); err != nil || got != "ping" {
		t.Errorf("half-close: %q, %v", got, err)
	}

	// J8: destroyed, then another sandbox gets the address.
	p = a.dial(atA, any)
	if resp, _ := p.ask("CONNECT allowed.test:2222 HTTP/1.1\r\n" + auth("box-a") + "\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	dead := auth("box-a")
	g.Shut("box-a")
	if got, err := p.rest(); err == nil {
		t.Errorf("the open tunnel of a destroyed sandbox ends with %q and no reset", got)
	}
	want("after destroy", a, atA, any, dead, 407)
	begin("box-c", addrA)
	want("replayed by the next sandbox at the address", a, atA, any, dead, 407)
	want("the next sandbox", a, atA, any, auth("box-c"), 200)
	want("b all the while", b, atB, any, auth("box-b"), 200)

	// A program as it is, which knows the URL alone.
	text, err := g.ProxyURL(&sandbox.Sandbox{UID: "box-c", Network: network}, time.Time{}, true)
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("curl"); err == nil {
		cmd := exec.Command("ip", "netns", "exec", a.name, path, "-sS", "-m", "30", "-x", text, "http://allowed.test/hello")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "hello HTTP/1.1 allowed.test") {
			t.Errorf("curl: %v, %s", err, out)
		}
	}
}
