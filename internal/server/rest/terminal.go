package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/heartbeat"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

type terminalInput struct {
	SandboxID
	WebSocket
	Cols    uint16 `query:"cols" maximum:"65535" doc:"Columns; default 80."`
	Rows    uint16 `query:"rows" maximum:"65535" doc:"Rows; default 24."`
	Command string `query:"command" maxLength:"65536" doc:"A command line; default: a login shell."`
	Workdir string `query:"workdir" maxLength:"4095" doc:"Where; default: the sandbox's directory."`
	User    string `query:"user" maxLength:"128" doc:"Who runs it; default: the sandbox's user."`
	Detach  Bool   `query:"detach" doc:"Let it run on when its client is gone."`
	ExecID  string `query:"exec_id" maxLength:"64" doc:"Instead of a new command, one that has a terminal already."`
	Offset  int64  `query:"offset" minimum:"0" doc:"With exec_id: how many bytes of its output the client has."`
}

// loginShell: the shell that runs it is the best that the image has.
const loginShell = `exec "${0:-sh}" -l`

// terminal opens the WebSocket once the command runs.
func (x *execRoutes) terminal(ctx context.Context, c sandbox.Caller, in *terminalInput) (reply, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	t := &terminal{ready: make(chan struct{})}
	var e *manager.Exec
	var err error
	if in.ExecID != "" {
		var info client.ExecInfo
		info, err = x.m.ExecInfo(ctx, c, in.ID, in.ExecID, false)
		switch {
		case err != nil:
			return nil, guestError(err)
		case !info.TTY:
			return nil, sandbox.Refuse(errdefs.ErrFailedPrecondition, "this command has no terminal")
		case in.Offset < info.StdoutFirst || in.Offset > info.StdoutEnd:
			return notThere(Kept{info.StdoutFirst, info.StdoutEnd}), nil
		}
		e, err = x.m.Attach(ctx, c, in.ID, in.ExecID, in.Offset, 0, client.Output{Stdout: t, Stderr: t})
		err = guestError(err)
	} else {
		e, err = x.start(ctx, c, in.ID, in.command(), client.Output{Stdout: t, Stderr: t}, sandbox.Once{})
	}
	if err != nil {
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) { x.serveTerminal(w, r, c, in, e, t) }, nil
}

func (in *terminalInput) command() sandbox.Command {
	cmd := sandbox.Command{
		Shell: in.Command, Dir: in.Workdir, User: in.User, TTY: true, Stdin: true, Cols: in.Cols, Rows: in.Rows, Timeout: -1, MaxOutput: -1,
	}
	if cmd.Shell == "" {
		cmd.Shell = loginShell
	}
	if in.Detach.Value {
		cmd.OnDisconnect = sandbox.Keep
	}
	return cmd
}

// terminal takes a command's output for a WebSocket.
type terminal struct {
	ready chan struct{}
	to    messages // from ready on
}

// Write implements io.Writer. It waits for a slow client, and the command with it.
func (t *terminal) Write(p []byte) (int, error) {
	<-t.ready
	return t.to.Write(p)
}

// terminalMessage is a text message of the server.
type terminalMessage struct {
	Type   string      `json:"type"`
	ExecID string      `json:"exec_id,omitempty"`
	Offset *int64      `json:"offset,omitempty"`
	Detail string      `json:"detail,omitempty"`
	Code   server.Code `json:"code,omitempty"`
}

