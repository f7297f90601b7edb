package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"agentbox/internal/egress/policy"
)

// web speaks HTTP/1 with a client: as a proxy, or in a tunnel in the place of the
// one server that the tunnel leads to.
type web struct {
	*client
	ctx  context.Context // of the connection
	conn net.Conn        // of the client, or TLS over it
	r    *bufio.Reader   // of conn
	kind Kind

	target *policy.Target // of a tunnel; nil: each request names its own
	scheme string
	ready  *upstream // a connection to target that is not used yet; may be nil

	line      *line           // nil: none yet, or not any more
	transport *http.Transport // made when it is needed
	served    bool            // there was a request with a record

	mu       sync.Mutex // of w, while a request is under way
	w        *bufio.Writer
	answered bool // the final answer has begun
}

func newWeb(ctx context.Context, c *client, conn net.Conn, r *bufio.Reader, target *policy.Target) *web {
	return &web{client: c, ctx: ctx, conn: conn, r: r, w: bufio.NewWriter(conn), target: target, kind: KindHTTP, scheme: "http"}
}

// serveProxy serves a client that takes us for an HTTP proxy.
func (c *client) serveProxy(ctx context.Context) { newWeb(ctx, c, c.conn, c.r, nil).serve() }

// serve serves one request after the other, each judged by itself. It reports
// whether there is a record of any.
func (w *web) serve() bool {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel() // ends a dial that nobody waits for any more
	w.ctx = ctx
	for w.one() {
	}
	w.endLine(false)
	if w.transport != nil {
		w.transport.CloseIdleConnections()
	}
	return w.served
}

// one serves a request. It reports whether there may be another.
func (w *web) one() bool {
	setReadDeadline(w.conn, w.p.o.Timeouts.KeepAlive)
	if _, err := w.r.Peek(1); err != nil {
		return false
	}
	setReadDeadline(w.conn, w.p.o.Timeouts.Head)
	req, err := readRequest(w.r)
	setReadDeadline(w.conn, 0)
	w.answered = false
	if err != nil {
		return w.refuseHead(err)
	}
	if r := w.authorize(req); r != nil {
		return w.refuseBefore(req, r)
	}
	if req.Method == http.MethodConnect && w.target == nil {
		return w.connect(req)
	}
	t, r := w.targetOf(req)
	if r != nil {
		return w.refuseBefore(req, r)
	}
	return w.forward(req, t)
}

// refuseHead answers what is no request.
func (w *web) refuseHead(err error) bool {
	r := invalid(err.Error())
	switch {
	case errors.Is(err, errHeadSize):
		r = deny(http.StatusRequestHeaderFieldsTooLarge, CodeHeadSize, err.Error(), "")
	case errors.Is(err, os.ErrDeadlineExceeded):
		r = deny(http.StatusRequestTimeout, CodeTimeout, "The head of the request did not come in time", "")
	case !errors.Is(err, errHead):
		return false // the client is gone
	}
	return w.refuseBefore(&http.Request{Close: true}, r)
}

func (w *web) authorize(req *http.Request) *refusal {
	if w.auth == nil || w.target != nil {
		return nil
	}
	return w.auth(req.Header)
}

// refuseBefore answers and records a request that has no target.
func (w *web) refuseBefore(req *http.Request, r *refusal) bool {
	_, f := w.s.begin(w.ctx, w.kind, policy.Target{})
	defer w.record(f)
	f.rec.Method, f.rec.Path = clip(req.Method), clip(pathOf(req.URL))
	if w.target != nil {
		f.rec.Name, f.rec.Addr, f.rec.Port = w.target.Name, w.target.Addr, w.target.Port
	}
	return w.refuse(f, req, r)
}

func (w *web) record(f *flow) {
	w.served = true
	f.end(w.p.o.Recorder)
}

// targetOf reads what a request is for.
func (w *web) targetOf(req *http.Request) (policy.Target, *refusal) {
	if w.target != nil {
		return *w.target, w.checkHost(req)
	}
	authority, ok := authorityOf(req.RequestURI)
	if !ok {
		return policy.Target{}, invalid("neither CONNECT nor an http URL")
	}
	return parseTarget(authority, 80)
}

