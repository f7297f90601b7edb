package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/term"

	"agentbox/internal/guest/client"
	"agentbox/internal/local"
	"agentbox/internal/sandbox"
)

// exec runs the command with this process's streams and terminal.
func (r *runner) exec(ctx context.Context, sb *local.Sandbox, cmd sandbox.Command) (*sandbox.Result, error) {
	var out client.Output // nothing: captured for the verdict
	if !r.flags.json {
		out = client.Output{Stdout: r.app.Stdout, Stderr: r.app.Stderr}
	}
	restore := func() {}
	if cmd.TTY {
		cmd.Cols, cmd.Rows = r.size()
		cmd.Env = append(cmd.Env, termEnv()...)
		if cmd.Stdin {
			restore = r.raw()
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
	return fmt.Errorf("%w: %w", bad, err)
}

// termEnv passes the kind of terminal on, so that colours and keys are right.
func termEnv() []string {
	if t := os.Getenv("TERM"); t != "" {
		return []string{"TERM=" + t}
	}
	return nil
}

// raw hands every key to the sandbox.
func (r *runner) raw() (restore func()) {
	fd := int(r.app.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return func() {}
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return func() {}
	}
	return func() { _ = term.Restore(fd, old) }
}

// size of the terminal; 0, 0 where there is none, which means the default.
func (r *runner) size() (cols, rows uint16) {
	w, h, err := term.GetSize(int(r.app.Stdin.Fd()))
	if err != nil || w <= 0 || h <= 0 || w > 1<<15 || h > 1<<15 {
		return 0, 0
	}
	return uint16(w), uint16(h)
}

// watchSize passes changes of the terminal's size on until stop is called.
func (r *runner) watchSize(ctx context.Context, p *client.Process) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-changed:
				if cols, rows := r.size(); cols > 0 {
					_ = p.Resize(cols, rows) // the next change tries again
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { signal.Stop(changed); cancel() }
}
