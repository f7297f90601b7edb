package egress_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
)

// TestSetPolicy_CutsByTheVerdict: an open connection is held against a new policy by
// what it was allowed for: its requests where they are judged, the name that was
// named to an address.
func TestSetPolicy_CutsByTheVerdict(t *testing.T) {
	raw := func(d *door) *peer { return d.tunnel("allowed.test:2222") }
	seen := func(d *door) *peer {
		p := d.tunnel("allowed.test:80")
		p.send("GET /kept HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
		if resp, _ := p.answer("GET"); resp.StatusCode != 200 {
			d.t.Fatal(resp.Status)
		}
		d.record(0) // the request has ended, which the client may know before
		return p
	}
	streaming := func(d *door) *peer {
		p := d.dial()
		p.send("GET http://allowed.test/stream HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(p.r, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		_, _ = io.ReadFull(resp.Body, make([]byte, 5))
		return p
	}
	named := func(d *door) *peer {
		p := d.tunnel(allowedAddr.String() + ":443")
		p.send("%s", hello(d.t, &tls.Config{ServerName: "allowed.test", InsecureSkipVerify: true}))
		p.read(1) // the server has answered, so the name was looked at
		return p
	}
	for _, row := range []struct {
		what          string
		before, after string // lists, with | between entries
		open          func(*door) *peer
		cut           bool
	}{
		{"a tunnel whose host stays", "allowed.test:2222", "allowed.test:2222|evil.test", raw, false},
		{"a tunnel that nobody can look into, when only requests are allowed", "allowed.test:2222", "GET allowed.test:2222/x", raw, true},
		{"a tunnel in which requests are judged, when only some are allowed", "allowed.test", "GET allowed.test/x", seen, false},
		{"a request that stays allowed", "GET allowed.test/*", "GET allowed.test/stream", streaming, false},
		{"a request that is not allowed any more", "GET allowed.test/*", "GET allowed.test/other", streaming, true},
		{"a request of a host whose requests are limited", "allowed.test", "PUT allowed.test/stream", streaming, true},
		{"an address with a name, when the name goes", "198.51.100.0/24|allowed.test", "198.51.100.0/24", named, true},
		{"an address with a name, when only requests to the name are allowed", "198.51.100.0/24|allowed.test", "198.51.100.0/24|GET allowed.test/", named, true},
		{"an address with a name, when both stay", "198.51.100.0/24|allowed.test", "198.51.100.10|allowed.test", named, false},
	} {
		t.Run(row.what, func(t *testing.T) {
			l := newLab(t)
			l.serve(allowedAddr, 2222, echo)
			l.serve(allowedAddr, 443, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_, _ = c.Write([]byte("!"))
				_, _ = io.Copy(io.Discard, c)
			})
			l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "begun")
				if r.URL.Path == "/stream" {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			s := l.session(strings.Split(row.before, "|")...)
			p := row.open(l.open(s))
			s.SetPolicy(l.policy(strings.Split(row.after, "|")...), true)
			if row.cut {
				if got, err := p.rest(); err == nil {
					t.Errorf("it ends with %q and no reset", got)
				}
				return
			}
			s.SetPolicy(l.policy(strings.Split(row.after, "|")...), true)
			if err := p.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if _, err := p.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("it did not stay: %v", err)
			}
		})
	}
}

// TestSetPolicy_CutsWhatIsInterceptedNow: TLS that passed as it was, to a host whose
// requests are to be seen.
func TestSetPolicy_CutsWhatIsInterceptedNow(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 443, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_, _ = c.Write([]byte("!"))
		_, _ = io.Copy(io.Discard, c)
	})
	s := l.session("allowed.test")
	p := l.open(s).tunnel("allowed.test:443")
	p.send("%s", hello(t, &tls.Config{ServerName: "allowed.test", InsecureSkipVerify: true}))
	p.read(1)
	seen, err := policy.Compile(policy.Spec{Allow: []string{"allowed.test"}, Intercept: []string{"allowed.test"}})
	if err != nil {
		t.Fatal(err)
	}
	s.SetPolicy(seen, true)
	if got, err := p.rest(); err == nil {
		t.Errorf("it ends with %q and no reset", got)
	}
}

// TestInterceptByAddress: a host whose requests are to be seen is not reached by its
// address, with its name in the handshake, unseen.
func TestInterceptByAddress(t *testing.T) {
	l, _ := interceptingLab(t)
	l.options.Secrets = nil
	s := l.intercepted("198.51.100.0/24", "allowed.test", "direct.test")
	d := l.open(s)
	by := func(name string) *peer {
		p := d.tunnel(allowedAddr.String() + ":443")
		p.send("%s", hello(t, &tls.Config{ServerName: name, InsecureSkipVerify: true}))
		return p
	}
	if got := by("allowed.test").read(1); got != "\x15" {
		t.Fatalf("a host that is intercepted answers %q", got)
	}
	if r := l.recordOf(egress.CodeUnseen); r.Verdict != egress.Denied {
		t.Errorf("the record is %+v", r)
	}
	p := by("direct.test")
	if got := p.read(1); got != "\x16" {
		t.Errorf("another answers %q", got)
	}
	seen, err := policy.Compile(policy.Spec{Allow: []string{"198.51.100.0/24", "direct.test"}, Intercept: []string{"direct.test"}})
	if err != nil {
		t.Fatal(err)
	}
	s.SetPolicy(seen, true)
	if _, err := p.rest(); err == nil {
		t.Error("what was open when it came to be intercepted stays")
	}
}

// changing is an Injector that is asked in the middle of a change.
type changing struct {
	vault
	change func()
}

func (c changing) Wants(*egress.Session, policy.Target) bool {
	c.change()
	return false
}

// TestSetPolicy_CutsWhatIsLookedAt: a connection that is just being judged is either
// judged by the new policy or cut by it.
func TestSetPolicy_CutsWhatIsLookedAt(t *testing.T) {
	l, _ := interceptingLab(t)
	s := l.session("allowed.test")
	seen := l.intercepted("allowed.test").Policy()
	l.options.Secrets = changing{change: func() { s.SetPolicy(seen, true) }}
	p := l.open(s).tunnel("allowed.test:443")
	p.send("%s", hello(t, &tls.Config{ServerName: "allowed.test", InsecureSkipVerify: true}))
	if got, err := p.rest(); err == nil {
		t.Errorf("it ends with %q and no reset", got)
	}
}

// TestMayName: a request on a connection to an address is not for a host of which
// only other requests are allowed.
func TestMayName(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	d := l.open(l.session(allowedAddr.String(), "other.test", "GET allowed.test/public"))
	for host, code := range map[string]int{allowedAddr.String(): 200, "other.test": 200, "allowed.test": 403, "evil.test": 403} {
		p := d.tunnel(allowedAddr.String() + ":80")
		if resp, _ := p.ask("POST /private HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\n\r\n"); resp.StatusCode != code {
			t.Errorf("to %s: %s", host, resp.Status)
		}
	}
}
