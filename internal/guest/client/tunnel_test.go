package client_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
	"agentbox/internal/guest/client"
)

// hostLoopback lets an agent listen on this machine, on free ports instead of the
// sandbox's.
type hostLoopback struct {
	mu     sync.Mutex
	at     map[string]string // where "tcp" or "udp" and an address of the sandbox is
	conf   netip.Addr        // of the resolver that programs ask
	refuse uint16            // a port that is taken
	taken  bool              // a program waits on the port that is listened to aside
}

func newHostLoopback() *hostLoopback { return &hostLoopback{at: map[string]string{}} }

func (l *hostLoopback) Listen(at netip.AddrPort) (agent.Listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != 0 && at.Port() == l.refuse {
		return nil, syscall.EADDRINUSE
	}
	t, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.at["tcp "+at.String()] = t.Addr().String()
	return tcpListener{t.(*net.TCPListener), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.at["tcp "+at.String()] == t.Addr().String() {
			delete(l.at, "tcp "+at.String()) // another one gets the port
		}
	}}, nil
}

type tcpListener struct {
	*net.TCPListener
	gone func()
}

func (l tcpListener) Close() error {
	l.gone()
	return l.TCPListener.Close()
}

func (l tcpListener) Accept() (agent.PortConn, error) { return l.AcceptTCP() }

func (l *hostLoopback) ListenAside(at netip.AddrPort) (agent.Listener, error) { return l.Listen(at) }

func (l *hostLoopback) Taken(netip.AddrPort) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, nil
}

func (l *hostLoopback) ListenPacket(at netip.AddrPort) (net.PacketConn, error) {
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at["udp "+at.String()] = u.LocalAddr().String()
	return u, nil
}

func (l *hostLoopback) UseResolver(at netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conf = at
	return nil
}

// dial connects as a program in the sandbox does.
func (l *hostLoopback) dial(t *testing.T, network, address string) net.Conn {
	t.Helper()
	c, err := l.try(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // nothing here may wait for ever
		t.Fatal(err)
	}
	return c
}

func (l *hostLoopback) try(network, address string) (net.Conn, error) {
	l.mu.Lock()
	at := l.at[network+" "+address]
	l.mu.Unlock()
	if at == "" {
		return nil, fmt.Errorf("connect to %s: %w", address, syscall.ECONNREFUSED)
	}
	return net.Dial(network, at)
}

const proxyAt = "127.0.0.1:3128"

// toyTunnel serves connections with functions.
type toyTunnel struct {
	proxy   func(ctx context.Context, c net.Conn)
	connect func(ctx context.Context, c net.Conn, name string, port uint16)
	names   func(name string) bool
}

func (t toyTunnel) Proxy(ctx context.Context, c net.Conn) { t.proxy(ctx, c) }
func (t toyTunnel) Connect(ctx context.Context, c net.Conn, name string, port uint16) {
	t.connect(ctx, c, name, port)
}
func (t toyTunnel) MayResolve(_ context.Context, name string) bool { return t.names(name) }

// echo sends back what comes, to its end.
func echo(_ context.Context, c net.Conn) {
	if _, err := io.Copy(struct{ io.Writer }{c}, c); err == nil {
		_ = c.(*guest.TunnelConn).CloseWrite()
	}
}

var networkOn = &guestv1.GuestConfig{Network: &guestv1.Network{}}

// newNetwork is an agent with a network, connected to a host that has the tunnel.
func newNetwork(t *testing.T, conf *guestv1.GuestConfig, tunnel client.Tunnel) (*hostLoopback, *guestBox, *client.Session) {
	t.Helper()
	l := newHostLoopback()
	a := agent.New(agent.Options{Launcher: launcher{}, Loopback: l})
	t.Cleanup(a.Close)
	g := &guestBox{t: t, agent: a}
	return l, g, g.tunnel(conf, tunnel)
}

