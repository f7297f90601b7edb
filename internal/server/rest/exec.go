package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// Execs are what the routes about commands need; manager.Manager has it.
type Execs interface {
	StartOnce(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, out client.Output, once sandbox.Once) (*manager.Exec, error)
	Recall(ctx context.Context, c sandbox.Caller, id string, once sandbox.Once) ([]byte, error)
	Attach(ctx context.Context, c sandbox.Caller, id, execID string, stdout, stderr int64, out client.Output) (*manager.Exec, error)
	Installs
	execReader
	execControl
}

// execRoutes are the routes about commands.
type execRoutes struct {
	*API
	m        Execs
	sessions *sessionRoutes
}

// Inside is what the routes about the inside of sandboxes need; manager.Manager
// has it.
type Inside interface {
	Execs
	Files
	Ports
}

// registerExec adds the routes about commands.
func registerExec(a *API, m Execs, s *sessionRoutes) {
	x := &execRoutes{a, m, s}
	tags := []string{"Commands"}
	route(a, huma.Operation{
		OperationID: "execute", Method: http.MethodPost, Path: "/sandboxes/{id}/execute", Summary: "Run a command and wait for its end", Tags: tags,
		Description: "A command that fails is a result. When the client goes away the command runs on, and its result is kept for an hour under its exec_id. With detach the answer comes at once, with status 202.",
		Responses: map[string]*huma.Response{"202": {
			Description: "It runs.", Content: map[string]*huma.MediaType{"application/json": {Schema: schemaOf[ExecResult](a)}},
		}},
	}, server.Route{MaxBody: server.MaxDataBody}, x.execute)
	routeReply(a, huma.Operation{
		OperationID: "execute-stream", Method: http.MethodPost, Path: "/sandboxes/{id}/execute/stream", Summary: "Run a command and follow its output", Tags: tags,
		Description: "The events are start {exec_id}, stdout and stderr {offset, data}, exit {the result} and error {detail, code}. When the client goes away the command is killed after 5 s, unless somebody follows its output again with the Last-Event-ID; with detach it runs on, see also on_disconnect.",
		Responses:   answers("200", "Events.", typeEvents),
	}, server.Route{MaxBody: server.MaxDataBody}, x.executeStream)
	routeReply(a, huma.Operation{
		OperationID: "open-terminal", Method: http.MethodGet, Path: "/sandboxes/{id}/terminal", Summary: "Open a terminal (WebSocket)", Tags: tags,
		Description: "Binary messages are bytes of the terminal. Text messages are JSON: the server sends {type: start, exec_id, offset} first and {type: exit, …the result} at the end, or {type: error, detail, code}; the client may send {type: resize, cols, rows} and {type: signal, signal}. When the client goes away the command is killed after 5 s, unless a terminal with its exec_id is opened again. A page, which can set no headers, offers the subprotocols agentbox and agentbox.key.KEY: the first is taken, and the key read from the second.",
		Responses:   map[string]*huma.Response{"101": {Description: "The WebSocket is open."}},
	}, server.Route{Stream: true}, x.terminal)
	x.registerExecs(tags)
	x.registerPackages(m)
}

// CommandLine is a command line for the shell, or a program with its arguments.
type CommandLine struct {
	shell string
	argv  []string
	bad   malformed
}

// UnmarshalJSON never fails: Resolve tells what is wrong, and where.
func (l *CommandLine) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &l.shell) != nil && json.Unmarshal(data, &l.argv) != nil {
		l.bad = malformed{bytes.Clone(data), "string_type", "it must be a text, or a list of texts"}
	}
	return nil
}

// MarshalJSON writes what was read.
func (l CommandLine) MarshalJSON() ([]byte, error) {
	if l.argv != nil {
		return json.Marshal(l.argv)
	}
	return json.Marshal(l.shell)
}

// Resolve reports a value that is none.
func (l *CommandLine) Resolve(_ huma.Context, at *huma.PathBuffer) []error { return l.bad.report(at) }

