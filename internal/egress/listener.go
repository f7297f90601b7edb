package egress

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"agentbox/internal/egress/token"
)

// checkToken checks the token of a request. What was sent must be good, also where
// none is needed.
func (p *Proxy) checkToken(s *Session, h http.Header, needed bool) *refusal {
	sent := h["Proxy-Authorization"]
	if !needed && (len(sent) == 0 || p.o.Tokens == nil) {
		return nil
	}
	err := errors.New("there is no token")
	switch {
	case len(sent) > 1:
		err = errors.New("there are several tokens")
	case len(sent) == 1 && p.o.Tokens != nil:
		err = verify(p.o.Tokens, s, sent[0])
	}
	if err != nil {
		return deny(http.StatusProxyAuthRequired, CodeToken, "Proxy authentication required", err.Error())
	}
	return nil
}

// passwordPrefix stands before the token in the password.
const passwordPrefix = "jwt_"

// verify takes Basic credentials with any user.
func verify(v Verifier, s *Session, credentials string) error {
	scheme, encoded, _ := strings.Cut(credentials, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return errors.New("the credentials are not of the scheme Basic")
	}
	b, err := base64.StdEncoding.Strict().DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return errors.New("the credentials are not in base64")
	}
	_, password, _ := strings.Cut(string(b), ":")
	text, ok := strings.CutPrefix(password, passwordPrefix)
	if !ok {
		return errors.New("the password is no token")
	}
	c, err := v.Verify(text)
	switch {
	case err != nil:
		return err
	case s == nil || !s.Live():
		return fmt.Errorf("%w: its session is not live, or not at this address", token.ErrInvalid)
	case c.Session != s.o.Sandbox:
		return fmt.Errorf("%w: it is another session's", token.ErrInvalid)
	}
	return nil
}

// Listener serves sandboxes that have a network of their own and know the proxy's
// address. Who asks is told by two things that must agree: the address that the
// connection comes from, which is registered for a session, and the token of that
// session. Whatever is wrong with one of them is answered with 407.
type Listener struct {
	p *Proxy
	// nobody is the session of unknown addresses. It allows nothing.
	nobody *Session

	mu       sync.Mutex
	sessions map[netip.Addr]*Session
}

// maxUnknown bounds the connections from addresses that are nobody's.
const maxUnknown = 64

// NewListener makes one. It must be closed.
func NewListener(p *Proxy) *Listener {
	return &Listener{
		p: p, sessions: make(map[netip.Addr]*Session),
		nobody: NewSession(SessionOptions{Limits: Limits{Conns: maxUnknown}}),
	}
}

// Register says that connections from these addresses, and from no others, are a
// session's. With one that is another live session's, or that nobody has, none is;
// nor is any one of a session that was closed.
func (l *Listener) Register(s *Session, addrs ...netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(s)
	if !s.Live() { // it may have been closed, and unregistered, on the way here
		return fmt.Errorf("register addresses for sandbox %s: %w", s.Sandbox(), errClosed)
	}
	for _, addr := range addrs {
		old := l.sessions[plainAddr(addr)]
		switch {
		case !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast():
			return fmt.Errorf("register %s for sandbox %s: nobody has that address", addr, s.Sandbox())
		case old != nil && old != s && old.Live():
			return fmt.Errorf("register %s for sandbox %s: it is sandbox %s's", addr, s.Sandbox(), old.Sandbox())
		}
	}
	for _, addr := range addrs {
		l.sessions[plainAddr(addr)] = s
	}
	return nil
}

// plainAddr is an address in the one form in which they are compared.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// Unregister forgets all addresses of a session.
func (l *Listener) Unregister(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(s)
}

// forget is Unregister; mu is held.
func (l *Listener) forget(s *Session) {
	maps.DeleteFunc(l.sessions, func(_ netip.Addr, one *Session) bool { return one == s })
}

// Close ends the connections from unknown addresses; those of sessions end with
// them. Serve is to be ended first, by its context.
func (l *Listener) Close() { l.nobody.Close() }

// session is whose connections from an address are. A session that was closed is
// nobody any more.
func (l *Listener) session(addr net.Addr) *Session {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return l.nobody
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sessions[plainAddr(tcp.AddrPort().Addr())]; s != nil && s.Live() {
		return s
	}
	return l.nobody
}

// Serve accepts connections until the context ends, closes the listener and waits
// for them.
func (l *Listener) Serve(ctx context.Context, ln net.Listener) error {
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections for the egress proxy: %w", err)
		case err != nil: // such as too many open files: it may pass
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		tasks.Go(func() { l.serve(ctx, conn) })
	}
}

// serve serves HTTP alone: SOCKS has no place for a token.
func (l *Listener) serve(ctx context.Context, conn net.Conn) {
	s := l.session(conn.RemoteAddr())
	l.p.serve(ctx, conn, s, func(ctx context.Context, c *client) {
		c.auth = func(h http.Header) *refusal { return l.p.checkToken(s, h, true) }
		c.serveProxy(ctx)
	})
}
