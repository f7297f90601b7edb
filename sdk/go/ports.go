package agentbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"
)

// Port is a port of a sandbox on which something listens.
type Port struct {
	Port    int    `json:"port"`
	Address string `json:"address"` // that it listens on
	UID     int    `json:"uid"`
	Pid     int    `json:"pid"`     // 0: not known
	Process string `json:"process"` // the name that it gave itself; empty: not known
}

// Ports are the ports on which something listens; more: there are others.
func (b *Box) Ports(ctx context.Context) (list []Port, more bool, err error) {
	answer, err := ask[struct {
		Items     []Port `json:"items"`
		Truncated bool   `json:"truncated"`
	}](ctx, b.c, call{method: http.MethodGet, path: b.in("ports")})
	return answer.Items, answer.Truncated, err
}

// Conn is a connection to a port of a sandbox.
type Conn struct {
	net.Conn
	ws *websocket.Conn
}

// Connect connects to a port on the loopback interface of the sandbox. One on which nothing
// listens is ErrConflict. ctx is for connecting only.
func (b *Box) Connect(ctx context.Context, port int) (*Conn, error) {
	ws, err := b.c.dial(ctx, b.in("ports", strconv.Itoa(port), "connect"), nil)
	if err != nil {
		return nil, err
	}
	return &Conn{websocket.NetConn(context.WithoutCancel(ctx), ws, websocket.MessageBinary), ws}, nil
}

// CloseWrite ends this direction; the other stays open.
func (c *Conn) CloseWrite() error {
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(`{"type":"eof"}`)); err != nil {
		return fmt.Errorf("end this direction: %w", err)
	}
	return nil
}

// Transport sends requests of HTTP to a port of the sandbox, whatever host they name.
func (b *Box) Transport(port int) *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := b.Connect(ctx, port)
		if err != nil {
			return nil, err // a nil *Conn is no nil net.Conn
		}
		return conn, nil
	}
	return &http.Transport{DialContext: dial}
}

// Forward leads each connection that a listener accepts to a port of the sandbox, until ctx
// ends; then it closes the listener and the connections.
func (b *Box) Forward(ctx context.Context, l net.Listener, port int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var open sync.WaitGroup
	defer open.Wait()
	defer cancel()
	for {
		from, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("accept a connection: %w", err)
		}
		open.Go(func() { b.carry(ctx, from, port) })
	}
}

// carry joins a connection to a port. Whoever connected sees the end of what can't be.
func (b *Box) carry(ctx context.Context, from net.Conn, port int) {
	defer from.Close()
	to, err := b.Connect(ctx, port)
	if err != nil {
		return
	}
	defer to.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	var there sync.WaitGroup
	there.Go(func() {
		_, _ = io.Copy(to, from) // its end is the connection's
		_ = to.CloseWrite()
	})
	_, _ = io.Copy(from, to)
	_ = from.Close() // ends the other direction
	there.Wait()
}
