package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentbox/internal/sandbox"
)

// execWish is the request for a command. What is empty is left to the server.
type execWish struct {
	Command      any               `json:"command"` // a command line, or a program and its arguments
	Env          map[string]string `json:"env,omitempty"`
	Workdir      string            `json:"workdir,omitempty"`
	User         string            `json:"user,omitempty"`
	Timeout      string            `json:"timeout,omitempty"`
	MaxOutput    string            `json:"max_output,omitempty"`
	Session      string            `json:"session,omitempty"`
	Stdin        []byte            `json:"stdin_base64,omitempty"`
	OpenStdin    bool              `json:"open_stdin,omitempty"`
	TTY          bool              `json:"tty,omitempty"`
	Cols         uint16            `json:"cols,omitempty"`
	Rows         uint16            `json:"rows,omitempty"`
	Detach       bool              `json:"detach,omitempty"`
	OnDisconnect string            `json:"on_disconnect,omitempty"`
}

// execFlags are the options of exec and shell.
type execFlags struct {
	stdin, tty, detach, json bool
	env                      []string
	workdir, user, session   string
	maxOutput                string
	timeout                  time.Duration
}

const (
	// killNow: a command goes with the process that shows its output. One that has a
	// terminal is found again by it within five seconds.
	killNow = "kill_now"
	// exitTimeout is the status after a time limit, as timeout(1) has it.
	exitTimeout = 124
	// maxStdin bounds input that is sent as a part of a request, in bytes: in base64 it
	// must fit into the 16 MiB that a server takes.
	maxStdin = 11 << 20
)

func (a *App) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] SANDBOX -- COMMAND [ARG...]",
		Short: "Run a command in a sandbox of the server",
		Long: `Run a command in a sandbox of the server and show its output as it comes. The exit
status is the command's own; 124 after --timeout, 137 when the memory limit was
reached, 128+n when signal n ended it, 126 and 127 when it can't be run or is not
there, 125 when agentbox itself failed.

Signals to agentbox go to the command: SIGINT and SIGQUIT to all that it started, the
others to the command alone; the third SIGINT or SIGTERM kills it. With --tty the
keys are the command's, Ctrl-C is one of them. A command whose agentbox is gone is
killed, with --tty after five seconds; --detach leaves it running, and agentbox logs
shows what it says. When the server is started anew meanwhile, the command goes on
and so does its output.`,
		Example: `  agentbox exec dev -- python3 -c 'print(6*7)'
  echo hi | agentbox exec -i dev -- cat
  agentbox exec -it dev -- python3
  agentbox exec --timeout 10m --env CI=1 --workdir /workspace/app dev -- make test
  agentbox exec --detach dev -- ./server       # prints the id of the command
  agentbox exec --session main dev -- 'cd src && export A=1'`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := f.wish(cmd, args)
			if err != nil {
				return err
			}
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			return a.exec(cmd.Context(), r, args[0], &f, w)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVarP(&f.stdin, "interactive", "i", false, "pass standard input to the command")
	fl.BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal")
	f.add(cmd)
	fl.DurationVar(&f.timeout, "timeout", 0, "kill the command after this time (default: the server's)")
	fl.BoolVarP(&f.detach, "detach", "d", false, "leave the command running and print its id")
	fl.StringVar(&f.session, "session", "", "run a command line in this shell session (agentbox sessions)")
	fl.BoolVar(&f.json, "json", false, "wait, and print the result with the output as JSON")
	fl.StringVar(&f.maxOutput, "max-output", "", "with --json: bytes kept per stream (default 10000000)")
	return cmd
}

// add adds the options that exec and shell have in common.
func (f *execFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVarP(&f.env, "env", "e", nil, "set an environment variable, `NAME=VALUE`, or NAME to pass on this one's value (repeatable)")
	fl.StringVarP(&f.workdir, "workdir", "w", "", "working directory (default: the sandbox's)")
	fl.StringVarP(&f.user, "user", "u", "", "user name or uid, optionally :group (default: the sandbox's)")
}

func (a *App) shellCommand() *cobra.Command {
	f := execFlags{stdin: true, tty: true}
	cmd := &cobra.Command{
		Use:   "shell SANDBOX",
		Short: "Open a shell in a sandbox of the server",
		Long: `Open a login shell with a terminal in a sandbox of the server, the best that its image
has. It ends when you leave it, and five seconds after agentbox was killed. A shell in
a fresh sandbox that is gone afterwards is agentbox run -it.`,
		Example:           "  agentbox shell dev\n  agentbox shell --user root dev",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := f.base()
			if err != nil {
				return err
			}
			w.Command = loginShell
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			return a.exec(cmd.Context(), r, args[0], &f, w)
		},
	}
	f.add(cmd)
	return cmd
}

// loginShell: the shell that runs it is the best that the image has.
const loginShell = `exec "${0:-sh}" -l`

// base is the request but for the command.
func (f *execFlags) base() (*execWish, error) {
	env, err := variables(f.env)
	if err != nil {
		return nil, err
	}
	return &execWish{Env: env, Workdir: f.workdir, User: f.user, Session: f.session, MaxOutput: f.maxOutput}, nil
}

