package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// restBox is a sandbox of a daemon, reached through its REST API.
type restBox struct {
	d       *Daemon
	id      string
	session string // command lines run in it, if there is one
}

// at is a path below the sandbox's.
func (r *restBox) at(path string) string { return "/sandboxes/" + r.id + path }

// answered is a result in the form of the REST API.
type answered struct {
	ExecID    string `json:"exec_id"`
	ExitCode  *int   `json:"exit_code"`
	Output    string `json:"output"`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Signal    *int   `json:"signal"`
	TimedOut  bool   `json:"timed_out"`
	OOMKilled bool   `json:"oom_killed"`
	Truncated struct{ Stdout, Stderr bool }
	Reason    string   `json:"reason"`
	Duration  *float64 `json:"duration"`
}

// result is what the Go API would have said. What contradicts itself is an error.
func (a *answered) result() (*sandbox.Result, error) {
	if a.ExecID == "" || a.ExitCode == nil || a.Duration == nil {
		return nil, fmt.Errorf("a result without exec_id, exit_code or duration: %+v", a)
	}
	res := &sandbox.Result{
		ExecID: a.ExecID, Outcome: sandbox.Exited, ExitCode: *a.ExitCode, Reason: a.Reason,
		StdoutTruncated: a.Truncated.Stdout, StderrTruncated: a.Truncated.Stderr, Duration: time.Duration(*a.Duration * float64(time.Second)),
	}
	code := -1
	switch {
	case a.TimedOut:
		res.Outcome = sandbox.TimedOut
	case a.OOMKilled:
		res.Outcome, code = sandbox.OOM, 137
	case a.Signal != nil:
		res.Outcome, res.Signal, code = sandbox.Signaled, *a.Signal, 128+*a.Signal
	default:
		return res, nil
	}
	res.ExitCode = 0
	if *a.ExitCode != code {
		return nil, fmt.Errorf("exit_code is %d: %+v", *a.ExitCode, a)
	}
	return res, nil
}

// request is a command in the form of the REST API.
func (r *restBox) request(cmd sandbox.Command, stdin io.Reader) (string, error) {
	q := map[string]any{"timeout": cmd.Timeout.Seconds()}
	set := func(name string, v any, given bool) {
		if given {
			q[name] = v
		}
	}
	set("command", cmd.Argv, cmd.Argv != nil)
	set("command", cmd.Shell, cmd.Shell != "")
	set("session", r.session, r.session != "" && cmd.Shell != "")
	set("workdir", cmd.Dir, cmd.Dir != "")
	set("user", cmd.User, cmd.User != "")
	set("tty", true, cmd.TTY)
	set("cols", cmd.Cols, cmd.Cols != 0)
	set("rows", cmd.Rows, cmd.Rows != 0)
	set("max_output", cmd.MaxOutput, cmd.MaxOutput > 0)
	env := map[string]string{}
	for _, e := range cmd.Env {
		name, value, _ := strings.Cut(e, "=")
		env[name] = value
	}
	set("env", env, len(env) > 0)
	if stdin != nil {
		b, err := io.ReadAll(stdin)
		if err != nil {
			return "", err
		}
		set("stdin_base64", b, true)
	}
	b, err := json.Marshal(q)
	return string(b), err
}

// try runs a command: it waits for the result, or follows the events if the
// output has somewhere to go.
func (r *restBox) try(cmd sandbox.Command, stdin io.Reader, out client.Output) (*sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), cmd.Timeout+time.Minute)
	defer cancel()
	body, err := r.request(cmd, stdin)
	if err != nil {
		return nil, err
	}
	if out.Stdout != nil || out.Stderr != nil {
		return r.follow(ctx, body, out)
	}
	var a answered
	if err := r.d.ask(ctx, "POST", r.at("/execute?encoding=base64"), body, &a); err != nil {
		return nil, err
	}
	res, err := a.result()
	if err != nil {
		return nil, err
	}
	var errs [3]error
	res.Stdout, errs[0] = base64.StdEncoding.DecodeString(a.Stdout)
	res.Stderr, errs[1] = base64.StdEncoding.DecodeString(a.Stderr)
	both, err := base64.StdEncoding.DecodeString(a.Output)
	if errs[2] = err; err == nil && len(both) != len(res.Stdout)+len(res.Stderr) {
		errs[2] = fmt.Errorf("output has %d bytes, stdout %d and stderr %d", len(both), len(res.Stdout), len(res.Stderr))
	}
	return res, errors.Join(errs[:]...)
}

// follow reads the events of a command to their end and checks their order.
func (r *restBox) follow(ctx context.Context, body string, out client.Output) (*sandbox.Result, error) {
	s, err := r.d.Events(ctx, r.d.Key, "POST", r.at("/execute/stream?encoding=base64"), body)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	at := map[string]int64{}
	to := map[string]io.Writer{"stdout": out.Stdout, "stderr": out.Stderr}
	for n := 0; ; n++ {
		ev, err := s.Next()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", n, err)
		}
		switch ev.Name {
		case "start":
			if n != 0 {
				return nil, fmt.Errorf("event %d is start", n)
			}
		case "stdout", "stderr":
			var o struct {
				Offset int64
				Data   []byte `json:"data_base64"`
			}
			err := json.Unmarshal([]byte(ev.Data), &o)
			if _, begun := at[ev.Name]; !begun && r.session != "" {
				at[ev.Name] = o.Offset // those of the shell's output
			}
			if err != nil || n == 0 || o.Offset != at[ev.Name] {
				return nil, fmt.Errorf("event %d at %d: %.200s: %w", n, at[ev.Name], ev.Data, err)
			}
			at[ev.Name] += int64(len(o.Data))
			if w := to[ev.Name]; w != nil {
				if _, err := w.Write(o.Data); err != nil {
					return nil, err
				}
			}
		case "exit":
			var a answered
			if err := json.Unmarshal([]byte(ev.Data), &a); err != nil {
				return nil, fmt.Errorf("the exit %s: %w", ev.Data, err)
			}
			if _, err := s.Next(); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("after exit: %w", err)
			}
			return a.result()
		case "error":
			return nil, problemOf(0, []byte(ev.Data))
		default:
			return nil, fmt.Errorf("event %d is %s", n, ev.Name)
		}
	}
}

// Make makes a sandbox of the first owner and returns its id. The small image and
// what fields say.
func (d *Daemon) Make(fields map[string]any) string {
	d.t.Helper()
	if fields == nil {
		fields = map[string]any{}
	}
	var sb struct {
		ID     string          `json:"id"`
		Detail json.RawMessage `json:"detail"`
	}
	if code := d.Do(d.Key, "POST", "/sandboxes", encode(d.t, fields), &sb); code != http.StatusCreated {
		d.t.Fatalf("make a sandbox: %d %s", code, sb.Detail)
	}
	return sb.ID
}

// Box is a sandbox of the daemon.
func (d *Daemon) Box(id string) *Box { return &Box{t: d.t, remote: &restBox{d: d, id: id}} }

// With is the same daemon for another test.
func (d *Daemon) With(t testing.TB) *Daemon {
	other := *d
	other.t = t
	return &other
}

// Pid is the daemon's process.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// command is a call of agentbox exec in the sandbox, not started.
func (b *Box) command(argv ...string) *exec.Cmd {
	return exec.Command(Binary(b.t), append([]string{"--data-dir", b.remote.d.Dir, "exec", b.remote.id, "--"}, argv...)...)
}
