package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// execRow is a command as the server describes it.
type execRow struct {
	ExecID  string    `json:"exec_id"`
	State   string    `json:"state"`
	Command []string  `json:"command"`
	User    string    `json:"user"`
	Started time.Time `json:"started_at"`
	Stdout  kept      `json:"stdout"`
	Stderr  kept      `json:"stderr"`
	Result  *execEnd  `json:"result"`
}

// kept is the part of an output that is still there, in offsets.
type kept struct{ First, End int64 }

// outcome is how it ended, for people.
func (e *execRow) outcome() string {
	switch r := e.Result; {
	case r == nil:
		return ""
	case r.TimedOut:
		return "timed out"
	case r.OOMKilled:
		return "out of memory"
	case r.ExitCode == nil:
		return "unknown"
	default:
		return strconv.Itoa(*r.ExitCode)
	}
}

func (a *App) execsCommand() *cobra.Command {
	var o listFlags
	cmd := &cobra.Command{
		Use:   "execs SANDBOX",
		Short: "List the commands of a sandbox of the server",
		Long: `List the commands of a sandbox that run and those that ended in the last hour, oldest
first. agentbox logs shows their output, agentbox kill ends them.`,
		Example:           "  agentbox execs dev",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listed(a, cmd, &o, inSandbox(args[0], "execs"), url.Values{}, func(e *execRow) string { return e.ExecID },
				[]string{"ID", "STATE", "EXIT", "USER", "STARTED", "COMMAND"}, func(e *execRow) []string {
					return []string{e.ExecID, e.State, e.outcome(), e.User, ago(e.Started), clip(strings.Join(e.Command, " "), maxCell)}
				})
		},
	}
	o.add(cmd)
	return cmd
}

// maxCell bounds a text in a table, in bytes.
const maxCell = 60

type logsFlags struct {
	follow, stdout, stderr bool
	offset                 int64
}

func (a *App) logsCommand() *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs SANDBOX EXEC",
		Short: "Show the output of a command in a sandbox of the server",
		Long: `Show what the server still has of the output of a command, by the id that agentbox
exec --detach printed or agentbox execs lists: the last 4 MiB of each stream unless
the server says otherwise, until an hour after its end. Standard output and error go
where they belong. With --follow it goes on until the command's end.`,
		Example: `  agentbox logs dev 5c1f4e22a0b9d7e1
  agentbox logs -f --stdout dev 5c1f4e22a0b9d7e1`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.remote(cmd)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.orInterrupted(ctx, a.logs(ctx, r, args[0], args[1], &f, cmd.Flags().Changed("offset")))
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.BoolVarP(&f.follow, "follow", "f", false, "go on until the command's end")
	fl.BoolVar(&f.stdout, "stdout", false, "standard output only")
	fl.BoolVar(&f.stderr, "stderr", false, "standard error only")
	fl.Int64Var(&f.offset, "offset", 0, "begin at this byte of the stream; needs --stdout or --stderr")
	cmd.MarkFlagsMutuallyExclusive("stdout", "stderr")
	return cmd
}

// only is the stream that is wanted; empty: both.
func (f *logsFlags) only() string {
	switch {
	case f.stdout:
		return streamNames[0]
	case f.stderr:
		return streamNames[1]
	}
	return ""
}

func (a *App) logs(ctx context.Context, r *remote, box, execID string, f *logsFlags, from bool) error {
	if from && !f.stdout && !f.stderr {
		return errors.New("--offset is a place in one stream: add --stdout or --stderr")
	}
	var e execRow
	if err := r.call(ctx, http.MethodGet, inSandbox(box, "execs", execID), nil, &e); err != nil {
		return err
	}
	begin := [2]int64{e.Stdout.First, e.Stderr.First}
	if from {
		begin = [2]int64{f.offset, f.offset}
	} else {
		a.warnGone(streamWords[0], begin[0], !f.stderr)
		a.warnGone(streamWords[1], begin[1], !f.stdout)
	}
	if f.follow {
		o := &output{app: a, r: r, box: box, only: f.only(), last: fmt.Sprintf("%d-%d", begin[0], begin[1])}
		return a.followLogs(ctx, o, execID, from)
	}
	for i, to := range [2]io.Writer{a.Stdout, a.Stderr} {
		if only := f.only(); only != "" && only != streamNames[i] {
			continue
		}
		q := url.Values{"stream": {streamNames[i]}}
		resp, err := r.kept(ctx, inSandbox(box, "execs", execID, "output"), q, begin[i], func(lost int64) bool {
			if !from { // where the user said to begin, that must be there
				a.warn(fmt.Errorf("%d bytes of %s are not there any more", lost, streamWords[i]))
			}
			return !from
		})
		if err != nil {
			return err
		}
		_, err = io.Copy(to, resp.Body)
		resp.Body.Close()
		if err != nil {
			return fmt.Errorf("read the output: %w", err)
		}
	}
	if e.Result != nil && e.Result.ExitCode == nil {
		_ = a.ended(e.Result) // it says why; the output was shown, which is success
	}
	return nil
}

// kept asks for output from an offset on. Where a command says more than is kept,
// that may have been dropped meanwhile: then, if pass allows it, for what is left.
func (r *remote) kept(ctx context.Context, path string, q url.Values, offset int64, pass func(lost int64) bool) (*http.Response, error) {
	for n := 0; ; n++ {
		q.Set("offset", strconv.FormatInt(offset, 10))
		resp, err := r.send(ctx, http.MethodGet, path+"?"+q.Encode(), nil)
		first, lost := firstLeft(err, offset)
		if !lost || n == maxLost || !pass(first-offset) {
			return resp, err
		}
		offset = first
	}
}

func (a *App) warnGone(stream string, bytes int64, wanted bool) {
	if bytes > 0 && wanted {
		a.warn(fmt.Errorf("the first %d bytes of %s are not there any more", bytes, stream))
	}
}

// followLogs shows output as it comes, also from a server that was away. Where the
// user said to begin, that must be there.
func (a *App) followLogs(ctx context.Context, o *output, execID string, from bool) error {
	take := func(e event) (bool, error) {
		_, err := o.show(e)
		return e.name == "exit", err
	}
	err := o.r.events(ctx, o.request(execID), take)
	if from && isLost(err) {
		return err
	}
	return o.again(ctx, execID, err, take)
}

func (a *App) killCommand() *cobra.Command {
	var name string
	var tree bool
	cmd := &cobra.Command{
		Use:   "kill SANDBOX EXEC...",
		Short: "Send a signal to commands in a sandbox of the server",
		Long: `Send a signal to commands, by the ids that agentbox execs lists: SIGKILL, to the command
and all that it started, or the signal that --signal names, to the command alone.`,
		Example: `  agentbox kill dev 5c1f4e22a0b9d7e1
  agentbox kill --signal HUP dev 5c1f4e22a0b9d7e1`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completeExecs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("signal") {
				tree = true
			}
			return a.each(cmd, args[1:], func(r *remote, id string) error {
				return r.signal(cmd.Context(), args[0], id, name, tree)
			})
		},
	}
	cmd.Flags().StringVarP(&name, "signal", "s", "KILL", "signal, by its name or number")
	cmd.Flags().BoolVar(&tree, "tree", false, "also to all that the command started")
	return cmd
}