// wish is the request of exec.
func (f *execFlags) wish(cmd *cobra.Command, args []string) (*execWish, error) {
	switch argv := args[1:]; {
	case len(argv) == 0:
		return nil, fmt.Errorf("no command: agentbox exec %s -- COMMAND, or agentbox shell %s", args[0], args[0])
	case cmd.ArgsLenAtDash() != 1:
		return nil, fmt.Errorf("put -- before the command: agentbox exec %s -- %s", args[0], strings.Join(argv, " "))
	case cmd.Flags().Changed("timeout") && f.timeout < time.Millisecond || f.timeout > sandbox.MaxTimeout:
		return nil, &sandbox.InvalidError{Field: "timeout", Value: f.timeout.String(), Allowed: "1ms to " + sandbox.MaxTimeout.String()}
	case f.tty && (f.json || f.detach):
		return nil, errors.New("--tty excludes --json and --detach")
	case f.json && f.detach:
		return nil, errors.New("--json and --detach exclude each other")
	case f.session != "" && (f.tty || f.stdin || f.detach):
		return nil, errors.New("--session excludes --interactive, --tty and --detach")
	case f.maxOutput != "" && !f.json:
		return nil, errors.New("--max-output needs --json: without it all output is passed on")
	}
	w, err := f.base()
	if err != nil {
		return nil, err
	}
	w.Command = args[1:]
	if f.session != "" {
		w.Command = commandLine(args[1:])
	}
	if f.timeout != 0 {
		w.Timeout = f.timeout.String()
	}
	return w, nil
}

// commandLine is what a shell runs as the program and arguments; one argument is
// a command line already.
func commandLine(argv []string) string {
	if len(argv) == 1 {
		return argv[0]
	}
	quoted := make([]string, len(argv))
	for i, s := range argv {
		quoted[i] = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// exec runs a command; its status is an error, if it is not 0.
func (a *App) exec(ctx context.Context, r *remote, box string, f *execFlags, w *execWish) error {
	switch {
	case f.tty:
		return a.execOnTerminal(ctx, r, box, f, w)
	case !f.json && !f.detach:
		return a.follow(ctx, r, box, f, w)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if f.stdin {
		if err := a.wholeInput(w); err != nil {
			return err
		}
	}
	if f.detach {
		return a.orInterrupted(ctx, a.execDetached(ctx, r, box, w))
	}
	return a.orInterrupted(ctx, a.execToJSON(ctx, r, box, w))
}

// execution is the request that runs a command. It is sent once: a command must not
// run twice, and what became of one whose answer was lost is for its user to see.
func execution(box, route string, w *execWish) request {
	return request{method: http.MethodPost, path: inSandbox(box) + "/" + route, in: w, look: "agentbox execs " + box}
}

// wholeInput makes standard input a part of the request.
func (a *App) wholeInput(w *execWish) (err error) {
	if w.Stdin, err = io.ReadAll(io.LimitReader(a.Stdin, maxStdin+1)); err != nil {
		return fmt.Errorf("read the input: %w", err)
	}
	if len(w.Stdin) > maxStdin {
		return fmt.Errorf("with --json and --detach the input has %d bytes at most", maxStdin)
	}
	return nil
}

func (a *App) execDetached(ctx context.Context, r *remote, box string, w *execWish) error {
	w.Detach = true
	var e execEnd
	if err := r.callWith(ctx, execution(box, "execute", w), &e); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.Stdout, visible(e.ExecID))
	return err
}

func (a *App) execToJSON(ctx context.Context, r *remote, box string, w *execWish) error {
	w.OnDisconnect = killNow
	var result json.RawMessage
	q := execution(box, "execute", w)
	q.most = mostOf(w.MaxOutput)
	if err := r.callWith(ctx, q, &result); err != nil {
		return err
	}
	if err := a.printJSON(result); err != nil {
		return err
	}
	var e execEnd
	if err := json.Unmarshal(result, &e); err != nil {
		return fmt.Errorf("read the answer of %s: %w", r.where, err)
	}
	return e.status()
}

// mostOf bounds a result whose command may say so much on each stream. The server
// writes all of it twice, and a byte as up to six: \u001b.
func mostOf(maxOutput string) int64 {
	const streams, times, escaped, rest = 2, 2, 6, 1 << 20
	n, err := sandbox.ParseSize("max_output", maxOutput)
	if err != nil || n <= 0 || n > sandbox.MaxMaxOutput { // the server's own, or it refuses it
		n = sandbox.MaxMaxOutput
	}
	return streams*times*escaped*n + rest
}

// execEnd is how a command ended, as the server tells it.
type execEnd struct {
	ExecID    string  `json:"exec_id"`
	ExitCode  *int    `json:"exit_code"` // nil: not known, Reason says why
	TimedOut  bool    `json:"timed_out"`
	OOMKilled bool    `json:"oom_killed"`
	Reason    string  `json:"reason"`
	Duration  float64 `json:"duration"`
}

// status is the exit status as an error; nil for 0.
func (e *execEnd) status() error {
	switch {
	case e.TimedOut:
		return exitStatus(exitTimeout)
	case e.ExitCode == nil:
		return exitStatus(ExitFailure)
	case *e.ExitCode != 0:
		return exitStatus(*e.ExitCode)
	}
	return nil
}

// ended says how a command ended where the status alone would puzzle.
func (a *App) ended(e *execEnd) error {
	switch {
	case e.TimedOut:
		took := time.Duration(e.Duration * float64(time.Second)).Round(time.Millisecond)
		fmt.Fprintf(a.Stderr, "agentbox: the command was ended after %v (its time limit)\n", took)
	case e.OOMKilled:
		fmt.Fprintf(a.Stderr, "agentbox: %s (the sandbox's memory limit)\n", visible(e.Reason))
	case e.ExitCode == nil:
		fmt.Fprintf(a.Stderr, "agentbox: how the command ended is not known: %s\n", visible(e.Reason))
	}
	return e.status()
}
