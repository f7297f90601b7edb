package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// execWish is the request for a command. What is empty is left to the server.
type execWish struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	User    string            `json:"user,omitempty"`
	Timeout string            `json:"timeout,omitempty"`
	Stdin   []byte            `json:"stdin_base64,omitempty"`
}

// maxStdin bounds what -i reads, in bytes: it is sent in one request.
const maxStdin = 32 << 20

func (a *App) execCommand() *cobra.Command {
	var w execWish
	var env []string
	var stdin bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "exec SANDBOX -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox of the server",
		Long: `Run a command in a sandbox of the server and show its output as it comes. The exit
status is the command's own; 124 after --timeout, 137 when the memory limit was
reached, 128+n when signal n ended it, 125 when agentbox itself failed. A signal to
agentbox kills the command.`,
		Example: `  agentbox exec dev -- python3 -c 'print(6*7)'
  echo hi | agentbox exec -i dev -- cat`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if cmd.ArgsLenAtDash() != 1 {
				return fmt.Errorf("put -- before the command: agentbox exec %s -- %s", args[0], strings.Join(args[1:], " "))
			}
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			w.Command = args[1:]
			if w.Env, err = variables(env); err != nil {
				return err
			}
			if timeout != 0 {
				w.Timeout = timeout.String()
			}
			if stdin {
				if w.Stdin, err = io.ReadAll(io.LimitReader(a.Stdin, maxStdin+1)); err != nil {
					return fmt.Errorf("read the input: %w", err)
				}
				if len(w.Stdin) > maxStdin {
					return fmt.Errorf("the input is longer than %d bytes", maxStdin)
				}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.exec(ctx, r, args[0], w))
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVarP(&stdin, "interactive", "i", false, "pass standard input to the command, as a whole")
	fl.StringArrayVarP(&env, "env", "e", nil, "set an environment variable, `NAME=VALUE`, or NAME to pass on this one's value (repeatable)")
	fl.StringVarP(&w.Workdir, "workdir", "w", "", "working directory (default: the sandbox's)")
	fl.StringVarP(&w.User, "user", "u", "", "user name or uid, optionally :group (default: the sandbox's)")
	fl.DurationVar(&timeout, "timeout", 0, "kill the command after this time (default: the server's)")
	return cmd
}

// exec runs a command, shows its output, and returns its status as an error, if
// it is not 0.
func (a *App) exec(ctx context.Context, r *remote, id string, w execWish) error {
	path := "/sandboxes/" + url.PathEscape(id)
	resp, err := r.send(ctx, http.MethodPost, path+"/execute/stream?encoding=base64", w)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	execID := ""
	err = serverEvents(resp.Body, func(name string, data []byte) (bool, error) {
		return a.execEvent(name, data, &execID)
	})
	if ctx.Err() != nil && execID != "" {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		kill := r.call(last, http.MethodPost, path+"/execs/"+execID+"/signal", map[string]string{"signal": "KILL"}, nil)
		return errors.Join(context.Cause(ctx), kill)
	}
	return err
}

// execEvent handles one event of a command; done is the last.
func (a *App) execEvent(name string, data []byte, execID *string) (done bool, err error) {
	var e struct {
		ExecID   string `json:"exec_id"`
		Data     []byte `json:"data_base64"`
		ExitCode int    `json:"exit_code"`
		TimedOut bool   `json:"timed_out"`
		Reason   string `json:"reason"`
		Detail   string `json:"detail"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return false, fmt.Errorf("read an event of the server: %w", err)
	}
	switch name {
	case "start":
		*execID = e.ExecID
	case "stdout":
		_, err = a.Stdout.Write(e.Data)
	case "stderr":
		_, err = a.Stderr.Write(e.Data)
	case "error":
		err = errors.New(e.Detail)
	case "exit":
		switch {
		case e.TimedOut:
			return true, exitStatus(exitTimeout)
		case e.ExitCode != 0:
			return true, exitStatus(e.ExitCode)
		}
		return true, nil
	}
	return false, err
}

// exitTimeout is the status after a time limit, as timeout(1) has it.
const exitTimeout = 124

// maxEvent bounds one line of a stream of events, in bytes.
const maxEvent = 4 << 20

// serverEvents calls f with each server-sent event until it is done or fails.
func serverEvents(body io.Reader, f func(name string, data []byte) (done bool, err error)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 64<<10), maxEvent)
	name := ""
	for lines.Scan() {
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "event":
			name = strings.Clone(string(value))
		case "data":
			if done, err := f(name, value); done || err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("follow the command: %w", err)
	}
	return errors.New("follow the command: the server went away; the command may go on")
}
