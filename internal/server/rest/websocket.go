package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// WebSocket is a request to open one.
type WebSocket struct{ request *http.Request }

// Resolve implements huma.Resolver.
func (u *WebSocket) Resolve(ctx huma.Context) []error {
	u.request, _ = humago.Unwrap(ctx)
	return nil
}

// check refuses other requests before anything is done for them.
func (u *WebSocket) check() error {
	h := u.request.Header
	if u.request.ProtoMajor != 1 || !strings.EqualFold(h.Get("Upgrade"), "websocket") || !strings.Contains(strings.ToLower(h.Get("Connection")), "upgrade") || h.Get("Sec-WebSocket-Key") == "" || h.Get("Sec-WebSocket-Version") != "13" {
		return server.NewProblem(server.CodeInvalidRequest, "this opens a WebSocket: it needs HTTP/1.1 and the headers of an upgrade")
	}
	return nil
}

// maxMessage bounds a message of a client, in bytes.
const maxMessage = 1 << 20

// accept opens the WebSocket. When it can't, it has answered.
func accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the gate has checked the origin
		Subprotocols:       []string{auth.WebSocketProtocol},
	})
	if err != nil {
		server.LogError(r.Context(), err)
		return nil, err
	}
	ws.SetReadLimit(maxMessage)
	return ws, nil
}

// taken waits until the client has read all that was sent. Closing alone gives it 5 s
// for that, and then the connection breaks. Something must read from it meanwhile.
func taken(ctx context.Context, ws *websocket.Conn) {
	ctx, cancel := context.WithTimeout(ctx, wsTimeout)
	defer cancel()
	_ = ws.Ping(ctx) // a client that is gone, or takes nothing, is closed all the same
}

func sendText(ctx context.Context, ws *websocket.Conn, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wsTimeout)
	defer cancel()
	return ws.Write(ctx, websocket.MessageText, text)
}

// messages writes bytes as binary messages.
type messages struct {
	ctx context.Context
	ws  *websocket.Conn
}

// Write implements io.Writer.
func (m messages) Write(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, m.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(m.ctx, wsTimeout)
	defer cancel()
	return len(p), m.ws.Write(ctx, websocket.MessageBinary, p)
}
