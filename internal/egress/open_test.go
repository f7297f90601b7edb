package egress_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"agentbox/internal/egress"
)

// TestOpen: a connection that lasts is recorded while it does, with what went over
// it, and again at its end; a tunnel whose requests have records of their own is not.
func TestOpen(t *testing.T) {
	l := newLab(t)
	l.timeout.Open = time.Millisecond
	l.serve(allowedAddr, 2222, echo)
	release := make(chan struct{})
	l.web(allowedAddr, 80, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	d := l.open(l.session("allowed.test", "allowed.test:2222"))
	p := d.tunnel("allowed.test:2222")
	p.send("ping")
	p.read(4)
	n := 0
	open := func(what string, is func(egress.Record) bool) {
		t.Helper()
		for ; ; n++ {
			r := l.record(n)
			if !r.Open {
				t.Fatalf("%s: the record is %+v", what, r)
			}
			if is(r) {
				return
			}
		}
	}
	open("a tunnel", func(r egress.Record) bool {
		return r.Kind == egress.KindConnect && r.Name == "allowed.test" && r.Port == 2222 && r.Addr == allowedAddr && r.Verdict == egress.Allowed && r.BytesUp == 4 && r.BytesDown == 4 && r.Rule != ""
	})
	in := d.tunnel("allowed.test:80")
	in.send("GET /seen HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	open("a request in a tunnel", func(r egress.Record) bool { return r.Path == "/seen" && r.Method == "GET" && r.Addr == allowedAddr })
	p.Close()
	close(release)
	if resp, _ := in.answer("GET"); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	ended := map[uint16]int{}
	for ; len(ended) < 2; n++ {
		if r := l.record(n); !r.Open {
			ended[r.Port]++
		} else if ended[r.Port] > 0 {
			t.Errorf("after its end: %+v", r)
		}
	}
}

// TestTooMany: connections that are closed unread are recorded, too.
func TestTooMany(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	s := l.sessionOf(egress.SessionOptions{Sandbox: "s1", Owner: "t1", Policy: l.policy("allowed.test:2222"), Limits: egress.Limits{Conns: 1}})
	d := l.open(s)
	d.tunnel("allowed.test:2222")
	for range 64 { // some wait for their request, to be told, the others are closed
		if c, err := net.Dial("tcp", d.addr); err == nil {
			defer c.Close()
		}
	}
	if r := l.recordOf(egress.CodeConns); r.Sandbox != "s1" || r.Owner != "t1" || r.Verdict != egress.Denied || r.Reason == "" {
		t.Errorf("the record is %+v", r)
	}
}

// TestRefusalsAreSlowedDown, and nothing else is: of what is not allowed, and of
// what is not there.
func TestRefusalsAreSlowedDown(t *testing.T) {
	t.Parallel() // it waits most of the time
	const atOnce, perSecond = 1000, 100
	l := newLab(t)
	l.web(allowedAddr, 80, ok("allowed"))
	for host, want := range map[string]int{"evil.test": 403, "nobody.allowed.test": 502} {
		d := l.open(l.session("allowed.test", "*.allowed.test"))
		p := d.dial()
		ask := func(p *peer, host string) int {
			resp, _ := p.ask("GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
			return resp.StatusCode
		}
		began := time.Now()
		for range atOnce + perSecond {
			if code := ask(p, host); code != want {
				t.Fatalf("%s: %d", host, code)
			}
		}
		// What was saved up meanwhile counts, too: so this is no second, but most of one.
		if took := time.Since(began); took < 900*time.Millisecond {
			t.Errorf("%d refusals of %s took %v", atOnce+perSecond, host, took)
		}
		other := l.open(l.session("allowed.test")).dial()
		for _, p := range []*peer{p, other} {
			if code := ask(p, "allowed.test"); code != 200 {
				t.Errorf("what is allowed: %d", code)
			}
		}
	}
}
