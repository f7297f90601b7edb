package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"time"

	"agentbox/internal/egress/hide"
	"agentbox/internal/egress/policy"
	"agentbox/internal/egress/token"
)

// Dialer connects to a target that the policy allowed, or refuses its address.
type Dialer interface {
	Dial(ctx context.Context, t policy.Target) (net.Conn, netip.AddrPort, error)
}

// Interceptor gives the certificate with which the proxy ends the TLS of a host, a
// name or an address, itself, and so sees its requests. It is asked for each
// connection that is intercepted.
type Interceptor interface {
	Certificate(s *Session, host string) (*tls.Certificate, error)
}

// Injector puts secrets into the header of a request to a target, in place of
// what the sandbox has of them.
type Injector interface {
	// Wants reports whether requests of the sandbox to a target may have one put in,
	// and so must be seen.
	Wants(s *Session, t policy.Target) bool
	// Inject returns the values that the answer must not show: also what was put into other
	// requests, which the server may remember. Without a header nothing is put in: no
	// secret goes over the network in clear. With an error, whose text is for the
	// sandbox, the request is not sent.
	Inject(s *Session, t policy.Target, h http.Header) (values []string, err error)
}

// Verifier checks tokens, see [token.Keys].
type Verifier interface {
	Verify(token string) (token.Claims, error)
}

// Options of a Proxy.
type Options struct {
	Dialer    Dialer      // needed
	Recorder  Recorder    // nil: nothing is recorded
	Intercept Interceptor // nil: TLS is never intercepted; else where policies say so
	Secrets   Injector    // nil: none
	// Tokens checks those that clients send. nil: what they send is dropped.
	Tokens   Verifier
	Timeouts Timeouts
	// Roots are trusted for servers of intercepted connections. nil: this
	// machine's.
	Roots *x509.CertPool
}

// Proxy serves connections of sandboxes. Any number of goroutines may use it.
type Proxy struct {
	o        Options
	searches *hide.Searches
}

// New makes a proxy.
func New(o Options) *Proxy {
	o.Timeouts = o.Timeouts.withDefaults()
	return &Proxy{o: o, searches: hide.NewSearches()}
}

// ServeConn serves what a program in the sandbox sent to its proxy, HTTP/1.1 or
// SOCKS5, and closes the connection. It returns when the connection has ended:
// by itself, with the context or with the session.
//
// The end of the client's direction is told to the server and the other way
// round if the connection has CloseWrite; what breaks off is closed without it,
// and reset if it has SetLinger.
func (p *Proxy) ServeConn(ctx context.Context, conn net.Conn, s *Session) {
	p.serve(ctx, conn, s, func(ctx context.Context, c *client) {
		c.auth = func(h http.Header) *refusal { return p.checkToken(s, h, false) }
		c.setReadDeadline(p.o.Timeouts.Head)
		first, err := c.r.Peek(1)
		switch {
		case err != nil:
		case first[0] == socksVersion:
			c.serveSOCKS(ctx)
		default:
			c.serveProxy(ctx)
		}
	})
}

// ServeName serves a connection to an address that the sandbox's resolver gave
// out for a name. The requests, or the TLS server name, in it must be for that
// name. It closes the connection.
func (p *Proxy) ServeName(ctx context.Context, conn net.Conn, s *Session, name string, port uint16) {
	p.serve(ctx, conn, s, func(ctx context.Context, c *client) { c.serveName(ctx, name, port) })
}

// MayResolve reports whether the sandbox may know that a name exists. Nothing is
// resolved for it. A name that it may not know is recorded, with the port 0: the
// program gets no further.
func (p *Proxy) MayResolve(s *Session, name string) bool {
	if !s.Live() {
		return false
	}
	if s.Policy().Name(name) {
		return true
	}
	t, err := policy.ParseHost(name, 443)
	if err != nil {
		return false // it has no form that a list could name
	}
	s.asks.add(t)
	t.Port = 0
	_, f := s.begin(s.ctx, KindTransparent, t)
	f.refuse(denyHost(CodeHost, t.Host(), ""))
	f.end(p.o.Recorder)
	return false
}

