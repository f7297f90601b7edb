package egress_test

import (
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress"
	"agentbox/internal/sandbox"
)

// gateway is one whose sandboxes reach the lab.
func (l *lab) gateway(full bool) *egress.Gateway {
	g := egress.NewGateway(egress.GatewayOptions{Proxy: l.proxy(), Full: full})
	l.t.Cleanup(func() { g.Close() })
	return g
}

func allowing(hosts ...string) sandbox.Network { return sandbox.Network{Allow: hosts} }

func boxWith(n sandbox.Network) *sandbox.Sandbox {
	return &sandbox.Sandbox{UID: "a", Owner: "o", Network: n}
}

// TestGateway: a sandbox has one way, whose network changes; what it was denied is
// asked of the gateway, and with the sandbox all of it ends.
func TestGateway(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	g := l.gateway(false)
	way := g.Open(boxWith(allowing("allowed.test:2222")))
	if again := g.Open(boxWith(allowing("allowed.test:2222"))); again != way {
		t.Error("a second way of the same sandbox")
	}
	addr := l.accept(func(ctx context.Context, c net.Conn) { way.Proxy(ctx, c) })
	p := connectTo(t, addr)
	if resp, _ := p.ask("CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n"); resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	p.send("ping")
	if got := p.read(4); got != "ping" {
		t.Fatalf("got %q", got)
	}
	if out, in := g.Transferred("a"); out != 4 || in != 4 {
		t.Errorf("%d bytes went out, %d came in", out, in)
	}
	if !way.MayResolve(t.Context(), "allowed.test") || way.MayResolve(t.Context(), "evil.test") {
		t.Error("names that may be resolved are others")
	}

	if resp, _ := connectTo(t, addr).ask("CONNECT evil.test:2222 HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
	// By the resolver it was asked for, too: then most likely for its port 443.
	asked := g.Requests("a")
	if len(asked) != 2 || asked[0].Host != "evil.test" || asked[0].Port != 443 || asked[0].Count != 1 || asked[1].Host != "evil.test" || asked[1].Port != 2222 || asked[1].Count != 1 {
		t.Fatalf("requests: %+v", asked)
	}
	for left, q := range []string{asked[1].ID, asked[0].ID} {
		if err := g.Dismiss("a", q); err != nil || len(g.Requests("a")) != 1-left {
			t.Errorf("dismiss: %v", err)
		}
	}
	for _, uid := range []string{"a", "unknown"} {
		if err := g.Dismiss(uid, asked[0].ID); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "no undecided request "+strconv.Quote(asked[0].ID)) {
			t.Errorf("dismiss what is not there, of %s: %v", uid, err)
		}
	}

	if err := g.Set("a", allowing("evil.test"), false); err != nil {
		t.Error(err)
	}
	if resp, _ := connectTo(t, addr).ask("CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("taken off the list: %s", resp.Status)
	}
	p.send("ping")
	if got := p.read(4); got != "ping" {
		t.Errorf("a connection that is not to be cut: %q", got)
	}
	g.Shut("a")
	if got, err := p.rest(); err == nil {
		t.Errorf("after the sandbox's end the connection ends with %q and no reset", got)
	}
	if out, in := g.Transferred("a"); out != 0 || in != 0 || g.Requests("a") != nil {
		t.Error("something is left of the sandbox")
	}
	g.Shut("a")
	if err := g.Set("a", allowing("evil.test"), true); err != nil {
		t.Errorf("set what a sandbox that does not run may reach: %v", err)
	}
}

// TestGatewayBounds: full is what the operator allows; a network that is not
// allowed any more leads nowhere.
func TestGatewayBounds(t *testing.T) {
	l := newLab(t)
	l.serve(allowedAddr, 2222, echo)
	full := sandbox.Network{Mode: sandbox.NetworkFull}
	open, narrow := l.gateway(true), l.gateway(false)
	if err := open.Check(full); err != nil || open.Default().Mode != sandbox.NetworkFull {
		t.Errorf("full where it is allowed: %v, %+v", err, open.Default())
	}
	if err := narrow.Check(full); !errdefs.IsPermissionDenied(err) {
		t.Errorf("full where it is not allowed: %v", err)
	}
	if err := narrow.Check(narrow.Default()); err != nil || narrow.Default().Mode != sandbox.NetworkAllowlist {
		t.Errorf("the default: %v, %+v", err, narrow.Default())
	}
	if err := narrow.Check(allowing("not a host")); !errdefs.IsInvalidArgument(err) {
		t.Errorf("nonsense: %v", err)
	}
	wide := allowing("1.0.0.0/8", "2.0.0.0/8", "3.0.0.0/8", "4.0.0.0/8", "5.0.0.0/8")
	if err := narrow.Check(wide); !errdefs.IsPermissionDenied(err) || open.Check(wide) != nil {
		t.Errorf("ranges that are nearly everything: %v; where full is allowed: %v", err, open.Check(wide))
	}
	for g, want := range map[*egress.Gateway]int{open: 200, narrow: 403} {
		way := g.Open(boxWith(full)) // as it was recorded under another configuration
		addr := l.accept(func(ctx context.Context, c net.Conn) { way.Proxy(ctx, c) })
		if resp, _ := connectTo(t, addr).ask("CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n"); resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
}

// stuck is a connection to a guest that takes nothing and never ends.
type stuck struct {
	net.Conn
	writing, released chan struct{}
	once              sync.Once
}

func (c *stuck) wait() error {
	c.once.Do(func() { close(c.writing) })
	<-c.released
	return net.ErrClosed
}
func (c *stuck) Write([]byte) (int, error) { return 0, c.wait() }
func (c *stuck) Close() error              { return c.wait() }

// TestGatewayDoesNotWait: a guest that holds its connections holds up neither the
// end of its sandbox nor the daemon's, and the server's end is closed at once.
func TestGatewayDoesNotWait(t *testing.T) {
	t.Parallel() // it waits most of the time
	l := newLab(t)
	gone := make(chan struct{})
	l.serve(allowedAddr, 2222, func(c net.Conn) {
		defer close(gone)
		_, _ = c.Write([]byte("banner"))
		_, _ = io.Copy(io.Discard, c)
	})
	g := l.gateway(false)
	way := g.Open(boxWith(allowing("allowed.test:2222")))
	near, far := net.Pipe()
	defer near.Close()
	c := &stuck{Conn: far, writing: make(chan struct{}), released: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		way.Proxy(context.Background(), c)
	}()
	if _, err := near.Write([]byte("CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-c.writing
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		g.Shut("a")
		g.Close()
	}()
	for _, ended := range []chan struct{}{returned, gone} {
		select {
		case <-ended:
		case <-time.After(wait):
			t.Error("it waits for the guest")
		}
	}
	close(c.released)
	<-served
}
