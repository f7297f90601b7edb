package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// labNet is a network namespace whose every address, of every network there is, is
// the test's. Whatever a daemon in it sends arrives here: packets are captured,
// names are asked of a server that logs them, and whoever connects to a port that
// is served is counted, with the address that was dialled.
type labNet struct {
	ns      *os.File
	names   *labNames
	packets *capture
	cert    tls.Certificate

	mu    sync.Mutex
	hits  []labHit
	close []io.Closer
}

// labHit is a connection to a server, or a request to one of HTTP.
type labHit struct {
	To         netip.AddrPort
	Host, Path string
}

// newLabNet makes one; end ends it.
func newLabNet(t *testing.T) *labNet {
	t.Helper()
	n := &labNet{}
	var err error
	if n.cert, err = tls.LoadX509KeyPair(selfSigned(t)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(n.make(), n.in(n.build)); err != nil {
		n.end()
		t.Fatalf("make a network for the test: %v", err)
	}
	n.names.set("allowed.test", labAllowed)
	for _, name := range []string{"evil.test", "denied.test", "s3cret.exfil.test", "cafe", "deadbeef", "f00d.test"} {
		n.names.set(name, labEvil)
	}
	return n
}

// make makes the namespace: a thread enters a new one, and ends.
func (n *labNet) make() error {
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	return <-made
}

// in runs f on a thread in the namespace, which then ends.
func (n *labNet) in(f func() error) error {
	if n.ns == nil {
		return nil // which make said
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(n.ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func (n *labNet) build() (err error) {
	if err = ownAllAddresses(); err != nil {
		return err
	}
	if n.packets, err = startCapture(); err != nil {
		return err
	}
	if n.names, err = serveNames(); err != nil {
		return err
	}
	return errors.Join(n.serveWeb(80, false), n.serveWeb(8080, false), n.serveWeb(443, true), n.serveBanner(2222))
}

// ownAllAddresses makes every address one of this namespace's loopback interface:
// a network that ends where it begins. What connects has an address of its own, so
// that the daemon does not take the others for those of its host.
func ownAllAddresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for own, all := range map[string]string{"192.0.2.1/32": "0.0.0.0/0", "2001:db8::1/128": "::/0"} {
		addr, err := netlink.ParseAddr(own)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD // it is there at once
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return fmt.Errorf("add the address %s: %w", own, err)
		}
		_, everything, err := net.ParseCIDR(all)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everything, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Src: addr.IP}
		if addr.IP.To4() != nil {
			route.Scope = unix.RT_SCOPE_HOST
		}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("lead %s here: %w", all, err)
		}
	}
	return nil
}

// serveWeb serves HTTP on every address.
func (n *labNet) serveWeb(port int, overTLS bool) error {
	ln, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(n.answer), ErrorLog: log.New(io.Discard, "", 0), ConnState: func(c net.Conn, s http.ConnState) {
		if s == http.StateNew {
			n.hit(c.LocalAddr(), "", "")
		}
	}}
	n.close = append(n.close, s)
	if overTLS {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{n.cert}, NextProtos: []string{"http/1.1"}})
	}
	go func() { _ = s.Serve(ln) }()
	return nil
}

// serveBanner serves a protocol in which the server speaks first.
func (n *labNet) serveBanner(port int) error {
	ln, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	n.close = append(n.close, ln)
	go accept(ln, func(c net.Conn) {
		n.hit(c.LocalAddr(), "", "")
		_, _ = io.WriteString(c, "SSH-2.0-lab\r\n")
		_, _ = io.Copy(c, c)
	})
	return nil
}

func (n *labNet) hit(at net.Addr, host, path string) {
	to := at.(*net.TCPAddr).AddrPort()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hits = append(n.hits, labHit{netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), host, path})
}

// answer is what the web servers do: /to/302?URL redirects, /endless never ends.
func (n *labNet) answer(w http.ResponseWriter, r *http.Request) {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	n.hit(at, r.Host, r.URL.Path)
	if code := 0; strings.HasPrefix(r.URL.Path, "/to/") {
		_, _ = fmt.Sscanf(r.URL.Path, "/to/%d", &code)
		w.Header()["Location"] = []string{r.URL.RawQuery}
		w.WriteHeader(code)
		return
	}
	if r.URL.Path == "/endless" {
		_, _ = io.WriteString(w, "more\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	_, _ = fmt.Fprintf(w, "lab: %s%s", r.Host, r.URL.Path)
}

// reached are the connections and requests so far.
func (n *labNet) reached() []labHit {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.hits)
}

// asked reports whether a path was asked for.
func (n *labNet) asked(path string) bool {
	return slices.ContainsFunc(n.reached(), func(h labHit) bool { return h.Path == path })
}

func (n *labNet) end() {
	for _, c := range n.close {
		_ = c.Close()
	}
	if n.packets != nil {
		n.packets.stop()
	}
	if n.names != nil {
		_ = n.names.stop()
	}
	if n.ns != nil {
		_ = n.ns.Close()
	}
}

// sendAll sends what a sandbox must not: to loopback, to denied and public
// addresses, over TCP, UDP and ICMP.
func sendAll() error {
	for _, to := range []string{"127.0.0.1:80", labEvil + ":443", "[2606:4700::1111]:80"} {
		c, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		_ = c.Close()
	}
	for network, to := range map[string]string{"udp": "8.8.8.8:53", "udp4": "127.0.0.1:5353", "ip4:icmp": "169.254.169.254"} {
		c, err := net.Dial(network, to)
		if err != nil {
			return err
		}
		if _, err := c.Write([]byte("\x08\x00\xf7\xff\x00\x00\x00\x00")); err != nil {
			return err
		}
		_ = c.Close()
	}
	return nil
}
