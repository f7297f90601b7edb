package auth

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/peercred"
	"agentbox/internal/sandbox"
)

// Access is what a route asks of its caller. The zero value is the usual one,
// so that a route whose author forgot to say is not open.
type Access int

const (
	// NeedKey: any good key.
	NeedKey Access = iota
	// NeedAdmin: a key with the admin role.
	NeedAdmin
	// Open: nobody is asked.
	Open
)

// Policy is how a gate judges.
type Policy struct {
	// NoAuth lets in everybody from this machine, as an admin of the default
	// owner. A key that is given is checked all the same.
	NoAuth bool
	// LocalOnly refuses clients of other machines, whatever the service listens on.
	LocalOnly bool
	// Login is a further way in, beside keys.
	Login Login
	// Loopback says that the service listens on a loopback address: requests
	// that call it otherwise are refused.
	Loopback bool
	// AllowOrigin are the origins of web pages that may use the service.
	AllowOrigin []string
	// Rates bound requests.
	Rates Rates
	// Requests bounds those of one owner that are served at the same time; 0: any
	// number.
	Requests int
}

// Gate decides about each request. It is safe for concurrent use.
type Gate struct {
	keys    *Keyring
	origins *Origins
	noAuth  bool
	local   bool
	login   Login
	limits  *limits
	present present
}

// NewGate returns the gate of a keyring.
func NewGate(keys *Keyring, p Policy) (*Gate, error) {
	origins, err := NewOrigins(p.AllowOrigin, p.NoAuth || p.Loopback)
	if err != nil {
		return nil, err
	}
	g := &Gate{keys: keys, origins: origins, noAuth: p.NoAuth, local: p.LocalOnly, login: p.Login, limits: newLimits(p.Rates)}
	g.present.most, g.present.byOwner = p.Requests, map[string]int{}
	return g, nil
}

// Origins are the web pages that may come in.
func (g *Gate) Origins() *Origins { return g.origins }

// Enter tells who sends r, or why it is refused: an error of the class
// Unauthenticated or PermissionDenied, [*RateError], or Unavailable when keys
// can't be looked up. No error has a key in it.
func (g *Gate) Enter(r *http.Request, a Access) (sandbox.Caller, error) {
	if peer, ok := peerOf(r.Context()); ok {
		return g.enterLocally(r, a, peer)
	}
	addr := address(r)
	if err := g.limits.address(addr); err != nil {
		return sandbox.Caller{}, err
	}
	caller, err := g.enter(r, a, addr)
	if errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) {
		if limit := g.limits.refused(addr); limit != nil {
			err = limit
		}
	}
	return caller, err
}

// Stay counts the request of a caller that was let in, until leave is called. The
// context that it returns ends when the caller's key is revoked. The error is a
// [sandbox.LimitError] when the owner has as many requests open as it may, and of
// the class Unauthenticated when the key was revoked meanwhile.
func (g *Gate) Stay(ctx context.Context, c sandbox.Caller) (stay context.Context, leave func(), err error) {
	release := func() {}
	if stay = ctx; c.KeyID != "" {
		if stay, release, err = g.keys.holders.hold(ctx, c.KeyID); err != nil {
			return ctx, nil, err
		}
	}
	if c.Owner == "" || IsLocal(ctx) {
		return stay, release, nil
	}
	if err := g.present.enter(c.Owner); err != nil {
		release()
		return ctx, nil, err
	}
	return stay, func() { g.present.leave(c.Owner); release() }, nil
}

func (g *Gate) enter(r *http.Request, a Access, addr netip.Addr) (sandbox.Caller, error) {
	var nobody sandbox.Caller
	if g.local && !addr.IsLoopback() {
		return nobody, forbidden("Localhost access only")
	}
	if err := g.origins.Check(r); err != nil {
		return nobody, err
	}
	if g.noAuth && !addr.IsLoopback() {
		return nobody, forbidden("the server is for this machine only")
	}
	if a == Open {
		return nobody, nil
	}
	caller, given, err := g.keyed(r, g.limits.guessed(addr))
	switch {
	case err != nil:
		return nobody, err
	case given:
		if err := g.limits.key(caller.KeyID); err != nil {
			return nobody, err
		}
	case g.noAuth:
		caller = sandbox.Caller{Owner: sandbox.DefaultOwner, Admin: true}
	default:
		return nobody, g.login.challenge(unauthenticated("an API key is needed, as Authorization: Bearer KEY or X-API-Key: KEY"))
	}
	return authorize(caller, a)
}

