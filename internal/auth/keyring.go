package auth

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// Keys is where keys are kept. Errors have classes of errdefs.
type Keys interface {
	// AddKey stores a new key; it is safe on disk when AddKey returns. AlreadyExists
	// for an id that is there.
	AddKey(ctx context.Context, k Key) error
	// KeyByHash finds a key, also a revoked one; NotFound if there is none.
	KeyByHash(ctx context.Context, h Hash) (Key, error)
	// ListKeys gives all keys, oldest first.
	ListKeys(ctx context.Context) ([]Key, error)
	// RevokeKey sets RevokedAt, once: of a revoked key the first time stays.
	// NotFound if there is no such key.
	RevokeKey(ctx context.Context, id string, at time.Time) (Key, error)
}

// Keyring makes, finds and revokes keys.
type Keyring struct {
	keys    Keys
	holders holders
}

// NewKeyring returns the keyring of a store.
func NewKeyring(keys Keys) *Keyring {
	return &Keyring{keys: keys, holders: holders{byKey: map[string]map[*holder]struct{}{}, revoked: map[string]bool{}}}
}

// Create makes a key. The secret is shown to its user now or never: it can't be
// had again.
func (r *Keyring) Create(ctx context.Context, owner, name string, admin bool) (k Key, secret string, err error) {
	return r.CreateOnce(ctx, ids.Hex(keyDigits/2), owner, name, admin)
}

// keyDigits are the random hex digits in a key's id.
const keyDigits = 12

// CreateOnce is Create for a request that may come again: the first digits of made,
// at least 12 random ones, name the key. If it was made before, that key is returned,
// and there is no secret.
func (r *Keyring) CreateOnce(ctx context.Context, made, owner, name string, admin bool) (k Key, secret string, err error) {
	if err := sandbox.CheckOwner(owner); err != nil {
		return k, "", err
	}
	if !isKeyName(name) {
		return k, "", &sandbox.InvalidError{Field: "name", Value: name, Allowed: fmt.Sprintf("up to %d printable ASCII characters", maxKeyName)}
	}
	secret, hash := newSecret()
	k = Key{ID: "key_" + made[:keyDigits], Owner: owner, Name: name, Admin: admin, Hash: hash, CreatedAt: time.Now().UTC()}
	err = r.keys.AddKey(ctx, k)
	switch {
	case errdefs.IsAlreadyExists(err):
		k, err = r.byID(ctx, k.ID)
		return k, "", err
	case err != nil:
		return Key{}, "", fmt.Errorf("store the key: %w", err)
	}
	return k, secret, nil
}

func (r *Keyring) byID(ctx context.Context, id string) (Key, error) {
	all, err := r.List(ctx)
	for _, k := range all {
		if k.ID == id {
			return k, nil
		}
	}
	return Key{}, errors.Join(err, fmt.Errorf("find key %s: %w", id, errdefs.ErrNotFound))
}

// First makes an admin key of the default owner if there is no key at all; else
// the secret is empty.
func (r *Keyring) First(ctx context.Context) (secret string, err error) {
	all, err := r.List(ctx)
	if err != nil || len(all) > 0 {
		return "", err
	}
	_, secret, err = r.Create(ctx, sandbox.DefaultOwner, "first", true)
	return secret, err
}

// List gives all keys, revoked ones too, oldest first.
func (r *Keyring) List(ctx context.Context) ([]Key, error) {
	all, err := r.keys.ListKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the keys: %w", err)
	}
	return all, nil
}

// Revoke makes a key let nobody in, from the next request on, and ends what goes on
// by it. Doing it again changes nothing.
func (r *Keyring) Revoke(ctx context.Context, id string) (Key, error) {
	k, err := r.keys.RevokeKey(ctx, id, time.Now().UTC())
	if err != nil {
		return k, fmt.Errorf("revoke the key: %w", err)
	}
	r.holders.end(k.ID)
	return k, nil
}

// errWrongKey is the same for every key that does not let in: nobody learns
// which of his guesses was a key once.
var errWrongKey = unauthenticated("the API key is not valid")

// find gives the key that belongs to a secret, if it is good.
func (r *Keyring) find(ctx context.Context, secret string) (Key, error) {
	hash, ok := hashOf(secret)
	if !ok {
		return Key{}, errWrongKey
	}
	k, err := r.keys.KeyByHash(ctx, hash)
	switch {
	case errdefs.IsNotFound(err):
		return Key{}, errWrongKey
	case err != nil:
		return Key{}, fmt.Errorf("look the API key up: %w: %w", errdefs.ErrUnavailable, err)
	case subtle.ConstantTimeCompare(k.Hash[:], hash[:]) != 1 || k.Revoked():
		return Key{}, errWrongKey
	}
	return k, nil
}

func isKeyName(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(s) <= maxKeyName
}
