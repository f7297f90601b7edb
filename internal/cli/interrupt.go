package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted: " + i.signal.String() }

// untilSignal ends what is under way at a signal, so that the deferred clean-up
// runs.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case s := <-signals:
			cancel(interrupted{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// orInterrupted makes the conventional status of a program that a signal ended,
// unless the command had the time to end with its own.
func (a *App) orInterrupted(ctx context.Context, err error) error {
	var by interrupted
	var own exitStatus
	if err != nil && !errors.As(err, &own) && errors.As(context.Cause(ctx), &by) {
		return exitStatus(128 + int(by.signal))
	}
	return err
}
