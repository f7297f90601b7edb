// Package heartbeat finds out whether anybody is still at the other end of a
// WebSocket that has nothing to say.
package heartbeat

import (
	"context"
	"time"

	"github.com/coder/websocket"
)

// Every is how often a quiet connection is tried: proxies close those that are
// silent for a minute.
const Every = 15 * time.Second

// Watch tries a connection every so often, and returns when an answer did not come
// within a time, or when ctx is done. Something must read from the connection
// meanwhile.
func Watch(ctx context.Context, ws *websocket.Conn, every, within time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		ask, cancel := context.WithTimeout(ctx, within)
		err := ws.Ping(ask)
		cancel()
		if err != nil {
			return
		}
	}
}
