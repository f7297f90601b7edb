package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest/client"
	"agentbox/internal/live"
	"agentbox/internal/sandbox"
)

// execIDLen is the random bytes in the id of a command, keyLen the digits that
// stand for a key or a command in the id of a repeatable one.
const (
	execIDLen = 10
	keyLen    = 24
)

// startOnce starts a command unless the same request did so before, and follows
// it from its beginning then. The id of the command says of which request it is,
// so that the sandbox itself remembers, over restarts of the daemon, too. Another
// command with the same key is a *sandbox.ReplayError.
func startOnce(ctx context.Context, l *live.Box, key string, cmd sandbox.Command, out client.Output) (p *client.Process, again bool, err error) {
	if err := sandbox.CheckIdempotencyKey(key); err != nil {
		return nil, false, err
	}
	prefix := "k" + digits(key) + "-"
	id := prefix + digits(fmt.Sprintf("%#v", cmd)) // strings may have any bytes
	before, err := l.Session().Execs(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, e := range before {
		if strings.HasPrefix(e.ID, prefix) && e.ID != id {
			return nil, false, &sandbox.ReplayError{}
		}
		again = again || e.ID == id
	}
	if !again {
		p, err = l.Start(ctx, id, cmd, out)
		if !errdefs.IsAlreadyExists(err) {
			return p, false, err
		}
	}
	p, err = l.Session().Attach(ctx, id, 0, 0, out)
	return p, true, err
}

func digits(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:keyLen]
}