// tunnel begins a session with one.
func (g *guestBox) tunnel(conf *guestv1.GuestConfig, tunnel client.Tunnel) *client.Session {
	g.t.Helper()
	g.epoch++
	s, err := g.dial(client.Options{SandboxID: "test", Epoch: g.epoch, Config: conf, Tunnel: tunnel}, true)
	if err != nil {
		g.t.Fatal(err)
	}
	if e := s.Reply().GetError(); e != "" {
		g.t.Fatal(e)
	}
	return s
}

func TestTunnel(t *testing.T) {
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: echo})
	data := bytes.Repeat([]byte("0123456789abcdef"), 32<<20/16) // more than all buffers on the way
	c := l.dial(t, "tcp", proxyAt)
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes of %d came back, %v", len(got), len(data), err)
	}
}

// A program that waits for the other end's bytes after its own is served, and one
// whose other end is gone is told so.
func TestTunnelHalfClose(t *testing.T) {
	got := make(chan string, 1)
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(_ context.Context, c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
		_, _ = io.WriteString(c, "answer")
		_ = c.(*guest.TunnelConn).CloseWrite()
	}})
	c := l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "question")
	_ = c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if q := <-got; err != nil || string(b) != "answer" || q != "question" {
		t.Errorf("%q was answered with %q, %v", q, b, err)
	}
}

// The other end goes while the program still sends, after what it had to say.
func TestTunnelHostEndsFirst(t *testing.T) {
	answer := strings.Repeat("x", 200<<10)
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(_ context.Context, c net.Conn) {
		_, _ = io.WriteString(c, answer)
		_ = c.(*guest.TunnelConn).CloseWrite()
	}})
	c := l.dial(t, "tcp", proxyAt)
	if b, err := io.ReadAll(c); err != nil || string(b) != answer {
		t.Errorf("got %d bytes of %d, %v", len(b), len(answer), err)
	}
	for { // until the kernel says that nobody is there
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			return
		}
	}
}

func TestTunnelReset(t *testing.T) {
	ended := make(chan error, 1)
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(ctx context.Context, c net.Conn) {
		b := make([]byte, 1)
		_, _ = io.ReadFull(c, b)
		if b[0] == 'h' { // the host resets
			return
		}
		// The program does, while this end waits for room to write.
		var err error
		for err == nil {
			_, err = c.Write(make([]byte, 64<<10))
		}
		<-ctx.Done()
		ended <- err
	}})
	c := l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "h")
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset by the host: read %d, %v", n, err)
	}
	c = l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "p")
	_, _ = io.ReadFull(c, make([]byte, 1<<10))
	_ = c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-ended; !errors.Is(err, guest.ErrReset) {
		t.Errorf("reset by the program: the host got %v", err)
	}
}

// Without a host a program is told so at once; with the next one it goes on. What
// was open before is reset.
func TestTunnelSessions(t *testing.T) {
	l, g, s := newNetwork(t, networkOn, toyTunnel{proxy: echo})
	ping := func() {
		t.Helper()
		c := l.dial(t, "tcp", proxyAt)
		_, _ = io.WriteString(c, "x")
		if b := make([]byte, 1); func() error { _, err := io.ReadFull(c, b); return err }() != nil || b[0] != 'x' {
			t.Errorf("got %q", b)
		}
		c.Close()
	}
	open := func() net.Conn {
		c := l.dial(t, "tcp", proxyAt)
		_, _ = io.WriteString(c, "x")
		_, _ = io.ReadFull(c, make([]byte, 1))
		return c
	}
	reset := func(c net.Conn) {
		t.Helper()
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection of the session before: read %d, %v", n, err)
		}
	}
	old := open()
	s2 := g.tunnel(networkOn, toyTunnel{proxy: echo}) // takes over
	reset(old)
	ping()
	_ = s.Close()
	old = open()
	_ = s2.Close()
	reset(old)
	r, err := http.ReadResponse(bufio.NewReader(l.dial(t, "tcp", proxyAt)), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(b), "no daemon") || err != nil {
		t.Errorf("without a host: %s: %q, %v", r.Status, b, err)
	}
	// A host that has no tunnel is none.
	g.connect(networkOn, nil)
	if b, _ := io.ReadAll(l.dial(t, "tcp", proxyAt)); !strings.Contains(string(b), "503") {
		t.Errorf("got %q", b)
	}
	g.tunnel(networkOn, toyTunnel{proxy: echo})
	ping()
	// The network can be taken away.
	old = open()
	g.tunnel(&guestv1.GuestConfig{}, toyTunnel{proxy: echo})
	reset(old)
	if c, err := l.try("tcp", proxyAt); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a network: %v, %v", c, err)
	}
}

