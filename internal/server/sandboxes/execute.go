package sandboxes

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/guest/client"
	"agentbox/internal/guest/wording"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/doors"
)

// execute runs a command to its end. When its client goes away the command runs on;
// the native door has its result for an hour.
func (d *door) execute(r *http.Request, c sandbox.Caller) (any, error) {
	ctx, id := r.Context(), r.PathValue("id")
	cmd, err := d.readCommand(r)
	if err != nil {
		return nil, err
	}
	var e *manager.Exec
	sb, err := d.Sandboxes.Get(ctx, c, id)
	if err == nil {
		e, err = d.Sandboxes.StartExec(ctx, c, sb.UID, cmd, client.Output{}, "")
	}
	details := map[string]string{"command": cmd.Shell + strings.Join(cmd.Argv, " ")}
	if err == nil {
		details["exec_id"] = e.ID()
	}
	err = d.explained(ctx, c, id, err)
	doors.Record(ctx, d.Audit, c, audit.Exec, sb.UID, err, details)
	if err != nil {
		return nil, failed(err, "Failed to execute command")
	}
	res, err := e.Wait(ctx)
	if err != nil {
		_ = e.Detach() // it runs on, should this not arrive, too
		return nil, failed(d.explained(ctx, c, id, err), "Failed to execute command")
	}
	if res.Outcome == sandbox.Lost {
		if sb, err = d.Sandboxes.Get(ctx, c, sb.UID); err == nil {
			err = doors.Lost(&sb, res)
		}
		return nil, d.explained(ctx, c, id, err)
	}
	return result{res}, nil
}

func (d *door) readCommand(r *http.Request) (cmd sandbox.Command, err error) {
	f, err := readForm(r)
	if err != nil {
		return cmd, err
	}
	f.require("command")
	raw, given := f.get("command")
	if given && json.Unmarshal(raw, &cmd.Argv) != nil && json.Unmarshal(raw, &cmd.Shell) != nil {
		f.wrong("list_type", "command", "it must be a list of texts, or a text for the shell", raw)
	}
	env, timeout := f.texts("env"), f.textOrNumber("timeout")
	cmd.Dir, cmd.OnDisconnect, cmd.Timeout = f.text("workdir"), sandbox.Keep, d.Exec
	if err := f.err(); err != nil {
		return cmd, err
	}
	if cmd.Dir == "" {
		cmd.Dir = sandbox.WorkspacePath
	}
	if cmd.Shell == "" && len(cmd.Argv) == 0 {
		return cmd, &sandbox.InvalidError{Field: "command", Allowed: "a program and its arguments"}
	}
	if timeout != "" {
		if cmd.Timeout, err = sandbox.ParseDuration("timeout", timeout); err != nil || cmd.Timeout <= 0 || cmd.Timeout > sandbox.MaxTimeout {
			return cmd, &sandbox.InvalidError{Field: "timeout", Value: sandbox.Clip(timeout, 64), Allowed: "seconds, more than 0, at most " + fmt.Sprint(sandbox.MaxTimeout/time.Second)}
		}
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(env[name], "\x00") {
			return cmd, &sandbox.InvalidError{Field: "env", Value: sandbox.Clip(name, 64), Allowed: "names without = and NUL, values without NUL"}
		}
		cmd.Env = append(cmd.Env, name+"="+env[name])
		size += len(name) + len(env[name])
	}
	if len(cmd.Env) > sandbox.MaxEnv || int64(size) > sandbox.MaxEnvBytes {
		return cmd, &sandbox.InvalidError{Field: "env", Allowed: "at most 1024 variables and 128 KiB"}
	}
	return cmd, nil
}

// result is how a command ended.
type result struct{ *sandbox.Result }

// timedOut ends the standard error of a command whose time was over.
const timedOut = "Command timed out"

// writeJSON writes the output in pieces: it may have many megabytes.
func (r result) writeJSON(out io.Writer) error {
	w := bufio.NewWriterSize(out, 64<<10)
	code := r.ShellCode()
	if r.Outcome == sandbox.TimedOut {
		code = -1
	}
	fmt.Fprintf(w, `{"exit_code":%d,"stdout":"`, code)
	if err := writeOutput(w, r.Stdout, r.StdoutTruncated, ""); err != nil {
		return err
	}
	last := ""
	if r.Outcome == sandbox.TimedOut {
		last = timedOut
		if n := len(r.Stderr); r.StderrTruncated || n > 0 && r.Stderr[n-1] != '\n' {
			last = "\n" + last
		}
	}
	fmt.Fprint(w, `","stderr":"`)
	if err := writeOutput(w, r.Stderr, r.StderrTruncated, last); err != nil {
		return err
	}
	fmt.Fprintf(w, "\",\"timed_out\":%t,\"oom_killed\":%t,\"truncated\":%t}\n",
		r.Outcome == sandbox.TimedOut, r.Outcome == sandbox.OOM, r.StdoutTruncated || r.StderrTruncated)
	return w.Flush()
}

// writeOutput writes a stream as the inside of a JSON string.
func writeOutput(w io.Writer, p []byte, cut bool, last string) error {
	text := wording.NewJSONText(w)
	for chunk := range slices.Chunk(p, 64<<10) {
		if _, err := text.Write(chunk); err != nil {
			return err
		}
	}
	if cut {
		last = wording.CutMark + last
	}
	return text.End(last)
}
