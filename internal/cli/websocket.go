package cli

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"
)

// dial opens a WebSocket.
func (r *remote) dial(ctx context.Context, path string, query url.Values) (*websocket.Conn, error) {
	h := http.Header{}
	r.authorize(h)
	late, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(late, r.base+apiPrefix+path+"?"+query.Encode(), &websocket.DialOptions{HTTPClient: r.client, HTTPHeader: h}) //nolint:bodyclose // its own
	switch {
	case err == nil:
		ws.SetReadLimit(maxMessage)
		return ws, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case resp == nil || resp.StatusCode < http.StatusMultipleChoices:
		return nil, r.unreachable(err)
	}
	answer, _ := io.ReadAll(resp.Body) // it is in memory
	return nil, r.refusal(ctx, path, resp, answer)
}

const (
	// maxMessage bounds what a server sends at once, in bytes.
	maxMessage = 4 << 20
	// pingEvery is how often a connection is tried that has nothing to say.
	pingEvery = 15 * time.Second
)

// keepAlive returns when nobody is at the other end any more, or ctx is done.
// Something must read from the connection meanwhile.
func keepAlive(ctx context.Context, ws *websocket.Conn) {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		ask, cancel := context.WithTimeout(ctx, pingEvery)
		err := ws.Ping(ask)
		cancel()
		if err != nil {
			return
		}
	}
}