// Schema documents the type.
func (l *CommandLine) Schema(huma.Registry) *huma.Schema {
	return anyOf("A command line for the shell, or a list: a program and its arguments.",
		map[string]any{"type": "string", "minLength": 1}, map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"type": "string"}})
}

// Command is what to run.
type Command struct {
	Command     CommandLine       `json:"command"`
	Workdir     string            `json:"workdir,omitempty" maxLength:"4095" doc:"Where; default: the sandbox's directory."`
	Env         map[string]string `json:"env,omitempty" doc:"Added to the sandbox's environment."`
	User        string            `json:"user,omitempty" maxLength:"128" doc:"Who runs it, a name or number, optionally with :group; default: the sandbox's user."`
	Stdin       string            `json:"stdin,omitempty" doc:"Its input, as a text. A request has at most 16 MiB; more goes to the stdin of the command."`
	StdinBase64 []byte            `json:"stdin_base64,omitempty" doc:"Its input, as bytes, instead of stdin."`
	OpenStdin   Bool              `json:"open_stdin,omitempty" doc:"Leave its input open behind stdin: more comes by execs/{exec}/stdin, or from a terminal."`
	Timeout     *Duration         `json:"timeout,omitempty" doc:"After it the command and all that it started is killed. Default: an hour, at most 24 hours; for a detached command none."`
	MaxOutput   *Size             `json:"max_output,omitempty" doc:"What is kept of each stream, in bytes. Default 10 MB, at most 100 MB; a stream of events has no default."`
	Detach      Bool              `json:"detach,omitempty" doc:"Don't wait for it, and let it run on when its client is gone."`
	Disconnect  string            `json:"on_disconnect,omitempty" enum:"kill,kill_now,keep" doc:"What becomes of it when its client is gone: kill it, unless somebody follows it within 5 s (kill), kill it at once (kill_now), or keep it. Default: keep; for a stream that is not detached kill, with the frames of the process API kill_now."`
	TTY         Bool              `json:"tty,omitempty" doc:"Give it a terminal; stderr is then part of stdout."`
	Cols        Int               `json:"cols,omitzero" minimum:"0" maximum:"65535" doc:"Columns of the terminal; default 80."`
	Rows        Int               `json:"rows,omitzero" minimum:"0" maximum:"65535" doc:"Rows of the terminal; default 24."`
	Session     string            `json:"session,omitempty" maxLength:"128" doc:"Run it in this shell session; its directory, user and environment hold then."`
}

// command is what the core takes, and the input; nil: there is none.
func (q *Command) command() (cmd sandbox.Command, stdin io.Reader, err error) {
	if q.Command.shell == "" && len(q.Command.argv) == 0 {
		return cmd, nil, &sandbox.InvalidError{Field: "command", Allowed: "a command line, or a program and its arguments"}
	}
	cmd = sandbox.Command{
		Argv: q.Command.argv, Shell: q.Command.shell, Dir: q.Workdir, User: q.User, TTY: q.TTY.Value, Cols: uint16(q.Cols.Value), Rows: uint16(q.Rows.Value),
	}
	if cmd.Env, err = environment(q.Env); err != nil {
		return cmd, nil, err
	}
	if q.Timeout != nil {
		cmd.Timeout = q.Timeout.Value
		if cmd.Timeout <= 0 || cmd.Timeout > sandbox.MaxTimeout {
			return cmd, nil, &sandbox.InvalidError{Field: "timeout", Value: cmd.Timeout.String(), Allowed: "more than 0, at most " + sandbox.MaxTimeout.String()}
		}
	} else if q.Detach.Value {
		cmd.Timeout = -1
	}
	if q.MaxOutput != nil {
		cmd.MaxOutput = q.MaxOutput.Bytes
		if cmd.MaxOutput <= 0 || cmd.MaxOutput > sandbox.MaxMaxOutput {
			return cmd, nil, &sandbox.InvalidError{Field: "max_output", Value: sandbox.FormatSize(cmd.MaxOutput), Allowed: "1 to 100000000 bytes"}
		}
	}
	switch {
	case q.Stdin != "" && len(q.StdinBase64) > 0:
		return cmd, nil, &sandbox.InvalidError{Field: "stdin_base64", Allowed: "one of stdin and stdin_base64"}
	case q.Stdin != "":
		stdin = strings.NewReader(q.Stdin)
	case len(q.StdinBase64) > 0:
		stdin = bytes.NewReader(q.StdinBase64)
	}
	if q.Disconnect == killNow && q.Detach.Value {
		return cmd, nil, &sandbox.InvalidError{Field: "on_disconnect", Value: killNow, Allowed: "kill or keep with detach: who detaches is gone at once"}
	}
	cmd.Stdin = stdin != nil || q.OpenStdin.Value
	return cmd, stdin, nil
}

