package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// WebTerminal is a terminal of the REST API. Its reader goes on until the
// WebSocket ends.
type WebTerminal struct {
	t    testing.TB
	ws   *websocket.Conn
	done chan struct{}

	mu     sync.Mutex
	screen bytes.Buffer
	texts  []terminalText
	err    error // set before done is closed
}

// terminalText is a text message of the server.
type terminalText struct {
	Type     string `json:"type"`
	ExecID   string `json:"exec_id"`
	ExitCode *int   `json:"exit_code"`
	Detail   string `json:"detail"`
}

// OpenTerminal opens one of a remote sandbox; query has its parameters.
func (b *Box) OpenTerminal(query string) *WebTerminal {
	b.t.Helper()
	w, err := b.dialTerminal(query)
	if err != nil {
		b.t.Fatal(err)
	}
	return w
}

func (b *Box) dialTerminal(query string) (*WebTerminal, error) {
	d := b.remote.d
	header := http.Header{"Authorization": {"Bearer " + d.Key}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, strings.Replace(d.URL, "http", "ws", 1)+"/api/v1"+b.remote.at("/terminal")+"?"+query, &websocket.DialOptions{HTTPHeader: header}) //nolint:bodyclose // it is the WebSocket
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(1 << 20)
	w := &WebTerminal{t: b.t, ws: ws, done: make(chan struct{})}
	b.t.Cleanup(w.Drop)
	go w.read()
	return w, nil
}

func (w *WebTerminal) read() {
	defer close(w.done)
	for {
		kind, data, err := w.ws.Read(context.Background())
		w.mu.Lock()
		if err != nil {
			w.err = err
			w.mu.Unlock()
			return
		}
		if kind == websocket.MessageBinary {
			w.screen.Write(data)
		} else {
			var m terminalText
			if err := json.Unmarshal(data, &m); err != nil {
				m = terminalText{Type: "no JSON", Detail: string(data)}
			}
			w.texts = append(w.texts, m)
		}
		w.mu.Unlock()
	}
}

// Screen is what came so far.
func (w *WebTerminal) Screen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.screen.String()
}

// Text is the first text message of a type, waited for.
func (w *WebTerminal) Text(kind string) terminalText {
	w.t.Helper()
	var found terminalText
	Until(w.t, 10*time.Second, "a message "+kind, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, m := range w.texts {
			if m.Type == kind {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// Type sends what a person types.
func (w *WebTerminal) Type(text string) { w.send(websocket.MessageBinary, text) }

// Control sends a control message.
func (w *WebTerminal) Control(v any) { w.send(websocket.MessageText, encode(w.t, v)) }

func (w *WebTerminal) send(kind websocket.MessageType, text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.ws.Write(ctx, kind, []byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

// WaitFor waits until the screen shows what an expression matches.
func (w *WebTerminal) WaitFor(expr string) {
	w.t.Helper()
	re := regexp.MustCompile(expr)
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the screen: %q", w.Screen())
		}
	}()
	Until(w.t, 10*time.Second, expr+" on the screen", func() bool { return re.MatchString(w.Screen()) })
}

// Ended waits for the end and tells whether it was in order.
func (w *WebTerminal) Ended() bool {
	<-w.done
	var closed websocket.CloseError
	return errors.As(w.err, &closed) && closed.Code == websocket.StatusNormalClosure
}

// Drop cuts the connection.
func (w *WebTerminal) Drop() { _ = w.ws.CloseNow() }

func query(pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q.Encode()
}
