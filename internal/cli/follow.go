package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// following is a command that this process shows the output of.
type following struct {
	output
	in *pump // nil: no input
	// inSession: the command is its shell's, and goes when nobody follows it.
	inSession bool

	mu      sync.Mutex
	execID  string
	started bool
}

const (
	// killWithin is how long killing a command may take on the way out.
	killWithin = 5 * time.Second
	// patience is how many signals to end a command takes before it is killed.
	patience = 3
)

// follow runs a command and shows its output.
func (a *App) follow(ctx context.Context, r *remote, box string, f *execFlags, w *execWish) error {
	fo := &following{output: output{app: a, r: r, box: box}, inSession: f.session != ""}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.OnDisconnect = killNow
	if f.stdin {
		w.OpenStdin = true
		fo.in = &pump{r: r, in: a.Stdin, fail: cancel}
	}
	stop := fo.passSignals(ctx, cancel)
	defer stop()
	q := execution(box, "execute/stream?encoding=base64", w)
	err := r.events(ctx, q, func(e event) (bool, error) { return fo.take(ctx, e) })
	if fo.id() != "" {
		err = fo.resume(ctx, err)
	}
	switch {
	case goesOn(err) && ctx.Err() != nil:
		err = context.Cause(ctx)
	case goesOn(err):
		err = fmt.Errorf("follow the command: %w\n(%s)", err, maybeDone(q.look))
	}
	return a.orInterrupted(ctx, err)
}

func (f *following) id() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.execID
}

// take handles one event; done is the last.
func (f *following) take(ctx context.Context, e event) (done bool, err error) {
	d, err := f.show(e)
	switch {
	case err != nil:
		return false, err
	case e.name == "start":
		f.begin(ctx, d.ExecID)
	case e.name == "exit":
		return true, f.app.ended(&d.execEnd)
	}
	return false, nil
}

func (f *following) begin(ctx context.Context, execID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.inSession {
		f.execID = execID
	}
	if f.in != nil && !f.started {
		f.in.path = inSandbox(f.box, "execs", execID, "stdin")
		go f.in.run(ctx)
	}
	f.started = true
}

// resume goes on with a command whose server went away, if it comes back.
func (f *following) resume(ctx context.Context, err error) error {
	if goesOn(err) && ctx.Err() == nil {
		fmt.Fprintf(f.app.Stderr, "agentbox: %s; waiting for it to come back\n", visible(err.Error()))
	}
	err = f.again(ctx, f.id(), err, func(e event) (bool, error) { return f.take(ctx, e) })
	if isAway(err) {
		return fmt.Errorf("the server went away and the command may go on; then its output is in: agentbox logs -f %s %s", f.box, f.id())
	}
	return err
}

// passSignals gives the command the signals that this process gets.
func (f *following) passSignals(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for n := 0; ; {
			select {
			case s := <-signals:
				if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP {
					n++
				}
				f.passSignal(ctx, cancel, s.(syscall.Signal), n)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { signal.Stop(signals) }
}

// passSignal passes on a signal, the nth that should end the command.
func (f *following) passSignal(ctx context.Context, cancel context.CancelCauseFunc, s syscall.Signal, n int) {
	id := f.id()
	if id == "" {
		cancel(interrupted{s}) // the server ends what it was about to start
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), killWithin)
	defer done()
	last := n >= patience
	name := unix.SignalName(s)
	if last {
		name = "KILL"
	}
	err := f.r.signal(ctx, f.box, id, name, last || s == syscall.SIGINT || s == syscall.SIGQUIT)
	switch {
	case last && err != nil:
		cancel(interrupted{s})
	case last: // its end comes, unless nothing comes any more
		time.AfterFunc(killWithin, func() { cancel(interrupted{s}) })
	case err != nil:
		f.app.warn(fmt.Errorf("pass on %s: %w", name, err))
	}
	if n == patience-1 {
		fmt.Fprintf(f.app.Stderr, "agentbox: the next %s kills the command\n", unix.SignalName(s))
	}
}

// signal sends a signal to a command, or to all that it started.
func (r *remote) signal(ctx context.Context, box, execID, name string, tree bool) error {
	body := map[string]any{"signal": name, "tree": tree}
	return r.call(ctx, http.MethodPost, inSandbox(box, "execs", execID, "signal"), body, nil)
}
