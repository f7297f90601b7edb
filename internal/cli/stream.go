package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
	"github.com/containerd/errdefs"
)

// exec runs the command with this process's streams and terminal.
func (r *runner) exec(ctx context.Context, sb *local.Sandbox, cmd sandbox.Command) (*sandbox.Result, error) {
	var out client.Output // nothing: captured for the verdict
	if !r.flags.json {
		out = client.Output{Stdout: r.app.Stdout, Stderr: r.app.Stderr}
	}
	restore := func() {}
	if cmd.TTY {
		cmd.Cols, cmd.Rows = terminalSize(r.app.Stdin)
		cmd.Env = append(cmd.Env, termEnv()...)
		if cmd.Stdin {
			_, restore = makeRaw(r.app.Stdin)
		}
	}
	defer restore()
	p, err := sb.Start(ctx, cmd, out)
	if err != nil {
		return nil, err
	}
	if cmd.Stdin {
		go func() {
			in := p.Stdin()
			_, _ = io.Copy(in, r.app.Stdin) // a command that ended takes no more
			_ = in.Close()
		}()
	}
	if cmd.TTY {
		stop := r.watchSize(ctx, p)
		defer stop()
	}
	ctx, stop := r.orderly(ctx, sb, p)
	defer stop()
	res, err := sb.Wait(ctx, p)
	return res, r.explainUser(err)
}

// explainUser tells where the user came from that the sandbox does not have.
func (r *runner) explainUser(err error) error {
	switch {
	case !errdefs.IsNotFound(err):
		return err
	case r.flags.user == "":
		return fmt.Errorf("%w: it is the image's, --user names another", err)
	}
	bad := &sandbox.InvalidError{Field: "user", Value: r.flags.user, Allowed: "a name that the image knows, or a number, optionally with :group"}
	return fmt.Errorf("%w: %w\n(agentbox run %s -- cat /etc/passwd /etc/group shows the names that there are)", bad, err, r.image)
}

// termEnv passes the kind of terminal on, so that colours and keys are right.
func termEnv() []string {
	if t := os.Getenv("TERM"); t != "" {
		return []string{"TERM=" + t}
	}
	return nil
}

// watchSize passes changes of the terminal's size on until stop is called.
func (r *runner) watchSize(ctx context.Context, p *client.Process) (stop func()) {
	return watchTerminal(ctx, func() {
		if cols, rows := terminalSize(r.app.Stdin); cols > 0 {
			_ = p.Resize(cols, rows) // the next change tries again
		}
	})
}
