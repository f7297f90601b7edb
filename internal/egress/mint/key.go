package mint

import (
	"fmt"

	"agentbox/internal/keyfile"
)

// Open reads the secret from a file, which is made with mode 0600 when it is not
// there. Whoever has it can make certificates that this daemon's sandboxes trust.
func Open(path string) (*Mint, error) {
	key, err := keyfile.Open(path, "sandboxes get other authorities when they start anew")
	if err != nil {
		return nil, fmt.Errorf("open the key of interception: %w", err)
	}
	return New(key), nil
}
