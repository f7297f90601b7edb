package sandbox

import "time"

// Repeatable is a request that a caller may send again with the same key: it is
// done once, and answered with what it was answered with first.
type Repeatable struct {
	Owner, Key string
	// Request is the hash of what was asked for.
	Request []byte
	// Made names what the request makes, if that is known before it is done.
	Made    string
	Created time.Time
	Begun   bool // Made is there, or was
	// Answer is empty until the request is done, and if it is too long to keep.
	Answer []byte
}

// MaxAnswer is the longest answer that is kept for repeated requests, in bytes.
const MaxAnswer = 64 * KiB

// Once makes a request repeatable. The zero value is a request that is not.
type Once struct {
	Key     string // of the caller's choice
	Request string // what tells it from other requests
}

// Try is a repeatable request that is being done, for the first time or again
// because the daemon ended in the middle.
type Try struct {
	// Made is an id for what it makes, TryIDLen random hex digits: the same each time.
	Made string
	// Begin is called before what must not be done twice. If it fails, the request
	// must not go on.
	Begin func() error
}

// TryIDLen is the length of [Try.Made].
const TryIDLen = 32

// In is the same request in one sandbox.
func (o Once) In(uid string) Once { return Once{o.Key, uid + " " + o.Request} }