// authorityOf cuts the authority out of an http URL as it was sent: what is judged
// must be what stands there, not what a parser makes of it.
func authorityOf(uri string) (string, bool) {
	const scheme = "http://"
	if len(uri) < len(scheme) || !strings.EqualFold(uri[:len(scheme)], scheme) {
		return "", false
	}
	rest := uri[len(scheme):]
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	return rest, true
}

func parseTarget(authority string, port uint16) (policy.Target, *refusal) {
	if authority == "" {
		return policy.Target{}, deny(http.StatusBadRequest, CodeInvalidHost, "Could not parse host from URL", "the URL has no host")
	}
	t, err := policy.ParseTarget(authority, port)
	if err != nil {
		return policy.Target{}, deny(http.StatusBadRequest, CodeInvalidHost, "Could not parse host from URL", err.Error())
	}
	return t, nil
}

// checkHost holds the Host of a request in a tunnel against where the tunnel
// leads: a server of many hosts would answer for another one.
func (w *web) checkHost(req *http.Request) *refusal {
	if !strings.HasPrefix(req.RequestURI, "/") && req.RequestURI != "*" {
		return invalid("no path where only a path makes sense")
	}
	t, err := policy.ParseTarget(req.Host, w.target.Port)
	if err != nil || t.Port != w.target.Port || !w.s.matches(*w.target, t.Host()) {
		return denyHost(CodeHostHeader, clip(req.Host), "the request is for another host: "+clip(req.Host))
	}
	return nil
}

// connect serves CONNECT.
func (w *web) connect(req *http.Request) bool {
	if req.ContentLength != 0 {
		return w.refuseBefore(req, invalid("CONNECT with a body"))
	}
	t, r := parseTarget(req.RequestURI, 443)
	if r != nil {
		return w.refuseBefore(req, r)
	}
	ctx, f := w.s.begin(w.ctx, KindConnect, t)
	defer w.record(f)
	f.rec.Method = req.Method
	up, v, r := w.open(ctx, f)
	if r != nil {
		return w.refuse(f, req, r)
	}
	if _, err := io.WriteString(w.conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		up.Close()
		f.fail(ctx, err)
		w.broken = true
		return false
	}
	f.rec.Status = http.StatusOK
	w.tunnel(ctx, f, up, v)
	return false
}

// refuse answers with the proxy's own words. It reports whether the client may
// send another request: not if a body may be on its way.
func (w *web) refuse(f *flow, req *http.Request, r *refusal) bool {
	f.refuse(r)
	w.mu.Lock()
	w.answered = true
	w.mu.Unlock()
	keep := !req.Close && req.ContentLength == 0 && r.code != CodeConns && req.ProtoAtLeast(1, 1)
	h := make(http.Header)
	h.Set("Content-Type", "text/plain")
	h.Set("Content-Length", fmt.Sprint(len(r.text)))
	h.Set(CodeHeader, string(r.code))
	switch r.status {
	case http.StatusProxyAuthRequired:
		h.Set("Proxy-Authenticate", `Basic realm="agentbox"`)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", "1")
	}
	if !keep {
		h.Set("Connection", "close")
	}
	// Of the answer to CONNECT programs show this line and no more, and some, such as
	// apt, of every answer.
	fmt.Fprintf(w.w, "HTTP/1.1 %d %s\r\n", r.status, printable(r.text))
	_ = h.Write(w.w) // errors stay in the writer
	_, _ = w.w.WriteString("\r\n")
	if req.Method != http.MethodHead {
		_, _ = w.w.WriteString(r.text)
	}
	if err := w.w.Flush(); err != nil {
		return false
	}
	w.linger = w.linger || !keep
	return keep
}

// printable makes a text fit for a status line.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
}

// pathOf is the path as it will be sent, escaped and without the query.
func pathOf(u *url.URL) string {
	if u == nil || u.Host != "" && u.Path == "" {
		return "/"
	}
	return u.EscapedPath()
}