func TestTunnelManyAtOnce(t *testing.T) {
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: echo})
	var open []net.Conn
	for i := range 200 {
		c := l.dial(t, "tcp", proxyAt)
		open = append(open, c)
		fmt.Fprintf(c, "%08d", i)
	}
	for i, c := range open {
		b := make([]byte, 8)
		if _, err := io.ReadFull(c, b); err != nil || string(b) != fmt.Sprintf("%08d", i) {
			t.Fatalf("connection %d: got %q, %v", i, b, err)
		}
	}
	// There is a bound, and who meets it is told.
	refused := ""
	for range guest.MaxTunnelConns {
		c := l.dial(t, "tcp", proxyAt)
		open = append(open, c)
		_, _ = io.WriteString(c, "x")
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != 'x' {
			rest, _ := io.ReadAll(c)
			refused = string(b) + string(rest)
			break
		}
	}
	if !strings.Contains(refused, "503") || !strings.Contains(refused, "224") {
		t.Errorf("after %d connections one was told %q", len(open), refused)
	}
	for _, c := range open {
		c.Close()
	}
	for { // the test's own time limit ends this
		c, err := l.try("tcp", proxyAt)
		if err != nil {
			continue // of many that are refused, most are just ended
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "x")
		b := make([]byte, 1)
		_, err = io.ReadFull(c, b)
		c.Close()
		if err == nil && b[0] == 'x' {
			return
		}
	}
}

// Connections that nobody reads hold up no other, and who serves them late costs
// no place of others for ever.
func TestTunnelStalled(t *testing.T) {
	release := make(chan struct{})
	l, _, s := newNetwork(t, networkOn, toyTunnel{proxy: func(ctx context.Context, c net.Conn) {
		b := make([]byte, 1)
		_, _ = io.ReadFull(c, b)
		if b[0] == 's' {
			<-release // whatever the context says
			return
		}
		_, _ = c.Write(b)
	}})
	defer close(release)
	var stalled sync.WaitGroup
	defer stalled.Wait()
	for range 20 {
		c := l.dial(t, "tcp", proxyAt)
		stalled.Go(func() {
			data := append([]byte("s"), make([]byte, 8<<20)...)
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			if n, err := c.Write(data); err == nil {
				t.Errorf("all %d bytes were taken and nobody read them", n)
			}
			c.Close()
		})
	}
	c := l.dial(t, "tcp", proxyAt)
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("beside them: %v", err)
	}
	if _, err := s.Ping(ctx(t)); err != nil {
		t.Errorf("beside them: %v", err)
	}
}

// An agent without a network, as one that is older than tunnels, says that it has
// none.
func TestTunnelOfOlderAgent(t *testing.T) {
	g := newGuest(t)
	s := g.connect(nil, nil)
	if err := s.ServeTunnel(ctx(t), toyTunnel{}); !errdefs.IsNotImplemented(err) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Ping(ctx(t)); err != nil {
		t.Errorf("the session goes on: %v", err)
	}
	g.epoch++
	if s, err := g.dial(client.Options{SandboxID: "test", Epoch: g.epoch, Tunnel: toyTunnel{}}, true); !errdefs.IsNotImplemented(err) {
		t.Errorf("got %v, %v", s, err)
	}
}

