package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Addresses of a [netLab]. They are for documentation, so the operator has to open
// them.
const (
	labRange   = "198.51.100.0/24"
	labAllowed = "198.51.100.10"
	labEvil    = "198.51.100.66"
)

// netLab is a daemon in a [labNet].
type netLab struct {
	*Daemon
	net *labNet
}

// theLab is the one that tests share. [closeLab] ends it.
var theLab struct {
	mu  sync.Mutex
	lab *netLab
}

// Sandboxes of the shared lab: root's, with all of the network, and an ordinary
// one's with a list.
const (
	labFull = "full"
	labList = "list"
)

// labPrivate is the one name of the shared lab that may have a private address.
const labPrivate, labPrivateAddr = "private.allowed.test", "10.66.0.5"

// sharedLab is a lab for tests that do not end its daemon, with sandboxes that they
// share. Its operator opens the addresses of the lab and one name.
func sharedLab(t *testing.T) *netLab {
	t.Helper()
	theLab.mu.Lock()
	defer theLab.mu.Unlock()
	if theLab.lab == nil {
		l := makeNetLab(t, "--egress-full", "--ephemeral", "--egress-private-hosts", labPrivate)
		l.net.names.set(labPrivate, labPrivateAddr)
		l.start()
		theLab.lab = l
		l.Admin().Create(`{"name":"` + labFull + `","user":"root","network":{"mode":"full","resolver":true}}`)
		l.Admin().Create(`{"name":"` + labList + `","network":{"allow":["allowed.test","` + labPrivate + `"],"resolver":true}}`)
	}
	return &netLab{theLab.lab.With(t), theLab.lab.net}
}

func closeLab() error {
	theLab.mu.Lock()
	defer theLab.mu.Unlock()
	l := theLab.lab
	if l == nil {
		return nil
	}
	theLab.lab = nil
	err := errors.Join(l.cmd.Process.Signal(os.Interrupt), l.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, l.logs.String())
	}
	l.net.end()
	return errors.Join(err, os.RemoveAll(l.Dir))
}

// newNetLab makes a lab for one test.
func newNetLab(t *testing.T, args ...string) *netLab {
	t.Helper()
	l := makeNetLab(t, args...)
	t.Cleanup(func() {
		l.net.end()
		_ = os.RemoveAll(l.Dir)
	})
	l.forTest(t)
	l.URL = l.net.lead(t, l.Dir)
	return l
}

// makeNetLab makes a lab whose daemon does not run yet.
func makeNetLab(t *testing.T, args ...string) *netLab {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root: it makes a network namespace")
	enter, err := exec.LookPath("nsenter")
	Need(t, err == nil, "nsenter, of util-linux")
	n := newLabNet(t)
	d := &Daemon{t: t, Dir: makeDataDir(t), args: append([]string{"--egress-allow-ranges", labRange}, args...), logs: &lockedBuffer{}}
	d.adjust = func(cmd *exec.Cmd) {
		cmd.Args = append([]string{enter, fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), n.ns.Fd()), "--"}, cmd.Args...)
		cmd.Path = enter
	}
	return &netLab{d, n}
}

// start starts the daemon, also after it ended.
func (l *netLab) start() {
	l.t.Helper()
	at := l.URL
	l.Start()
	if at == "" {
		at = l.net.lead(l.t, l.Dir)
	}
	l.URL = at
}

// lead leads to the daemon's local socket, so that its port in the lab gets no
// connection but from those whom a test is about.
func (n *labNet) lead(t testing.TB, dir string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.close = append(n.close, ln)
	go accept(ln, func(c net.Conn) { joinSocket(c, filepath.Join(dir, "agentbox.sock")) })
	return "http://" + ln.Addr().String()
}

// accept gives each connection to a function, until the listener is closed.
func accept(ln net.Listener, serve func(net.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func joinSocket(c net.Conn, path string) {
	s, err := net.Dial("unix", path)
	if err != nil {
		return // the daemon does not run
	}
	defer s.Close()
	go func() {
		_, _ = io.Copy(s, c) // ends with either
		_ = s.(*net.UnixConn).CloseWrite()
	}()
	_, _ = io.Copy(c, s)
}

// netProbe is something that a program in a sandbox tries; see testdata/netprobe.py.
type netProbe map[string]any

// probed numbers the lists of probes, since tests share sandboxes.
var probed atomic.Int64

// probe runs probes in a sandbox and gives what became of each.
func (c *Client) probe(id string, probes []netProbe) []any {
	c.t.Helper()
	script, err := os.ReadFile("testdata/netprobe.py")
	if err != nil {
		c.t.Fatal(err)
	}
	if a := c.Write(id, "/workspace/netprobe.py", string(script)); a.Code >= 300 {
		c.t.Fatalf("write the probes: %v", a)
	}
	list := fmt.Sprintf("/workspace/probes-%d.json", probed.Add(1))
	if a := c.Write(id, list, encode(c.t, probes)); a.Code >= 300 {
		c.t.Fatalf("write the probes: %v", a)
	}
	text := c.Sh(id, "python3 /workspace/netprobe.py <"+list)
	var got []any
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != len(probes) {
		c.t.Fatalf("the probes say %q", text)
	}
	return got
}

// answerStatus is that of the answer to a get or connect; 0 if there was none.
func answerStatus(answer any) int {
	if a, ok := answer.([]any); ok && len(a) > 0 {
		if n, ok := a[0].(float64); ok {
			return int(n)
		}
	}
	return 0
}

// clean fails the test if anything arrived in the lab that no test's sandboxes may
// reach: connections, packets, questions for names.
func (l *netLab) clean() {
	l.t.Helper()
	for _, place := range l.net.packets.seen() {
		if !l.net.isPlace(place) {
			l.t.Errorf("a packet left: %s", place)
		}
	}
	for _, name := range l.net.names.asked() {
		if !strings.HasSuffix(name, "allowed.test") {
			l.t.Errorf("the name server was asked for %q", name)
		}
	}
	for _, h := range l.net.reached() {
		if !l.net.isPlace("tcp " + h.To.String()) {
			l.t.Errorf("somebody was reached: %+v", h)
		}
	}
}

// isPlace reports whether sandboxes of the lab may reach a place, or the daemon
// for them.
func (n *labNet) isPlace(place string) bool {
	for _, at := range []string{labAllowed + ":80", labAllowed + ":443", labAllowed + ":2222", labPrivateAddr + ":80"} {
		if place == "tcp "+at {
			return true
		}
	}
	return slices.ContainsFunc(nameServers(), func(s string) bool { return place == "udp "+net.JoinHostPort(s, "53") })
}