// killNow is the wish that a command goes with its client.
const killNow = "kill_now"

// killedAtOnce reports whether a command goes with its client. frames of the process
// API: its clients know no other way to end a command.
func (q *Command) killedAtOnce(frames bool) bool {
	return q.Disconnect == killNow || frames && q.Disconnect == "" && !q.Detach.Value
}

// onDisconnect is the client's wish, or what is usual.
func (q *Command) onDisconnect(usual sandbox.OnDisconnect) sandbox.OnDisconnect {
	switch q.Disconnect {
	case "kill", killNow: // the sandbox knows of the former only
		return sandbox.Kill
	case "keep":
		return sandbox.Keep
	default:
		return usual
	}
}

// environment in the form that the core takes, sorted.
func environment(env map[string]string) ([]string, error) {
	var list []string
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00") {
			return nil, &sandbox.InvalidError{Field: "env", Value: name, Allowed: "names without = and NUL, values without NUL"}
		}
		list = append(list, name+"="+env[name])
		size += len(name) + len(env[name])
	}
	if len(list) > sandbox.MaxEnv || int64(size) > sandbox.MaxEnvBytes {
		return nil, &sandbox.InvalidError{Field: "env", Allowed: "at most 1024 variables and 128 KiB"}
	}
	return list, nil
}

type executeInput struct {
	SandboxID
	Encoding
	Repeatable
	Accept string `header:"Accept" doc:"Of a stream: text/event-stream; profile=process-api gives frames without names and ids, {type, data} and {type: exit, exit_code}, for clients of that API."`
	Body   Command
}

// Encoding is the form of bytes in JSON.
type Encoding struct {
	Encoding string `query:"encoding" enum:"text,base64" default:"text" doc:"How output is written: as a text with U+FFFD in place of bytes that are no UTF-8, or exactly."`
}

func (e *Encoding) base64() bool { return e.Encoding == "base64" }

type executeOutput struct {
	Status int
	Body   ExecResult
}

// toKeep is the answer with as much of the output as may be kept.
func (o *executeOutput) toKeep() ([]byte, error) {
	for most := int(sandbox.MaxAnswer); ; most /= 2 {
		var text bytes.Buffer
		if err := encode(&text, executeOutput{o.Status, o.Body.within(most)}); err != nil {
			return nil, fmt.Errorf("encode an answer: %w", err)
		}
		if text.Len() <= int(sandbox.MaxAnswer) || most == 0 {
			return text.Bytes(), nil
		}
	}
}

