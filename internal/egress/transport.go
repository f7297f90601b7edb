package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// roundTripper sends requests. Each connection of a client has its own, so that
// connections to servers are never shared between sandboxes.
func (w *web) roundTripper() http.RoundTripper {
	if w.transport == nil {
		w.transport = &http.Transport{
			DialContext: w.dialHTTP, DialTLSContext: w.dialTLS,
			DisableCompression:     true,
			MaxIdleConns:           4,
			IdleConnTimeout:        30 * time.Second,
			ResponseHeaderTimeout:  w.answerTime(),
			ExpectContinueTimeout:  w.p.o.Timeouts.Continue,
			MaxResponseHeaderBytes: maxAnswerHead,
			ReadBufferSize:         answerBuffer,
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1
		}
	}
	return w.transport
}

// answerBuffer is how much of an answer is read at once, in bytes.
const answerBuffer = 16 << 10

// answerTime is how long the head of an answer may take: so long that the client is told
// before it is cut off.
func (w *web) answerTime() time.Duration { return w.p.o.Timeouts.Idle * 3 / 4 }

func (w *web) dialHTTP(ctx context.Context, _, _ string) (net.Conn, error) {
	up, err := w.dialServer(ctx)
	if err != nil {
		return nil, err // no nil of a type
	}
	return &answers{Conn: up, up: up}, nil
}

// dialServer connects for requests, whose context does not end with that of the
// first one.
func (w *web) dialServer(ctx context.Context) (*upstream, error) {
	if up := w.ready; up != nil {
		w.ready = nil
		up.mute.Store(true)
		return up, nil
	}
	f, ok := ctx.Value(flowKey{}).(*flow)
	if !ok {
		return nil, errors.New("dial for a request: it has no target")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	up, err := w.dial(ctx, w.ctx, f.target)
	if err != nil {
		return nil, err
	}
	up.mute.Store(true)
	return up, nil
}

func (w *web) dialTLS(ctx context.Context, _, _ string) (net.Conn, error) {
	up, err := w.dialServer(ctx)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(up, &tls.Config{ServerName: w.target.Host(), RootCAs: w.p.o.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	ctx, cancel := context.WithTimeout(ctx, w.p.o.Timeouts.Head)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		up.Close()
		return nil, fmt.Errorf("%w: %w", errNoTLS, err)
	}
	return &answers{Conn: conn, up: up}, nil
}
