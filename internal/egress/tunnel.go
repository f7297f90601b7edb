package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"agentbox/internal/egress/policy"
)

// tunnel is a connection of a client to one server, of whatever protocol.
type tunnel struct {
	*client
	f  *flow
	up *upstream
	// see: only some requests are allowed, so they must be seen.
	see  bool
	back *back
}

// tunnel joins client and server until both directions have ended, and closes the
// server's connection.
func (c *client) tunnel(ctx context.Context, f *flow, up *upstream, v policy.Verdict) {
	defer context.AfterFunc(ctx, func() { abort(c.conn.Conn) })()
	defer up.Close()
	t := &tunnel{client: c, f: f, up: up, see: v.SeeRequest}
	// The server's bytes go at once: in many protocols it is the first to speak.
	t.back = startBack(c.conn, up, func(err error) { f.cancel(err) })
	if r := t.forth(ctx); r != nil {
		f.refuse(r)
		t.back.stop(up)
		t.linger = true
	}
	f.rec.BytesUp, f.rec.BytesDown = up.up.Load(), up.down.Load()
}

// forth looks at the client's first bytes and serves the rest.
func (t *tunnel) forth(ctx context.Context) *refusal {
	w, err := t.sniff()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return deny(0, CodeTimeout, "the beginning of the connection did not come in time", "")
	case err != nil && !errors.Is(err, io.EOF):
		t.broke(ctx, err)
		return nil
	}
	switch w {
	case wireTLS:
		return t.serveTLS(ctx)
	case wireHTTP:
		t.serveHTTP(ctx)
	case wireOther:
		if r := t.mustBeTLS(); r != nil {
			return r
		}
		return t.serveRaw(ctx)
	}
	return nil
}

// mustBeTLS refuses what is no TLS on its port. SSH is often reached there, by
// those whom a firewall keeps from port 22.
func (t *tunnel) mustBeTLS() *refusal {
	b, _ := t.r.Peek(t.r.Buffered())
	if t.f.target.Port != 443 || len(b) == 0 || t.spoken() || bytes.HasPrefix(b, []byte("SSH-")) {
		return nil
	}
	return deny(0, CodeNoTLS, "port 443 is for TLS", "")
}

// spoken reports whether the server was the first to say something.
func (t *tunnel) spoken() bool { return t.back.n.Load() > 0 }

// serveRaw moves bytes.
func (t *tunnel) serveRaw(ctx context.Context) *refusal {
	if t.see {
		return deny(0, CodeUnseen, "only some requests to this host are allowed, and these can't be seen", "")
	}
	if err := t.up.meter.pumps.Copy(t.up, t.r); err != nil {
		t.broke(ctx, err)
		return nil
	}
	_ = t.up.CloseWrite() // if it is broken, its reader finds out
	<-t.back.done
	if t.back.err != nil {
		t.broke(ctx, t.back.err)
	}
	return nil
}

// broke notes what cut the connection off, and cuts off the rest.
func (t *tunnel) broke(ctx context.Context, err error) {
	t.f.fail(ctx, err)
	<-t.back.done
	t.broken = true
}

// back moves the server's bytes to the client.
type back struct {
	n       atomic.Int64
	stopped atomic.Bool
	done    chan struct{}
	err     error // after done
}

// startBack begins; failed is called when it breaks off.
func startBack(to *clientConn, from *upstream, failed func(error)) *back {
	p := &back{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = p.run(to, from)
		if p.stopped.Load() && errors.Is(p.err, os.ErrDeadlineExceeded) {
			p.err = nil
		} else if p.err != nil {
			failed(p.err)
		}
	}()
	return p
}

func (p *back) run(to *clientConn, from *upstream) error {
	err := from.meter.pumps.Copy(&counted{to, &p.n}, from)
	if err == nil {
		_ = to.CloseWrite() // if it is broken, its reader finds out
	}
	return err
}

// counted counts what is written, before it is.
type counted struct {
	io.Writer
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.Writer.Write(p)
}

// stop ends it without an end for the client, so that something else can read the
// server's bytes.
func (p *back) stop(from *upstream) {
	p.stopped.Store(true)
	interrupt(from)
	<-p.done
	setReadDeadline(from, 0)
}
