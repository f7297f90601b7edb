package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"

	"agentbox/internal/egress/hide"
	"agentbox/internal/egress/policy"
)

// forward judges a request, sends it to the server and passes the answer on.
func (w *web) forward(req *http.Request, t policy.Target) bool {
	ctx, f := w.s.begin(w.ctx, w.kind, t)
	defer w.record(f)
	f.rec.Method, f.rec.Path, f.rec.Intercepted = clip(req.Method), clip(pathOf(req.URL)), w.scheme == "https"
	if r := w.judgeRequest(f, req); r != nil {
		return w.refuse(f, req, r)
	}
	x := &exchange{web: w, f: f, req: req, old: !req.ProtoAtLeast(1, 1)}
	h, r := x.head()
	if r != nil {
		return w.refuse(f, req, r)
	}
	defer x.hide.Close()
	x.body = newRequestBody(x)
	x.gone = &watcher{web: w, cancel: f.cancel}
	defer context.AfterFunc(ctx, func() { abort(w.client.conn.Conn) })()
	resp, err := x.send(ctx, x.outgoing(ctx, h))
	defer x.count()
	if err != nil {
		return x.failed(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < http.StatusContinue { // clients differ in what they take it for
		return x.failed(ctx, errNoHTTP)
	}
	f.rec.Status = resp.StatusCode
	return x.answer(ctx, resp)
}

// judgeRequest decides on a request before anything is resolved.
func (w *web) judgeRequest(f *flow, req *http.Request) *refusal {
	if r := w.room(); r != nil {
		return r
	}
	path := pathOf(req.URL)
	f.note(func(j *judged) { j.scheme, j.method, j.path = w.scheme, req.Method, path })
	p := w.s.Policy()
	v := p.Request(f.target, w.scheme, req.Method, path)
	f.rec.Rule = v.Rule
	switch {
	case v.Allow && req.Method == http.MethodTrace && w.scheme == "https":
		// The answer would show the secrets that were put into the request.
		return deny(http.StatusForbidden, CodeRequest, "Request not allowed: TRACE is not passed on", "")
	case v.Allow:
		return nil
	case p.Connect(f.target).Allow:
		return deny(http.StatusForbidden, CodeRequest, "Request not allowed: "+v.Reason, v.Reason)
	}
	w.s.asks.add(f.target)
	return denyHost(CodeHost, f.target.Host(), v.Reason)
}

// exchange is one request and its answer.
type exchange struct {
	*web
	f    *flow
	req  *http.Request
	old  bool // of HTTP/1.0
	body *requestBody
	gone *watcher
	hide *hide.Scrubber // what the answer must not show; nil: nothing
	// hinted: an answer before the answer was passed on.
	hinted bool

	kept     *answers  // that of a Transport
	up       *upstream // the connection that carried it; nil before there is one
	up0, dn0 int64     // what it had carried before
}

type flowKey struct{}

// head is the header of the request as the server gets it.
func (x *exchange) head() (http.Header, *refusal) {
	h := x.req.Header.Clone()
	upgrade, trailers := wantsWebSocket(h) && !x.old, hasToken(h["Te"], "trailers")
	dropHops(h)
	if upgrade {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	if trailers {
		h["Te"] = []string{"trailers"}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or net/http would send its own
	}
	if x.p.o.Secrets == nil {
		return h, nil
	}
	into := h
	if x.scheme != "https" {
		into = nil
	}
	values, err := x.p.o.Secrets.Inject(x.s, x.f.target, into)
	if err != nil {
		return nil, &refusal{status: http.StatusBadGateway, code: CodeSecret, text: "Proxy error: " + err.Error()}
	}
	if len(values) > 0 && x.s.guesses.TooMany() {
		return nil, deny(http.StatusForbidden, CodeSecret, "Request not allowed: the sandbox seems to guess at a secret, by what it has its host repeat; nothing of that is shown until the sandbox was stopped and started", "")
	}
	if x.hide, err = x.p.searches.Scrubber(x.s.Owner(), values, x.s.guesses); err != nil {
		return nil, deny(http.StatusTooManyRequests, CodeSecret, "Request not allowed: "+err.Error(), "")
	}
	if x.hide != nil {
		// What is compressed can't be searched, nor what is cut where the client likes.
		h.Del("Range")
		h.Del("If-Range")
		h["Accept-Encoding"] = []string{"identity"}
		h.Del("Sec-Websocket-Extensions")
	}
	return h, nil
}

// outgoing is the request as the server gets it.
func (x *exchange) outgoing(ctx context.Context, h http.Header) *http.Request {
	req := x.req
	out := &http.Request{
		Method: req.Method, Header: h, Host: hostOf(x.f.target, x.scheme), ProtoMajor: 1, ProtoMinor: 1,
		URL: &url.URL{
			Scheme: x.scheme, Host: x.f.target.String(),
			Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery, ForceQuery: req.URL.ForceQuery,
		},
		ContentLength: req.ContentLength, TransferEncoding: req.TransferEncoding, Trailer: req.Trailer,
		Body: http.NoBody,
	}
	if req.RequestURI == "*" {
		out.URL.Path, out.URL.Opaque = "", "*"
	}
	// A transport that keeps the connection sends the body also when the answer
	// came instead of "continue".
	out.Close = x.body.first
	if req.ContentLength != 0 {
		out.Body = x.body
	} else {
		x.body.ended()
	}
	ctx = context.WithValue(ctx, flowKey{}, x.f)
	return out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:        x.gotConn,
		PutIdleConn:    x.putIdleConn,
		Got1xxResponse: x.interim,
	}))
}

