package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"agentbox/internal/keyfile"
)

// maxFile bounds the file of keys, in bytes: eight keys are a few hundred.
const maxFile = 64 << 10

// kept is a key as the file has it.
type kept struct {
	Secret []byte `json:"secret"`
	// Until is when it ends, by the wall clock; none: it is the newest.
	Until time.Time `json:"until,omitzero"`
}

// Open gives the keys that a file keeps over restarts, and puts a secret in force:
// if it is not the newest already, it is from now on, and the one before stays good
// for the overlap. Without a secret the newest stays, and a file that is not there
// yet gets a key of GenerateKey.
//
// The file is its owner's alone (mode 0600). One that others may read, or that
// can't be understood, is an error: with other keys all tokens would be void.
func Open(path, secret string, overlap time.Duration) (*Keys, error) {
	k, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("read the signing keys: %w", err)
	}
	switch {
	case len(k.all) > 0 && (secret == "" || string(k.newest()) == secret):
		return k, nil
	case secret == "":
		err = k.Rotate(GenerateKey(), 0)
	default:
		err = k.Rotate(secret, overlap)
	}
	if err == nil {
		err = k.write(path)
	}
	if err != nil {
		return nil, fmt.Errorf("keep the signing keys in %s: %w", path, err)
	}
	return k, nil
}

// read gives the keys of a file, none if there is no file.
func read(path string) (*Keys, error) {
	b, err := keyfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return new(Keys), nil
	}
	if err != nil {
		return nil, err
	}
	k, err := parseKeys(b, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w; without it all tokens are void and the next start makes a new key", path, err)
	}
	return k, nil
}

// parseKeys reads what write wrote. Keys that have ended are left out.
func parseKeys(b []byte, now time.Time) (*Keys, error) {
	var all []kept
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(&all)
	if _, end := d.Token(); err != nil || !errors.Is(end, io.EOF) || len(b) > maxFile {
		return nil, errors.New("it is damaged") // errors of JSON may have parts of it
	}
	k := new(Keys)
	for i, one := range all {
		newest := i == len(all)-1
		if len(one.Secret) < MinKey || one.Until.IsZero() != newest {
			return nil, errors.New("it is damaged")
		}
		if newest || now.Before(one.Until) {
			k.all = append(k.all, key{secret: one.Secret, until: one.Until})
		}
	}
	if len(k.all) == 0 || len(k.all) > maxKeys {
		return nil, errors.New("it is damaged")
	}
	return k, nil
}

// write replaces the file, which has its old or its new content after a crash.
func (k *Keys) write(path string) error {
	k.mu.Lock()
	var all []kept
	for _, one := range k.all {
		all = append(all, kept{one.secret, one.until.Round(0)})
	}
	k.mu.Unlock()
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return keyfile.Replace(path, append(b, '\n'))
}
