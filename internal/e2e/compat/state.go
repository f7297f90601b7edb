package compat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// State remembers what units reported, in a file, so that a long run that was
// stopped goes on where it was. A report counts as long as what it depends on
// is the same.
type State struct {
	path string
	mu   sync.Mutex
	runs map[string]run
}

type run struct {
	Key    string `json:"key"`
	Report Report `json:"report"`
}

// OpenState reads the file at path; "" remembers nothing.
func OpenState(path string) (*State, error) {
	s := &State{path: path, runs: map[string]run{}}
	if path == "" {
		return s, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	return s, json.Unmarshal(b, &s.runs)
}

// Get returns the report of unit if there is one under key.
func (s *State) Get(unit, key string) (Report, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.runs[unit]
	return r.Report, ok && r.Key == key
}

// Put remembers a report.
func (s *State) Put(unit, key string, r Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[unit] = run{Key: key, Report: r}
	if s.path == "" {
		return nil
	}
	b, err := json.MarshalIndent(s.runs, "", " ")
	if err != nil {
		return err
	}
	tmp := s.path + ".new"
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, s.path)
}

// Key tells one set of files and words from another.
func Key(files []string, words ...string) (string, error) {
	h := sha256.New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	h.Write([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
