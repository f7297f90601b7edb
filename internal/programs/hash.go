//go:build !embed

package programs

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
)

// hashLen is the number of hex digits that name a build: 64 bits, enough to tell
// builds apart, short enough for the paths of sockets.
const hashLen = 16

func contentHash(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLen], nil
}
