package cli

import (
	"context"
	"io"
	"net/http"
	"net/url"

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

// maxMessage bounds what a server sends at once, in bytes.
const maxMessage = 4 << 20