// hostOf is the Host of a target: the port is left out where it goes without
// saying, as clients do.
func hostOf(t policy.Target, scheme string) string {
	if scheme == "http" && t.Port != 80 || scheme == "https" && t.Port != 443 {
		return t.String()
	}
	if t.Addr.Is6() {
		return "[" + t.Addr.String() + "]"
	}
	return t.Host()
}

func (x *exchange) gotConn(i httptrace.GotConnInfo) {
	if c, ok := i.Conn.(*answers); ok {
		x.kept = c
		x.carried(c.up)
	}
}

// putIdleConn ends the answer; the next read is no part of it.
func (x *exchange) putIdleConn(error) {
	x.up.waits.Store(nil)
	x.kept.head = headLines{}
}

// carried notes which connection the request goes over.
func (x *exchange) carried(up *upstream) {
	x.up, x.up0, x.dn0 = up, up.up.Load(), up.down.Load()
	x.f.rec.Addr = up.addr.Addr()
	x.opened(x.f, up)
}

// count notes what the request moved.
func (x *exchange) count() {
	if x.up != nil {
		x.f.rec.BytesUp, x.f.rec.BytesDown = x.up.up.Load()-x.up0, x.up.down.Load()-x.dn0
	}
}

// failed answers a request that got no answer.
func (x *exchange) failed(ctx context.Context, err error) bool {
	x.gone.stop()
	clean := x.body.stop()
	switch {
	case errors.Is(x.body.failure(), errSlow):
		x.refuse(x.f, x.req, deny(http.StatusRequestTimeout, CodeTimeout, "The body of the request came too slowly", ""))
		return false
	case context.Cause(ctx) != nil || errors.Is(err, errClient) || x.body.failure() != nil:
		x.f.fail(ctx, err)
		x.broken = true
		return false
	}
	return x.refuse(x.f, x.req, failure("Proxy error: ", CodeForward, x.f.target.Host(), err)) && clean
}

// interim passes an answer before the answer on, such as 103. The client is told
// to continue only when the body is wanted.
func (x *exchange) interim(code int, h textproto.MIMEHeader) error {
	if code == http.StatusContinue || x.old {
		return nil
	}
	head := http.Header(h).Clone()
	cleanAside(head)
	x.hide.Header(head)
	x.hinted = true
	return x.writeInterim(code, head)
}

func (w *web) writeInterim(code int, h http.Header) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answered {
		return nil
	}
	fmt.Fprintf(w.w, "HTTP/1.1 %d %s\r\n", code, http.StatusText(code))
	_ = h.Write(w.w) // errors stay in the writer
	_, _ = w.w.WriteString("\r\n")
	return w.w.Flush()
}
