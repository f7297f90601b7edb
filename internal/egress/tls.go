package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"agentbox/internal/egress/policy"
)

// serveTLS serves a client that begins with a handshake of TLS.
func (t *tunnel) serveTLS(ctx context.Context) *refusal {
	t.setReadDeadline(t.p.o.Timeouts.Head)
	name, err := serverName(t.r)
	t.setReadDeadline(0)
	if err != nil {
		return t.refuseTLS(deny(0, CodeHello, "the TLS handshake can't be read: "+err.Error(), ""))
	}
	named, err := policy.ParseHost(name, t.f.target.Port)
	if err != nil || t.f.target.Name != "" {
		named = policy.Target{}
	}
	// A change of the policy from here on finds what it was allowed for.
	t.f.note(func(j *judged) { j.named, j.closed = named, true })
	if r := t.checkServerName(name); r != nil {
		return t.refuseTLS(r)
	}
	switch {
	case t.p.o.Intercept == nil:
		return t.serveRaw(ctx)
	case t.wanted(t.f.target):
		t.f.note(func(j *judged) { j.closed = false })
	case named.Name != "" && t.wanted(named):
		return t.refuseTLS(deny(0, CodeUnseen, "the requests to "+named.Host()+" are to be seen: ask for it by its name instead of its address", ""))
	default:
		return t.serveRaw(ctx)
	}
	host := t.f.target.Host()
	if t.f.target.Name == "" && name != "" {
		host = name // of those who ask for an address themselves: they expect the name's certificate
	}
	cert, err := t.p.o.Intercept.Certificate(t.s, host)
	if err != nil {
		return t.refuseTLS(&refusal{code: CodeMintFailed, text: "there is no certificate for the host"})
	}
	return t.intercept(ctx, cert)
}

// wanted reports whether the requests to a target are to be seen.
func (t *tunnel) wanted(to policy.Target) bool {
	return t.s.Policy().Intercept(to) || t.p.o.Secrets != nil && t.p.o.Secrets.Wants(t.s, to)
}

// refuseTLS tells the client, in its protocol, that access is denied.
func (t *tunnel) refuseTLS(r *refusal) *refusal {
	t.back.stop(t.up)
	if !t.spoken() {
		t.alert()
	}
	return r
}

// alert writes a fatal access_denied (RFC 8446, section 6), which clients show.
func (c *client) alert() { _, _ = c.conn.Write([]byte{21, 3, 3, 0, 2, 2, 49}) }

// checkServerName holds the name of the handshake against the target. What asks
// for an address may leave it out, or name a host that the policy allows there.
func (t *tunnel) checkServerName(name string) *refusal {
	switch {
	case name == "" && t.f.target.Name != "":
		return deny(0, CodeNoServerName, "the TLS handshake names no host", "")
	case name != "" && !t.s.matches(t.f.target, name):
		return deny(0, CodeServerName, "the TLS handshake is for another host: "+clip(name), "")
	}
	return nil
}

// matches reports whether a server name or a Host, without port, is the target's.
func (s *Session) matches(t policy.Target, host string) bool {
	named, err := policy.ParseHost(host, t.Port)
	if err != nil {
		return false
	}
	if named == t || t.Name != "" || named.Name == "" {
		return named == t
	}
	return mayName(s.Policy(), named)
}

// mayName reports whether who is connected to an address may name a host there: not
// one of which only some requests are allowed, since they would be judged by the
// address.
func mayName(p *policy.Policy, named policy.Target) bool {
	v := p.Connect(named)
	return v.Allow && !v.SeeRequest
}

var errSeen = errors.New("the ClientHello was read")

// serverName reads the name of the host in a ClientHello, and leaves it all in r.
// Without one it is empty; of an encrypted ClientHello it is the outer one.
//
// The parser is that of crypto/tls, which refuses what others may read in another
// way: names or extensions that are there twice, lengths that do not fit.
func serverName(r *bufio.Reader) (string, error) {
	name := ""
	err := tls.Server(&peeker{r: r}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name = strings.ToLower(h.ServerName)
			return nil, errSeen
		},
	}).Handshake()
	switch {
	case errors.Is(err, errSeen):
		return name, nil
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errors.New("it is too large")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errClient):
		return "", errors.New("it is cut off")
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "", errors.New("it did not come in time")
	}
	return "", errors.New("it is malformed")
}

// peeker is a connection that reads without taking, and writes nothing.
type peeker struct {
	r   *bufio.Reader
	off int
}

func (p *peeker) Read(b []byte) (int, error) {
	if _, err := p.r.Peek(p.off + 1); err != nil {
		return 0, err
	}
	all, _ := p.r.Peek(p.r.Buffered())
	n := copy(b, all[p.off:])
	p.off += n
	return n, nil
}

func (*peeker) Write(b []byte) (int, error)      { return len(b), nil }
func (*peeker) Close() error                     { return nil }
func (*peeker) LocalAddr() net.Addr              { return nil }
func (*peeker) RemoteAddr() net.Addr             { return nil }
func (*peeker) SetDeadline(time.Time) error      { return nil }
func (*peeker) SetReadDeadline(time.Time) error  { return nil }
func (*peeker) SetWriteDeadline(time.Time) error { return nil }

// buffered is a connection of which a reader has some bytes already.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// intercept ends the TLS of the client and serves the requests in it.
func (t *tunnel) intercept(ctx context.Context, cert *tls.Certificate) *refusal {
	t.back.stop(t.up)
	t.f.rec.Intercepted = true
	conn := tls.Server(buffered{t.conn, t.r}, &tls.Config{
		Certificates: []tls.Certificate{*cert},
		NextProtos:   []string{"http/1.1"},
		MinVersion:   tls.VersionTLS12,
		// No other connection has their key.
		SessionTicketsDisabled: true,
	})
	hs, cancel := context.WithTimeout(ctx, t.p.o.Timeouts.Head)
	defer cancel()
	if err := conn.HandshakeContext(hs); err != nil {
		return &refusal{code: CodeMintFailed, text: whyNoHandshake(err)}
	}
	t.f.requestsSeen()
	w := newWeb(ctx, t.client, conn, bufio.NewReaderSize(conn, maxHead), &t.f.target)
	w.kind, w.scheme, w.ready = t.f.rec.Kind, "https", t.up
	t.f.quiet = w.serve()
	_ = conn.CloseWrite()
	return nil
}

// whyNoHandshake says what became of the handshake with a client. Package tls has
// types for some of its errors only.
func whyNoHandshake(err error) string {
	var remote *net.OpError
	switch text := err.Error(); {
	case errors.As(err, &remote) && remote.Op == "remote error":
		return "the client refuses the proxy's certificate (" + clip(remote.Err.Error()) + "): it trusts certain certificates only, or does not read the sandbox's trust stores"
	case strings.Contains(text, "application protocol"):
		return "the client speaks no HTTP/1.1, and intercepted connections have no other protocol"
	case strings.Contains(text, "unsupported versions"):
		return "the client speaks no TLS 1.2 or later"
	}
	return "the client ended the handshake: it may trust certain certificates only, or not read the sandbox's trust stores"
}

// serveHTTP serves the requests of a client that speaks HTTP in a tunnel.
func (t *tunnel) serveHTTP(ctx context.Context) {
	t.back.stop(t.up)
	t.f.requestsSeen()
	w := newWeb(ctx, t.client, t.conn, t.r, &t.f.target)
	w.kind, w.ready = t.f.rec.Kind, t.up
	t.f.quiet = w.serve()
}