func (x *execRoutes) serveTerminal(w http.ResponseWriter, r *http.Request, c sandbox.Caller, in *terminalInput, e *manager.Exec, t *terminal) {
	defer e.Abandon()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	ws, err := accept(w, r)
	t.to = messages{ctx, ws}
	if err != nil {
		cancel() // before ws is used: there is none
		close(t.ready)
		return
	}
	defer ws.CloseNow() //nolint:errcheck // it is closed in order before, or broken
	_ = sendText(ctx, ws, terminalMessage{Type: "start", ExecID: e.ID(), Offset: &in.Offset})
	close(t.ready)

	go func() {
		defer cancel() // the client is gone
		x.terminalInput(ctx, ws, e)
	}()
	go func() {
		defer cancel()
		heartbeat.Watch(ctx, ws, quiet, wsTimeout)
	}()
	go func() {
		select {
		case <-x.Draining:
			_ = e.Detach() // it is not its client that goes
			_ = sendText(ctx, ws, terminalMessage{Type: "error", Detail: errStopping().Error(), Code: server.CodeUnavailable})
			_ = ws.Close(websocket.StatusGoingAway, "the server is about to stop")
		case <-ctx.Done():
		}
	}()
	res, err := e.Wait(ctx)
	if ctx.Err() != nil {
		return
	}
	x.endTerminal(ctx, c, in.ID, ws, res, err)
}

// endTerminal tells how the command ended and closes the WebSocket.
func (x *execRoutes) endTerminal(ctx context.Context, c sandbox.Caller, id string, ws *websocket.Conn, res *sandbox.Result, err error) {
	if err == nil && res.Outcome == sandbox.Lost {
		err = x.lost(ctx, c, id, res)
	}
	if err != nil {
		p := server.Explain(ctx, guestError(err))
		_ = sendText(ctx, ws, terminalMessage{Type: "error", Detail: p.Detail, Code: p.Code})
	} else {
		_ = sendText(ctx, ws, terminalExit{"exit", endOf(res)})
	}
	taken(ctx, ws)
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

type terminalExit struct {
	Type string `json:"type"`
	ExecEnd
}

// terminalControl is a text message of the client.
type terminalControl struct {
	Type   string `json:"type"`
	Cols   uint16 `json:"cols"`
	Rows   uint16 `json:"rows"`
	Signal Signal `json:"signal"`
}

// terminalInput passes on what the client sends until it is gone.
func (x *execRoutes) terminalInput(ctx context.Context, ws *websocket.Conn, e *manager.Exec) {
	for {
		kind, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			_, _ = e.Stdin().Write(data) // a command that has ended takes nothing, and its end is told
			continue
		}
		if err := controlRunning(ctx, e, data); err != nil {
			p := server.Explain(ctx, err)
			_ = sendText(ctx, ws, terminalMessage{Type: "error", Detail: p.Detail, Code: p.Code})
		}
	}
}

// controlRunning is control for a command that may have ended: then there is
// nothing to control, and its end is told.
func controlRunning(ctx context.Context, e *manager.Exec, data []byte) error {
	err := control(ctx, e, data)
	if err == nil {
		return nil
	}
	switch server.ProblemOf(err).Code {
	case server.CodeInvalidRequest, server.CodeInvalidValue:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endIsKnown)
	defer cancel()
	if _, wait := e.Wait(ctx); wait == nil || ctx.Err() == nil {
		return nil
	}
	return err
}

// endIsKnown is how long after a command's end its result may be on its way.
const endIsKnown = time.Second

// control does what a text message says.
func control(ctx context.Context, e *manager.Exec, data []byte) error {
	var m terminalControl
	if err := json.Unmarshal(data, &m); err != nil {
		return server.NewProblem(server.CodeInvalidRequest, "a text message must be JSON such as {\"type\":\"resize\",\"cols\":80,\"rows\":24}")
	}
	switch {
	case m.Type == "resize" && m.Cols > 0 && m.Rows > 0:
		return guestError(e.Resize(m.Cols, m.Rows))
	case m.Type == "signal":
		n, err := m.Signal.number("signal")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, wsTimeout)
		defer cancel()
		return guestError(e.Signal(ctx, n, false))
	default:
		return &sandbox.InvalidError{Field: "type", Value: m.Type, Allowed: "resize with cols and rows, signal"}
	}
}

// wsTimeout is how long a client may take for a message, or to show that it lives.
const wsTimeout = time.Minute
