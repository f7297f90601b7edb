package sandbox

import (
	"errors"
	"time"
)

// Admission is a new sandbox on its way into the store, with what must hold when
// it gets in.
type Admission struct {
	Sandbox Sandbox
	// MaxTotal and MaxOwner are how many sandboxes there may be, of all owners
	// and of this one, the new one included.
	MaxTotal, MaxOwner int
	// Key makes the request repeatable; Request is the hash of what was asked
	// for. Without a key there is no repeating.
	Key     string
	Request []byte
}

// KeepIdempotency is how long a key of a repeatable request is remembered.
const KeepIdempotency = 24 * time.Hour

// MaxIdempotencyKey is the longest key, in bytes.
const MaxIdempotencyKey = 255

// ErrDrawAgain says that an id which was drawn is in use.
var ErrDrawAgain = errors.New("the id that was drawn is in use")
