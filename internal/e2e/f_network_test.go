package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestF14_ProxyIsKilled: without the daemon there is no way out; with the next one
// there is the same as before, at once.
func TestF14_ProxyIsKilled(t *testing.T) {
	t.Parallel()
	l := newNetLab(t)
	c := l.Admin()
	c.Create(`{"name":"net","network":{"allow":["allowed.test"],"resolver":true}}`)
	want(t, "before", c.Sh("net", curl("http://allowed.test/before")), "lab:")
	// A program that never stops trying, also by names and addresses.
	c.Background("net", `while :; do for url in http://allowed.test/try http://evil.test/try http://`+labAllowed+`/try; do curl -s -m 5 -x http://127.0.0.1:3128 $url; curl -s -m 5 --noproxy '*' $url; done; echo >>/workspace/rounds; sleep 0.1; done >/workspace/out 2>&1`)
	Until(t, soon, "the program tries", func() bool { return l.net.asked("/try") })
	l.Kill()
	killed := len(l.net.reached())
	time.Sleep(2 * time.Second) // in which it goes on trying
	if more := l.net.reached()[killed:]; len(more) > 0 {
		t.Errorf("without the daemon somebody was reached: %+v", more)
	}
	l.start()
	began := time.Now()
	Until(t, 2*time.Second, "the way is back", func() bool { return strings.Contains(c.Sh("net", curl("http://allowed.test/after")), "lab:") })
	t.Logf("back after %v", time.Since(began))
	want(t, "the same policy", c.Sh("net", curl("http://evil.test/after")), "Host not allowed")
	l.clean()
}

// TestB157_LifeOfTheNetwork: the network of a sandbox has no lifetime of its own: a
// new daemon, a stop and a start leave it as it was.
func TestB157_LifeOfTheNetwork(t *testing.T) {
	t.Parallel()
	staysOpen(t, func(l *netLab) { l.Stop() }, func(*netLab) {})
}

// TestB160_RestartedSandbox: so does the end of the daemon while it is stopped.
func TestB160_RestartedSandbox(t *testing.T) {
	t.Parallel()
	staysOpen(t, func(*netLab) {}, func(l *netLab) { l.Kill() })
}

// staysOpen looks at the network of a sandbox that runs while the daemon ends, and
// of one that is stopped then.
func staysOpen(t *testing.T, running, stopped func(*netLab)) {
	t.Helper()
	l := newNetLab(t)
	c := l.Admin()
	c.Create(`{"name":"net","network":{"allow":["allowed.test"]}}`)
	asks := func(when string) {
		t.Helper()
		want(t, when, c.Sh("net", curl("http://allowed.test/")), "lab:")
		want(t, when, c.Sh("net", curl("http://evil.test/")), "Host not allowed")
	}
	does := func(call string) {
		t.Helper()
		if a := c.Send("POST", api+"/sandboxes/net/"+call, ""); a.Code != http.StatusOK {
			t.Fatalf("%s: %v", call, a)
		}
	}
	asks("at first")
	if running(l); l.cmd == nil {
		l.start()
		asks("with a new daemon")
	}
	does("stop")
	if stopped(l); l.cmd == nil {
		l.start()
	}
	does("start")
	asks("after a stop and a start")
	l.clean()
}