// hostileGuest takes the tunnels and does with one what it likes.
func hostileGuest(t *testing.T, tunnel client.Tunnel, attack func(*guest.Tunnel)) *client.Session {
	t.Helper()
	host, end := net.Pipe()
	var done sync.WaitGroup
	done.Go(func() {
		h, err := guest.ReadHello(end)
		if err != nil {
			return
		}
		_ = guest.WriteReply(end, &guestv1.HelloReply{Version: guest.Version, Epoch: h.GetEpoch()})
		mux, err := guest.NewMux(end, false)
		if err != nil {
			return
		}
		defer mux.Close()
		for {
			c, err := mux.Accept()
			if err != nil {
				return
			}
			done.Go(func() { takeTunnel(c, attack) })
		}
	})
	s, err := client.New(ctx(t), host, client.Options{SandboxID: "test", Tunnel: tunnel})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		done.Wait()
	})
	return s
}

// takeTunnel answers the request for a tunnel and attacks it if it is not wide.
func takeTunnel(c net.Conn, attack func(*guest.Tunnel)) {
	r := bufio.NewReader(c)
	q, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
	wide := q.URL.Path == guest.PathWideTunnel
	inside, err := guest.NewTunnel(c, r, false, wide)
	if err != nil {
		return
	}
	defer inside.Close()
	inside.Begin()
	if !wide {
		attack(inside)
	}
	<-inside.Done()
}

// Streams that are none of a tunnel's are reset and reach nobody; too many end the
// tunnel, and the session goes on.
func TestTunnelHostileGuest(t *testing.T) {
	attacked := make(chan struct{})
	s := hostileGuest(t, toyTunnel{names: func(string) bool { return false }}, func(inside *guest.Tunnel) { // other calls would be of nil functions
		defer close(attacked)
		for _, h := range []guest.TunnelHead{
			{Kind: 9}, {Kind: guest.TunnelConnect, Name: "a", Port: 0}, {Kind: guest.TunnelConnect, Name: "a/b", Port: 1}, {Kind: guest.TunnelName, Name: "A"},
			{Kind: guest.TunnelName, Name: strings.Repeat("a", 300)}, {Kind: guest.TunnelProxy, Name: "a"},
		} {
			c, err := inside.Open(h)
			if err != nil {
				t.Error(err)
				return
			}
			if n, err := c.Read(make([]byte, 1)); !errors.Is(err, guest.ErrReset) {
				t.Errorf("%+v: read %d, %v", h, n, err)
			}
			c.Reset()
		}
		for { // streams that are never closed
			if _, err := inside.Open(guest.TunnelHead{Kind: guest.TunnelName, Name: "a"}); err != nil {
				return
			}
		}
	})
	<-attacked
	select {
	case <-s.Done():
		t.Errorf("the session ended: %v", s.Err())
	default:
	}
}

// Many connections that are reset and made anew at once do not end the tunnel,
// though the host lets go of the former later.
func TestTunnelChurn(t *testing.T) {
	l, _, _ := newNetwork(t, networkOn, toyTunnel{proxy: func(_ context.Context, c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, c) }})
	kept := l.dial(t, "tcp", proxyAt)
	pong := func() {
		t.Helper()
		_, _ = io.WriteString(kept, "x")
		if _, err := io.ReadFull(kept, make([]byte, 1)); err != nil {
			t.Fatalf("a connection beside them: %v", err)
		}
	}
	pong()
	for range 10 {
		var all sync.WaitGroup
		for range guest.MaxTunnelConns {
			all.Go(func() {
				if c, err := l.try("tcp", proxyAt); err == nil {
					_, _ = io.WriteString(c, "x")
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			})
		}
		all.Wait()
		pong()
	}
	var open []net.Conn // more than there are wide ones
	for len(open) < 2*guest.MaxWideConns {
		c, err := l.try("tcp", proxyAt)
		if err != nil {
			continue
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "x")
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil && b[0] == 'x' {
			open = append(open, c)
		} else if rest, _ := io.ReadAll(c); strings.Contains(string(rest), "no daemon") {
			t.Fatal("the tunnel is over")
		}
	}
}
