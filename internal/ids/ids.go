// Package ids makes the names that agentbox gives to things.
package ids

import (
	"crypto/rand"
	"encoding/hex"
)

// UIDLen is the length of a UID.
const UIDLen = 64

// UID returns a sandbox's primary key: UIDLen hex digits. It is random and of fixed
// length because runtimes match ids by prefix.
func UID() string { return Hex(UIDLen / 2) }

// ShortLen is the length of the short form of a UID.
const ShortLen = 12

// Short is the short form of a UID: its first 12 digits.
func Short(uid string) string {
	if len(uid) < ShortLen {
		return uid
	}
	return uid[:ShortLen]
}

// IsUID reports whether s has the form of a UID.
func IsUID(s string) bool {
	if len(s) != UIDLen {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Hex returns n random bytes as 2n hex digits.
func Hex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

// UUID returns a random UUID in its text form: version 4 of RFC 9562.
func UUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
