package egress

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
	"agentbox/internal/egress/token"
	"agentbox/internal/sandbox"
)

// GatewayOptions of a Gateway.
type GatewayOptions struct {
	Proxy *Proxy
	// Full: sandboxes may have the mode full.
	Full bool
	// Limits of each sandbox.
	Limits Limits
	// Trust are certificates, DER, that the operator gives to all sandboxes.
	Trust [][]byte
	// Authorities are those of intercepted connections. Nil: none is intercepted.
	Authorities Authorities
	// Keys sign the tokens that Proxy verifies.
	Keys *token.Keys
	// Address (host:port) by which sandboxes with a network of their own reach the
	// proxy, see Serve. Empty: they don't.
	Address string
	// Log is for the operator. Nil: none.
	Log *slog.Logger
}

// Authorities gives the certificate, DER, of a sandbox's own authority, which its
// programs must trust.
type Authorities interface {
	Authority(sandbox string) ([]byte, error)
}

// Gateway has the sessions of the sandboxes that run here and have a network. Any
// number of goroutines may use it.
type Gateway struct {
	o    GatewayOptions
	door *Listener

	ends sync.WaitGroup // ways that are ending

	mu   sync.Mutex
	ways map[string]*Way // by the sandbox's uid
}

// NewGateway makes one. It must be closed.
func NewGateway(o GatewayOptions) *Gateway {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Gateway{o: o, door: NewListener(o.Proxy), ways: map[string]*Way{}}
}

// Default is the network of callers who want one and do not say which: full if
// that is allowed, else the documented hosts.
func (g *Gateway) Default() sandbox.Network {
	if g.o.Full {
		return sandbox.Network{Mode: sandbox.NetworkFull, Resolver: true}
	}
	return sandbox.Network{Mode: sandbox.NetworkAllowlist, Allow: []string{"default"}, Resolver: true}
}

// Check refuses a network that can't be had: as an *sandbox.InvalidError when it
// makes no sense, or because the operator does not allow it.
func (g *Gateway) Check(n sandbox.Network) error {
	_, err := g.compile(n)
	return err
}

func (g *Gateway) compile(n sandbox.Network) (*policy.Policy, error) {
	p, err := policy.Compile(n)
	if err != nil {
		return nil, err
	}
	if p.Mode() == policy.Full && !g.o.Full {
		return nil, sandbox.Refuse(errdefs.ErrPermissionDenied, "network.mode full is not allowed on this server; name hosts in network.allow, or its operator sets egress.full")
	}
	if p.Wide() && !g.o.Full {
		return nil, sandbox.Refuse(errdefs.ErrPermissionDenied, "the ranges in network.allow are too wide together: name hosts or narrower ranges, or the operator sets egress.full")
	}
	return p, nil
}

// Open gives a sandbox its way out. One that it has goes on, under the network
// that it is to have now. What the operator does not allow any more, allows
// nothing.
func (g *Gateway) Open(sb *sandbox.Sandbox) *Way {
	uid := sb.UID
	p, err := g.compile(sb.Network)
	if err != nil {
		g.o.Log.Warn("a sandbox's network is not allowed any more and leads nowhere", "sandbox", uid, "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.ways[uid]
	if w == nil {
		w = &Way{proxy: g.o.Proxy, session: NewSession(SessionOptions{Sandbox: uid, Owner: sb.Owner, Policy: p, Limits: g.o.Limits, Secrets: sb.Secrets})}
		g.ways[uid] = w
	} else {
		w.session.SetPolicy(p, false)
	}
	return w
}

// Set changes what a sandbox may reach, at once. With cut, connections end that
// are not allowed any more. A sandbox without a way is left alone.
func (g *Gateway) Set(uid string, n sandbox.Network, cut bool) error {
	p, err := g.compile(n)
	if err != nil {
		return err
	}
	if w := g.way(uid); w != nil {
		w.session.SetPolicy(p, cut)
	}
	return nil
}

// Shut ends all connections of a sandbox and forgets it. It does not wait for
// them: their last moments are the guest's.
func (g *Gateway) Shut(uid string) {
	g.mu.Lock()
	w := g.ways[uid]
	delete(g.ways, uid)
	g.mu.Unlock()
	if w != nil {
		g.end(w)
	}
}

// end lets a way end by itself. Its tokens are dead at once.
func (g *Gateway) end(w *Way) {
	w.session.End() // first: from then on nobody registers it
	g.door.Unregister(w.session)
	g.ends.Go(w.session.Close)
}

// closeTime is how long Close waits for connections to be recorded.
const closeTime = 2 * time.Second

// Close ends all connections. Those whose guest does not let go of them are not
// waited for.
func (g *Gateway) Close() error {
	g.mu.Lock()
	ways := g.ways
	g.ways = map[string]*Way{}
	g.mu.Unlock()
	for _, w := range ways {
		g.end(w)
	}
	g.door.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.ends.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(closeTime):
	}
	return nil
}

// Requests are the hosts that a sandbox was denied and nobody decided on since,
// the oldest first.
func (g *Gateway) Requests(uid string) []sandbox.NetworkRequest {
	w := g.way(uid)
	if w == nil {
		return nil
	}
	var all []sandbox.NetworkRequest
	for _, r := range w.session.Requests() {
		all = append(all, sandbox.NetworkRequest{ID: r.ID, Host: r.Target.Host(), Port: r.Target.Port, First: r.First, Last: r.Last, Count: r.Count})
	}
	return all
}

// Dismiss takes a request off the list. NotFound: it is not there.
func (g *Gateway) Dismiss(uid, request string) error {
	if w := g.way(uid); w == nil || !w.session.Dismiss(request) {
		return sandbox.Refuse(errdefs.ErrNotFound, "there is no undecided request %.32q", request)
	}
	return nil
}

// Transferred are the bytes that went out of a sandbox and came into it since its
// way was opened.
func (g *Gateway) Transferred(uid string) (out, in int64) {
	if w := g.way(uid); w != nil {
		return w.session.meter.up.bytes.Load(), w.session.meter.down.bytes.Load()
	}
	return 0, 0
}

// Trust are the certificates, DER, that a sandbox's programs are to trust besides
// its image's.
func (g *Gateway) Trust(sb *sandbox.Sandbox) [][]byte {
	p, err := g.compile(sb.Network)
	sees := p.Intercepts() || sb.Network.On() && len(sb.Secrets) > 0
	if err != nil || g.o.Authorities == nil || !sees {
		return g.o.Trust
	}
	own, err := g.o.Authorities.Authority(sb.UID)
	if err != nil {
		g.o.Log.Warn("a sandbox has no authority: its programs refuse intercepted connections", "sandbox", sb.UID, "error", err)
		return g.o.Trust
	}
	return append(slices.Clip(g.o.Trust), own)
}

func (g *Gateway) way(uid string) *Way {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ways[uid]
}

// Way is how one sandbox reaches the network. It serves the connections that the
// guest agent hands over.
type Way struct {
	proxy   *Proxy
	session *Session
}

// Proxy serves a client of the sandbox's proxy.
func (w *Way) Proxy(ctx context.Context, conn net.Conn) { w.proxy.ServeConn(ctx, conn, w.session) }

// Connect serves a connection to the address that the sandbox's resolver gave out
// for a name.
func (w *Way) Connect(ctx context.Context, conn net.Conn, name string, port uint16) {
	w.proxy.ServeName(ctx, conn, w.session, name, port)
}

// MayResolve reports whether the sandbox may know that a name exists.
func (w *Way) MayResolve(_ context.Context, name string) bool {
	return w.proxy.MayResolve(w.session, name)
}
