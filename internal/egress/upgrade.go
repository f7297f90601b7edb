package egress

import (
	"context"
	"crypto/sha1" //nolint:gosec // as the protocol has it
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// errUpgrade is told to clients as it is.
var errUpgrade = errors.New("the server switches to another protocol, which it was not asked for")

// upgraded passes on an answer that switches protocols, and then bytes.
func (x *exchange) upgraded(ctx context.Context, resp *http.Response) bool {
	x.gone.stop()
	x.body.stop()
	server, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !wantsWebSocket(x.req.Header) || x.old || !acceptsWebSocket(x.req.Header, resp.Header) {
		x.refuse(x.f, x.req, failure("Proxy error: ", CodeForward, x.f.target.Host(), errUpgrade))
		return false
	}
	h := resp.Header
	cleanAnswer(h)
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	fmt.Fprintf(x.w, "HTTP/1.1 101 %s\r\n", http.StatusText(http.StatusSwitchingProtocols))
	_ = h.Write(x.w) // errors stay in the writer
	_, _ = x.w.WriteString("\r\n")
	if err := x.w.Flush(); err != nil {
		return x.cutOff(ctx, err)
	}
	x.joinBytes(ctx, server)
	return false
}

// acceptsWebSocket reports whether an answer is a WebSocket server's to the request
// (RFC 6455, section 4.2.2). A server that only repeats a status that it was told
// would read on, and take what comes for requests.
func acceptsWebSocket(request, answer http.Header) bool {
	const mark = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	sum := sha1.Sum([]byte(request.Get("Sec-WebSocket-Key") + mark)) //nolint:gosec // the protocol's, and no secret
	return answer.Get("Sec-WebSocket-Accept") == base64.StdEncoding.EncodeToString(sum[:])
}

// joinBytes moves bytes until both directions have ended.
func (x *exchange) joinBytes(ctx context.Context, server io.ReadWriteCloser) {
	defer context.AfterFunc(ctx, func() {
		abort(x.client.conn.Conn)
		server.Close()
	})()
	back := make(chan error, 1)
	go func() {
		_, err := io.Copy(struct{ io.Writer }{x.conn}, x.hide.Reader(server))
		if err == nil {
			closeDirection(x.conn)
		} else {
			x.f.cancel(err)
		}
		back <- err
	}()
	_, err := x.r.WriteTo(struct{ io.Writer }{server})
	if err == nil {
		closeDirection(server)
	} else {
		x.f.cancel(err)
	}
	if other := <-back; err == nil {
		err = other
	}
	if err != nil {
		x.f.fail(ctx, err)
		x.broken = true
	}
}

// closeDirection tells the other end that no more comes. If the connection is
// broken, its reader finds out.
func closeDirection(c io.Closer) {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
		return
	}
	_ = c.Close()
}
