package token

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

const (
	// MinKey is the length of the shortest signing key in bytes. A shorter one can
	// be found by trying.
	MinKey = 16
	// keyBytes are the random bytes of a generated key: as many as SHA-256 has.
	keyBytes = 32
	// maxKeys bounds the keys that are in force at once.
	maxKeys = 8
)

// GenerateKey makes a signing key: 32 random bytes as 64 hexadecimal digits. The
// digits are the key.
func GenerateKey() string {
	b := make([]byte, keyBytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Keys are the signing keys that are in force: the newest signs, all verify. Any
// number of goroutines may use them.
type Keys struct {
	mu  sync.Mutex
	all []key // the newest last
}

type key struct {
	secret []byte
	until  time.Time // zero: it is the newest
}

// NewKeys takes the bytes of the text as the key. A key that is shorter than
// MinKey is an error.
func NewKeys(secret string) (*Keys, error) {
	k := new(Keys)
	if err := k.Rotate(secret, 0); err != nil {
		return nil, err
	}
	return k, nil
}

// Rotate signs with a new key from now on. Tokens of the key before stay valid
// for the overlap, which should be as long as the longest life of a token. Of keys
// that were changed more often than maxKeys meanwhile the oldest end now.
func (k *Keys) Rotate(secret string, overlap time.Duration) error {
	if len(secret) < MinKey {
		return fmt.Errorf("the signing key has %d bytes; it needs %d or more, such as the 64 digits of `openssl rand -hex 32`", len(secret), MinKey)
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []key
	for i, old := range k.all {
		if i == len(k.all)-1 {
			old.until = now.Add(overlap)
		}
		if now.Before(old.until) && string(old.secret) != secret { // it may come back
			all = append(all, old)
		}
	}
	if extra := len(all) + 1 - maxKeys; extra > 0 {
		all = all[extra:] // the oldest, whose tokens end soonest
	}
	k.all = append(all, key{secret: []byte(secret)})
	return nil
}

func (k *Keys) newest() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[len(k.all)-1].secret
}

// signed reports whether one of the keys made the signature.
func (k *Keys) signed(text string, signature []byte) bool {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	ok := false
	for _, one := range k.all {
		if !one.until.IsZero() && !now.Before(one.until) {
			continue
		}
		// All are tried, so that the time says nothing of which one it was.
		ok = hmac.Equal(sign(one.secret, text), signature) || ok
	}
	return ok
}
