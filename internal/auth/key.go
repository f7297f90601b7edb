// Package auth says who may come in: API keys and their owners, the local
// socket's user, and which web pages a browser may speak for.
package auth

import (
	"crypto/sha256"
	"strings"
	"time"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

const (
	// Prefix begins every key that is made, so that scanners for leaked secrets
	// can know one.
	Prefix = "abx_"
	// altPrefix is taken in place of Prefix: clients written for another
	// service refuse keys that don't begin with it.
	altPrefix = "e2b_"
	// secretBytes of randomness are in a key: 160 bits are not to be guessed.
	secretBytes = 20
	// maxKeyName is the longest name of a key, in bytes.
	maxKeyName = 64
)

// Hash is the SHA-256 of a key's secret digits. The digits have 160 random
// bits, so that neither salt nor a slow hash would add anything.
type Hash [sha256.Size]byte

// Key is an API key as it is kept: without its secret.
type Key struct {
	// ID names the key in lists, logs and audit records.
	ID string
	// Owner is whose things the key reaches.
	Owner string
	// Name is the user's word for it; may be empty.
	Name string
	// Admin keys may do what concerns the whole service.
	Admin bool
	// Hash finds the key.
	Hash Hash
	// CreatedAt and RevokedAt are UTC; a key that is good has no RevokedAt.
	CreatedAt, RevokedAt time.Time
}

// Revoked reports whether the key lets nobody in any more.
func (k *Key) Revoked() bool { return !k.RevokedAt.IsZero() }

func (k *Key) caller() sandbox.Caller {
	return sandbox.Caller{Owner: k.Owner, KeyID: k.ID, Admin: k.Admin}
}

// newSecret makes a key's secret as the user gets it, and its hash.
func newSecret() (secret string, hash Hash) {
	digits := ids.Hex(secretBytes)
	return Prefix + digits, sha256.Sum256([]byte(digits))
}

// hashOf gives the hash of what a client sent, if it has the form of a key.
func hashOf(secret string) (Hash, bool) {
	digits, ok := strings.CutPrefix(secret, Prefix)
	if !ok {
		digits, ok = strings.CutPrefix(secret, altPrefix)
	}
	if !ok || len(digits) != 2*secretBytes || strings.Trim(digits, "0123456789abcdef") != "" {
		return Hash{}, false
	}
	return sha256.Sum256([]byte(digits)), true
}
