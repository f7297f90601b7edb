package heartbeat_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"agentbox/internal/heartbeat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial opens a connection to a server that answers, as long as it reads.
func dial(t *testing.T, reads bool) *websocket.Conn {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		if reads {
			_, _, _ = ws.Read(r.Context())
		}
		<-end
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	ws, _, err := websocket.Dial(t.Context(), s.URL, &websocket.DialOptions{HTTPClient: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	ws.CloseRead(context.Background()) // something must read
	return ws
}

// watch starts to watch; the channel is closed when that is over.
func watch(ctx context.Context, ws *websocket.Conn, within time.Duration) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		heartbeat.Watch(ctx, ws, time.Millisecond, within)
	}()
	return over
}

func TestNobodyAnswers(t *testing.T) {
	<-watch(t.Context(), dial(t, false), 50*time.Millisecond)
}

// As long as the other end answers, only the caller ends it.
func TestSomebodyAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	<-watch(ctx, dial(t, true), time.Minute)
	if ctx.Err() == nil {
		t.Error("it ended while the other end answered")
	}
}