// client is one connection of a sandbox.
type client struct {
	p    *Proxy
	s    *Session
	conn *clientConn
	r    *bufio.Reader // of conn; its size bounds heads and handshakes
	// full: the session has connections enough, and this one is told so.
	full bool
	// auth checks the token of a request. nil: none is needed.
	auth func(http.Header) *refusal
	// broken: what the client has of an answer is not all; a reset tells it.
	broken bool
	// linger: the client may still send what nobody wants.
	linger bool
}

func (p *Proxy) serve(ctx context.Context, conn net.Conn, s *Session, talk func(context.Context, *client)) {
	leave, full, ok := s.enter()
	if !ok {
		p.tooMany(s)
		abort(conn)
		return
	}
	defer leave()
	ctx, cancel := context.WithCancelCause(ctx)
	ctx = withLineage(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	w := newWatchdog(p.o.Timeouts.Idle, func() { cancel(errIdle) })
	defer w.stop()
	c := &client{p: p, s: s, full: full, conn: &clientConn{Conn: conn, watch: w}}
	c.r = bufio.NewReaderSize(c.conn, maxHead)
	stop := context.AfterFunc(ctx, func() { abort(conn) })
	talk(ctx, c)
	if stop() {
		c.finish()
	}
}

// tooMany records a connection that is closed unread. One of a sandbox that ends is
// none too many.
func (p *Proxy) tooMany(s *Session) {
	if p.o.Recorder != nil && s.Live() {
		p.o.Recorder.Record(Record{
			Time: time.Now(), Sandbox: s.o.Sandbox, Owner: s.o.Owner, Verdict: Denied, Code: CodeConns, Reason: "the sandbox has too many connections: this one was not read",
		})
	}
}

// finish ends the connection so that the client sees what it should.
func (c *client) finish() {
	if c.broken {
		abort(c.conn.Conn)
		return
	}
	_ = c.conn.CloseWrite()
	if c.linger {
		c.setReadDeadline(lingerTime)
		drain(c.conn)
	}
	c.conn.Close()
}

// setReadDeadline is from now; 0 is none.
func (c *client) setReadDeadline(d time.Duration) {
	setReadDeadline(c.conn, d)
}

// judge decides on the target of a flow before anything is resolved.
func (c *client) judge(f *flow) (policy.Verdict, *refusal) {
	if r := c.room(); r != nil {
		return policy.Verdict{}, r
	}
	v := c.s.Policy().Connect(f.target)
	if !v.Allow {
		c.s.asks.add(f.target)
		return v, denyHost(CodeHost, f.target.Host(), v.Reason)
	}
	f.rec.Rule = v.Rule
	f.note(func(j *judged) { j.seen = v.SeeRequest }) // they are, or it is refused
	return v, nil
}

// room refuses what the limits have no room for.
func (c *client) room() *refusal {
	switch {
	case c.full:
		return deny(http.StatusTooManyRequests, CodeConns, "The sandbox has too many connections", "")
	case c.s.meter.exhausted():
		return deny(http.StatusTooManyRequests, CodeBytes, errBytes.Error(), "")
	}
	return nil
}

// dial connects to a target that was judged. Life is the context in which the
// connection is used: at its end the connection ends at once, whatever the client
// does.
func (c *client) dial(ctx, life context.Context, t policy.Target) (*upstream, error) {
	conn, addr, err := c.p.o.Dialer.Dial(ctx, t)
	if err != nil {
		return nil, err
	}
	up := &upstream{Conn: conn, ctx: life, meter: c.s.meter, watch: c.conn.watch, addr: addr}
	up.spare = context.AfterFunc(life, func() { abort(conn) })
	return up, nil
}

// open judges and connects.
func (c *client) open(ctx context.Context, f *flow) (*upstream, policy.Verdict, *refusal) {
	v, r := c.judge(f)
	if r != nil {
		return nil, v, r
	}
	up, err := c.dial(ctx, ctx, f.target)
	if err != nil {
		return nil, v, failure("Failed to connect: ", CodeConnect, f.target.Host(), err)
	}
	f.rec.Addr = up.addr.Addr()
	c.opened(f, up)
	return up, v, nil
}
