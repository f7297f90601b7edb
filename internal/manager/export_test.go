package manager

import (
	"context"
	"io"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// Impatient makes changes of limits wait hardly at all for the agent.
func Impatient(t *testing.T) {
	before := resizeTimeout
	resizeTimeout = 100 * time.Millisecond
	t.Cleanup(func() { resizeTimeout = before })
}

// Reencode reads a cursor and writes it again.
func Reencode(cursor string) (string, error) {
	p, err := parseCursor(cursor)
	if err != nil {
		return "", err
	}
	return p.cursor(), nil
}

// Exec runs a command to its end with the given input, nil for none. When ctx
// ends first, the command runs on to its own end or its time limit and its result
// is kept; the error is that of ctx. The key is that of StartExec.
func (m *Manager) Exec(ctx context.Context, c sandbox.Caller, id string, cmd sandbox.Command, stdin io.Reader, key string) (*sandbox.Result, error) {
	cmd.Stdin, cmd.OnDisconnect = stdin != nil, sandbox.Keep
	e, err := m.StartExec(ctx, c, id, cmd, client.Output{}, key)
	if err != nil {
		return nil, err
	}
	if stdin != nil && !e.again {
		go e.feed(stdin)
	}
	res, err := e.Wait(ctx)
	if ctx.Err() != nil && res == nil {
		_ = e.Detach() // Keep says the same, should this not arrive
	}
	return res, err
}

// feed copies input; a command that does not want it all is no error.
func (e *Exec) feed(r io.Reader) {
	w := e.Stdin()
	_, _ = io.Copy(w, r)
	_ = w.Close()
}
