package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/keyfile"
	"agentbox/internal/sandbox"
)

const (
	masterLen = 32 // bytes of a master key
	maxKeys   = 8  // in a key file
)

// master is a key of AES-256-GCM.
type master struct{ aead cipher.AEAD }

func newMaster(key []byte) (*master, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	// Each value has a nonce of its own: 96 random bits are good for 2^32 values.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &master{aead}, nil
}

// sealVersion begins what is sealed.
const sealVersion = 1

// bound is what a value is encrypted together with: under another owner, name,
// host or header it can't be read.
func bound(s *sandbox.Secret) ([]byte, error) {
	return json.Marshal(struct {
		Version                         int
		ID, Owner, Name, Header, Format string
		Hosts                           []string
	}{sealVersion, s.ID, s.Owner, s.Name, s.Header, s.Format, s.Hosts})
}

func (m *master) seal(s *sandbox.Secret, v Value) ([]byte, error) {
	with, err := bound(s)
	if err != nil {
		return nil, err
	}
	return m.aead.Seal([]byte{sealVersion}, nil, []byte(v.text), with), nil
}

var errSealed = fmt.Errorf("it was encrypted with another key, or was changed: %w", errdefs.ErrDataLoss)

func (m *master) open(s *sandbox.SealedSecret) (Value, error) {
	with, err := bound(&s.Secret)
	if err != nil {
		return Value{}, err
	}
	text, ok := bytes.CutPrefix(s.Sealed, []byte{sealVersion})
	if !ok {
		return Value{}, errSealed
	}
	if text, err = m.aead.Open(nil, nil, text, with); err != nil {
		return Value{}, errSealed
	}
	return Value{string(text)}, nil
}

// readKeys reads a key file: the key that is in force, and older ones. None: the
// file is not there.
func readKeys(path string) ([]*master, error) {
	const line = 2*masterLen + 2
	text, err := keyfile.Read(path, maxKeys*line)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(string(text))
	if len(lines) == 0 || len(lines) > maxKeys {
		return nil, badKeys(path)
	}
	var all []*master
	for _, l := range lines {
		key, err := hex.DecodeString(l)
		if err != nil || len(key) != masterLen {
			return nil, badKeys(path)
		}
		m, err := newMaster(key)
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// badKeys says what a key file should be, and nothing of what it is.
func badKeys(path string) error {
	return fmt.Errorf("%s has not 1 to %d lines of %d hexadecimal digits: put a backup of it in its place: %w", path, maxKeys, 2*masterLen, errdefs.ErrDataLoss)
}

// makeKey draws a key and writes its file, which must not be there.
func makeKey(path string) (*master, error) {
	key := make([]byte, masterLen)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the program instead
	if err := keyfile.Make(path, []byte(hex.EncodeToString(key)+"\n")); err != nil {
		return nil, err
	}
	return newMaster(key)
}
