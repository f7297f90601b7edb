package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"

	"github.com/coder/websocket"
	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/guest/client"
	"agentbox/internal/heartbeat"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Ports are what the routes about ports need; manager.Manager has it.
type Ports interface {
	Ports(ctx context.Context, c sandbox.Caller, id string) (list []client.Port, truncated bool, err error)
	Dial(ctx context.Context, c sandbox.Caller, id string, port int) (*manager.Conn, error)
}

// portRoutes are the routes about ports.
type portRoutes struct {
	*API
	m Ports
}

// registerPorts adds the routes about ports.
func registerPorts(a *API, m Ports) {
	p := &portRoutes{a, m}
	tags := []string{"Ports"}
	route(a, huma.Operation{
		OperationID: "list-ports", Method: http.MethodGet, Path: "/sandboxes/{id}/ports", Summary: "List the TCP ports on which something listens", Tags: tags,
	}, server.Route{}, p.list)
	routeReply(a, huma.Operation{
		OperationID: "connect-port", Method: http.MethodGet, Path: "/sandboxes/{id}/ports/{port}/connect", Summary: "Connect to a port (WebSocket)", Tags: tags,
		Description: "Binary messages are bytes of one TCP connection to the loopback interface of the sandbox. The client may end its direction with the text message {type: eof}; the WebSocket is closed when the server in the sandbox has ended its own. A page, which can set no headers, offers the subprotocols agentbox and agentbox.key.KEY: the first is taken, and the key read from the second.",
		Responses:   map[string]*huma.Response{"101": {Description: "The connection is open."}},
	}, server.Route{Stream: true}, p.connect)
}

// Port is a port on which something listens.
type Port struct {
	Port    uint16 `json:"port"`
	Address string `json:"address" doc:"The address that it listens on."`
	UID     int    `json:"uid"`
	Pid     int    `json:"pid" doc:"0: not known."`
	Process string `json:"process" doc:"The name that it gave itself; empty: not known."`
}

// PortList are the ports of a sandbox.
type PortList struct {
	Items     []Port `json:"items" nullable:"false"`
	Truncated bool   `json:"truncated" doc:"There are more."`
}

type portsOutput struct{ Body PortList }

func (p *portRoutes) list(ctx context.Context, c sandbox.Caller, in *SandboxID) (*portsOutput, error) {
	all, truncated, err := p.m.Ports(ctx, c, in.ID)
	if err != nil {
		return nil, guestError(err)
	}
	body := PortList{Items: []Port{}, Truncated: truncated}
	for _, l := range all {
		body.Items = append(body.Items, Port{l.Addr.Port(), l.Addr.Addr().String(), l.UID, l.Pid, l.Process})
	}
	return &portsOutput{body}, nil
}

type connectInput struct {
	SandboxID
	WebSocket
	Port int `path:"port" minimum:"1" maximum:"65535"`
}

func (p *portRoutes) connect(ctx context.Context, c sandbox.Caller, in *connectInput) (reply, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	conn, err := p.m.Dial(ctx, c, in.ID, in.Port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = sandbox.Refuse(errdefs.ErrFailedPrecondition, "nothing listens on port %d", in.Port)
	}
	err = guestError(err)
	p.recordOn(ctx, c, audit.Port, p.uid(ctx, c, in.ID, sandbox.Sandbox{}), err, map[string]string{"port": strconv.Itoa(in.Port)})
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) { p.carry(w, r, conn) }, nil
}

// carry copies in both directions until the sandbox's end is over or the client
// is gone.
func (p *portRoutes) carry(w http.ResponseWriter, r *http.Request, conn *manager.Conn) {
	defer conn.Close() //nolint:errcheck // both ends are over
	ws, err := accept(w, r)
	if err != nil {
		return
	}
	defer ws.CloseNow() //nolint:errcheck // it is closed in order before, or broken
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		defer cancel()
		defer conn.Close() //nolint:errcheck // ends the copy
		_ = fromClient(ctx, ws, conn)
	}()
	go func() {
		defer cancel()
		heartbeat.Watch(ctx, ws, quiet, wsTimeout)
	}()
	go func() {
		select {
		case <-p.Draining:
			_ = ws.Close(websocket.StatusGoingAway, "the server is about to stop")
		case <-ctx.Done():
		}
	}()
	if _, err := io.Copy(messages{ctx, ws}, conn); err != nil {
		_ = ws.Close(websocket.StatusInternalError, "the connection broke")
		return
	}
	taken(ctx, ws)
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

// fromClient passes on what the client sends until it is gone.
func fromClient(ctx context.Context, ws *websocket.Conn, conn *manager.Conn) error {
	for {
		kind, r, err := ws.Reader(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if _, err := io.Copy(conn, r); err != nil {
				return err
			}
			continue
		}
		var m struct {
			Type string `json:"type"`
		}
		if err := json.NewDecoder(r).Decode(&m); err != nil || m.Type != "eof" {
			return ws.Close(websocket.StatusUnsupportedData, "the only text message is {\"type\":\"eof\"}")
		}
		if err := conn.CloseWrite(); err != nil {
			return fmt.Errorf("end the client's direction: %w", err)
		}
		_, _ = io.Copy(io.Discard, r) // to the end of the message
	}
}