func (x *execRoutes) execute(ctx context.Context, c sandbox.Caller, in *executeInput) (*executeOutput, error) {
	if in.Body.Session != "" {
		return x.executeInSession(ctx, c, in)
	}
	cmd, stdin, err := in.Body.command()
	if err != nil {
		return nil, err
	}
	once, err := in.once("execute")
	if err != nil {
		return nil, err
	}
	if out, err := x.recall(ctx, c, in.ID, once); out != nil || err != nil {
		return out, err
	}
	merged := &capture{}
	detach := in.Body.Detach.Value
	if in.Body.OpenStdin.Value && !detach {
		return nil, &sandbox.InvalidError{Field: "open_stdin", Value: "true", Allowed: "with detach, or with execute/stream: who waits can't send more"}
	}
	cmd.OnDisconnect = in.Body.onDisconnect(sandbox.Keep)
	cmd.Background = detach && cmd.OnDisconnect == sandbox.Keep
	var out client.Output
	if !detach {
		out = merged.output()
	}
	e, err := x.start(ctx, c, in.ID, cmd, out, once)
	if err != nil {
		return nil, err
	}
	if detach {
		if !e.Again() {
			if !cmd.Background {
				e.Abandon() // until somebody follows it
			}
			x.feedDetached(ctx, c, in.ID, e.ID(), stdin, !in.Body.OpenStdin.Value)
		}
		return x.answered(ctx, e, &executeOutput{http.StatusAccepted, ExecResult{ExecID: e.ID()}})
	}
	feed(e, stdin, !in.Body.OpenStdin.Value)
	res, err := e.Wait(ctx)
	if err != nil {
		if cmd.OnDisconnect == sandbox.Keep {
			_ = e.Detach() // Keep says the same, should this not arrive
		}
		x.leave(ctx, e, in.Body.killedAtOnce(false))
		return nil, err
	}
	if res.Outcome == sandbox.Lost {
		return nil, x.lost(ctx, c, in.ID, res)
	}
	body := resultOf(res)
	merged.fill(&body, in.base64())
	return x.answered(ctx, e, &executeOutput{http.StatusOK, body})
}

// once is what makes a request repeatable, if it is to be. Its ids of the sandbox
// are one: the core adds it.
func (in *executeInput) once(operation string) (sandbox.Once, error) {
	if in.Key == "" {
		return sandbox.Once{}, nil
	}
	return onceOf(in.Key, operation+" "+in.Encoding.Encoding, in.Body)
}

// recall is the answer that a repeated request got the first time; nil: it must
// be found, or run.
func (x *execRoutes) recall(ctx context.Context, c sandbox.Caller, id string, once sandbox.Once) (*executeOutput, error) {
	if once.Key == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	answer, err := x.m.Recall(ctx, c, id, once)
	if answer == nil || err != nil {
		return nil, err
	}
	out := new(executeOutput)
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("read a kept answer: %w", err)
	}
	return out, nil
}

// answered keeps an answer for those who ask again, if the request is one that
// may be repeated.
func (x *execRoutes) answered(ctx context.Context, e *manager.Exec, out *executeOutput) (*executeOutput, error) {
	if !e.Repeatable() {
		return out, nil
	}
	text, err := out.toKeep()
	if err != nil {
		return nil, err
	}
	if err := e.Answered(ctx, text); err != nil {
		server.LogError(ctx, err) // who asks again finds the command itself, for an hour
	}
	return out, nil
}

// start starts a command and records it.
func (x *execRoutes) start(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, out client.Output, once sandbox.Once) (*manager.Exec, error) {
	e, err := x.m.StartOnce(ctx, c, id, cmd, out, once)
	return e, x.started(ctx, c, id, commandText(cmd), e, err)
}

func commandText(cmd sandbox.Command) string {
	if cmd.Shell != "" {
		return cmd.Shell
	}
	return strings.Join(cmd.Argv, " ")
}

// feed lets input be copied, if there is any, and ends it with eof; a command that
// does not want it all is no error.
func feed(e *manager.Exec, stdin io.Reader, eof bool) {
	if stdin == nil || e.Again() {
		return
	}
	go func() {
		w := e.Stdin()
		_, _ = io.Copy(w, stdin)
		if eof {
			_ = w.Close()
		}
	}()
}

// feedDetached gives a command that nobody follows its input. Pipes take 64 KiB
// at once; what the command does not read in time is given on when it does.
func (x *execRoutes) feedDetached(ctx context.Context, c sandbox.Caller, id, execID string, stdin io.Reader, eof bool) {
	if stdin == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	go func() { _ = x.m.WriteExec(ctx, c, id, execID, stdin, eof) }() // the command's end ends it
}

// lost is the error of a command that went down with its sandbox.
func (x *execRoutes) lost(ctx context.Context, c sandbox.Caller, id string, res *sandbox.Result) error {
	sb, err := x.Sandboxes.Get(ctx, c, id)
	if err != nil {
		return err
	}
	return doors.Lost(&sb, res)
}