// enterLocally judges a peer of the local socket, which no browser and no other
// machine reaches.
func (g *Gate) enterLocally(r *http.Request, a Access, p peer) (sandbox.Caller, error) {
	if p.err != nil || p.uid != 0 && int(p.uid) != os.Geteuid() {
		return sandbox.Caller{}, forbidden("the local socket is for the daemon's own user and root")
	}
	if a == Open {
		return sandbox.Caller{}, nil
	}
	caller, given, err := g.keyed(r, nil)
	if err != nil {
		return sandbox.Caller{}, err
	}
	if !given {
		caller = sandbox.Caller{Owner: sandbox.DefaultOwner, Admin: true}
	}
	return authorize(caller, a)
}

// keyed looks up the login or the key that a request brings. A login is not judged
// while guessed is not nil: people choose passwords, and those can be guessed.
func (g *Gate) keyed(r *http.Request, guessed error) (caller sandbox.Caller, given bool, err error) {
	switch {
	case guessed == nil:
		if caller, given, err := g.login.caller(r.Header); given || err != nil {
			return caller, given, err
		}
	case g.login.isIn(r.Header):
		return caller, true, guessed
	}
	secret, err := secretOf(r.Header)
	if err != nil || secret == "" {
		return caller, false, err
	}
	k, err := g.keys.find(r.Context(), secret)
	if err != nil {
		return caller, true, err
	}
	return k.caller(), true, nil
}

func authorize(c sandbox.Caller, a Access) (sandbox.Caller, error) {
	if a == NeedAdmin && !c.Admin {
		return sandbox.Caller{}, forbidden("this needs an admin key")
	}
	return c, nil
}

// secretOf takes the key out of the headers, never out of the URL, which ends
// up in logs and histories.
func secretOf(h http.Header) (string, error) {
	bearer, err := bearerOf(h)
	if err != nil {
		return "", err
	}
	header, one := single(h, "X-API-Key")
	protocol, oneProtocol := protocolKey(h)
	given := slices.DeleteFunc([]string{header, bearer, protocol}, func(key string) bool { return key == "" })
	if given = slices.Compact(given); !one || !oneProtocol || len(given) > 1 {
		return "", unauthenticated("there is more than one API key")
	}
	if len(given) == 0 {
		return "", nil
	}
	return given[0], nil
}

// WebSocketProtocol is the subprotocol that a client offers together with its key: the
// server takes this one.
const WebSocketProtocol = "agentbox"

// protocolPrefix stands before a key among the subprotocols of a WebSocket, since pages
// can't set its headers.
const protocolPrefix = WebSocketProtocol + ".key."

// protocolKey is the key among the subprotocols that a WebSocket is to have; false:
// there is more than one.
func protocolKey(h http.Header) (key string, one bool) {
	if !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		return "", true
	}
	for _, list := range h.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(list, ",") {
			secret, is := strings.CutPrefix(strings.TrimSpace(name), protocolPrefix)
			if is && key != "" {
				return "", false
			}
			if is {
				key = secret
			}
		}
	}
	return key, true
}

// bearerOf is the key of the Authorization header. Bearer alone is none: a client
// whose variable for the key is empty sends that.
func bearerOf(h http.Header) (string, error) {
	v, one := single(h, "Authorization")
	if v == "" && one {
		return "", nil
	}
	scheme, token, _ := strings.Cut(v, " ")
	if !one || !strings.EqualFold(scheme, "Bearer") {
		return "", unauthenticated("the Authorization header must be Bearer KEY")
	}
	return strings.Trim(token, " "), nil
}

// address is the client's, of the connection: headers that tell another one
// can be made up.
func address(r *http.Request) netip.Addr {
	a, _ := netip.ParseAddrPort(r.RemoteAddr) // the zero address stands for all that have none
	return a.Addr().Unmap().WithZone("")
}

type peer struct {
	uid uint32
	err error
}

type peerKey struct{}

// ConnContext remembers who is at the other end of a local socket. It is for
// http.Server.ConnContext; without it nobody is let in locally.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	uid, err := peercred.UID(u)
	return context.WithValue(ctx, peerKey{}, peer{uid, err})
}

// IsLocal reports whether a request came over the local socket.
func IsLocal(ctx context.Context) bool {
	_, ok := peerOf(ctx)
	return ok
}

func peerOf(ctx context.Context) (peer, bool) {
	p, ok := ctx.Value(peerKey{}).(peer)
	return p, ok
}
