package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// TestTerminalEnds: what is refused beside the command, such as a new size that
// comes too late, is not its end; neither is a server that was away for long.
func TestTerminalEnds(t *testing.T) {
	text := func(ws *websocket.Conn, s string) { _ = ws.Write(t.Context(), websocket.MessageText, []byte(s)) }
	show := func(ws *websocket.Conn, s string) { _ = ws.Write(t.Context(), websocket.MessageBinary, []byte(s)) }
	const refused = `{"type":"error","code":"conflict","detail":"the command has ended"}`
	for _, c := range []struct {
		name string
		as   func(offset string, ws *websocket.Conn)
		code int
		out  string
		says string
	}{
		{"a late size", func(_ string, ws *websocket.Conn) {
			text(ws, refused)
			show(ws, "a")
			text(ws, `{"type":"exit","exit_code":3}`)
		}, 3, "a", ""},
		{"an error at the end", func(_ string, ws *websocket.Conn) {
			text(ws, refused)
			_ = ws.Close(websocket.StatusNormalClosure, "")
		}, ExitFailure, "", "the command has ended"},
		{"away", func(offset string, ws *websocket.Conn) {
			switch offset {
			case "0":
				show(ws, "a")
				text(ws, `{"type":"error","code":"unavailable","detail":"the server is about to stop"}`)
			default:
				show(ws, "z")
				text(ws, `{"type":"exit","exit_code":0}`)
			}
		}, 0, "az", "4 bytes of the output are not there any more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			noServer(t)
			s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
				offset := r.URL.Query().Get("offset")
				switch {
				case strings.HasSuffix(r.URL.Path, "/execute"):
					fmt.Fprint(w, `{"exec_id":"e1"}`)
					return
				case offset == "1":
					w.Header().Set("X-First-Offset", "5")
					refuse(w, 416, "out_of_range", "there is no output at this offset")
					return
				}
				ws, err := websocket.Accept(w, r, nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer ws.CloseNow()
				c.as(offset, ws)
				_, _, _ = ws.Read(r.Context()) // until the client is gone
			})
			t.Setenv(urlVariable, s.URL)
			got := call(t, "", "exec", "-t", "dev", "--", "x")
			if got.code != c.code || got.stdout != c.out {
				t.Errorf("%+v", got)
			}
			wantIn(t, got.stderr, c.says)
		})
	}
}
