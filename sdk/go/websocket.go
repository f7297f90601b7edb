package agentbox

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"
)

// maxMessage bounds what a server sends at once, in bytes.
const maxMessage = 4 << 20

// dial opens a WebSocket.
func (c *Client) dial(ctx context.Context, path string, query url.Values) (*websocket.Conn, error) {
	h := http.Header{}
	c.authorize(h)
	late, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	options := &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: h}
	ws, resp, err := websocket.Dial(late, c.base+apiPrefix+path+"?"+query.Encode(), options) //nolint:bodyclose // its own
	switch {
	case err == nil:
		ws.SetReadLimit(maxMessage)
		return ws, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case resp == nil || resp.StatusCode < http.StatusMultipleChoices:
		return nil, c.unreachable(err, true)
	}
	answer, _ := io.ReadAll(resp.Body) // it is in memory
	return nil, refusal(resp, answer)
}
