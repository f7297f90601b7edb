package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"agentbox/internal/heartbeat"
	"agentbox/internal/sandbox"
)

// portRow is a port on which something listens.
type portRow struct {
	Port    uint16 `json:"port"`
	Address string `json:"address"`
	UID     int    `json:"uid"`
	Pid     int    `json:"pid"`
	Process string `json:"process"`
}

func (a *App) portsCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use:   "ports SANDBOX",
		Short: "List the ports of a sandbox of the server on which something listens",
		Long: `List the TCP ports of a sandbox of the server on which something listens. agentbox
forward leads a port of this machine there.`,
		Example:           "  agentbox ports dev",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			var all struct {
				Items     []portRow `json:"items"`
				Truncated bool      `json:"truncated"`
			}
			if err := a.shown(cmd, r, inSandbox(args[0], "ports"), f.json, &all); err != nil || f.json {
				return err
			}
			t := a.table("PORT", "ADDRESS", "UID", "PID", "PROCESS")
			for _, p := range all.Items {
				t.row(strconv.Itoa(int(p.Port)), p.Address, strconv.Itoa(p.UID), strconv.Itoa(p.Pid), p.Process)
			}
			if all.Truncated {
				a.warn(errors.New("there are more"))
			}
			return t.flush()
		},
	}
	f.addJSON(cmd)
	return cmd
}

// forwarded is a port of this machine that leads to one of a sandbox.
type forwarded struct{ local, remote uint16 }

// parseForward reads [LOCAL:]REMOTE.
func parseForward(s string) (forwarded, error) {
	from, to, two := strings.Cut(s, ":")
	if !two {
		from, to = s, s
	}
	local, err := strconv.ParseUint(from, 10, 16)
	remote, err2 := strconv.ParseUint(to, 10, 16)
	if err != nil || err2 != nil || remote == 0 || !two && local == 0 {
		return forwarded{}, &sandbox.InvalidError{Field: "port", Value: s, Allowed: "[LOCAL:]REMOTE, ports from 1 to 65535; LOCAL may be 0, for any"}
	}
	return forwarded{uint16(local), uint16(remote)}, nil
}

// maxForwarded bounds the connections of one port at one time.
const maxForwarded = 200

func (a *App) forwardCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forward SANDBOX [LOCAL:]REMOTE...",
		Short: "Lead ports of this machine to ports of a sandbox of the server",
		Long: `Listen on ports of this machine's loopback interface, 127.0.0.1, and lead each
connection to a port of the sandbox, until Ctrl-C. LOCAL is the same port when it is
left out, and any when it is 0. Nothing has to listen in the sandbox yet.`,
		Example: `  agentbox forward dev 8000
  agentbox forward dev 8080:8000 0:5432`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ports []forwarded
			for _, s := range args[1:] {
				p, err := parseForward(s)
				if err != nil {
					return err
				}
				ports = append(ports, p)
			}
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.forward(ctx, r, args[0], ports))
		},
	}
	return cmd
}

func (a *App) forward(ctx context.Context, r *remote, box string, ports []forwarded) error {
	if err := r.call(ctx, http.MethodGet, inSandbox(box), nil, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, p := range ports {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.local))))
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("port %d is in use on this machine; lead another one there: 0:%d", p.local, p.remote)
		}
		if err != nil {
			cancel(nil)
			return fmt.Errorf("forward to port %d: %w", p.remote, err)
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		fmt.Fprintf(a.Stdout, "%s leads to port %d of %s\n", l.Addr(), p.remote, visible(box))
		wg.Go(func() { a.forwardPort(ctx, r, box, p.remote, l) })
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// forwardPort carries connections until the listener is closed.
func (a *App) forwardPort(ctx context.Context, r *remote, box string, port uint16, l net.Listener) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, maxForwarded)
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			if err := r.carry(ctx, box, port, conn); err != nil && ctx.Err() == nil {
				a.warn(fmt.Errorf("port %d: %w", port, err))
			}
		})
	}
}

// carry joins a connection to a port of a sandbox until both directions ended.
func (r *remote) carry(ctx context.Context, box string, port uint16, conn net.Conn) error {
	ws, err := r.dial(ctx, inSandbox(box, "ports", strconv.Itoa(int(port)), "connect"), nil)
	if err != nil {
		return err
	}
	defer ws.CloseNow() //nolint:errcheck // it is over
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		heartbeat.Watch(ctx, ws, heartbeat.Every, heartbeat.Every)
	}()
	go func() {
		if err := toSandbox(ctx, ws, conn); err != nil {
			cancel()
		}
	}()
	for {
		kind, in, err := ws.Reader(ctx)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // the connection broke, and its client sees that
		}
		if kind != websocket.MessageBinary {
			continue
		}
		if _, err := io.Copy(conn, in); err != nil {
			return nil //nolint:nilerr // the client is gone
		}
	}
}

// toSandbox sends what the client does, and that it ended its direction.
func toSandbox(ctx context.Context, ws *websocket.Conn, conn net.Conn) error {
	b := make([]byte, 32<<10)
	for {
		n, err := conn.Read(b)
		if n > 0 {
			if err := ws.Write(ctx, websocket.MessageBinary, b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return ws.Write(ctx, websocket.MessageText, []byte(`{"type":"eof"}`))
		}
		if err != nil {
			return err
		}
	}
}
