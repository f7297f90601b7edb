package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// sink takes a file from a sandbox, which writes to a pipe, so that it can't
// write more than it may.
type sink struct {
	path string
	in   *os.File // for the sandbox
	out  *os.File
	done chan struct{}

	sum savedFile // valid after done
	err error
}

func newSink(path string, limit int64) (*sink, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file of the save: %w", err)
	}
	s := &sink{path: path, done: make(chan struct{})}
	if s.out, s.in, err = os.Pipe(); err != nil {
		f.Close()
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	go s.run(f, limit)
	return s, nil
}

func (s *sink) run(f *os.File, limit int64) {
	defer close(s.done)
	// The sandbox's next write fails.
	defer s.out.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(s.out, limit+1))
	if err == nil && n > limit {
		err = errTooLarge
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		s.err = fmt.Errorf("take %s: %w", filepath.Base(s.path), err)
	}
	s.sum = savedFile{Size: n, SHA256: hex.EncodeToString(h.Sum(nil))}
}

// abort ends the taking, though somebody may still hold the pipe.
func (s *sink) abort() { _ = s.out.SetReadDeadline(time.Unix(1, 0)) } // fails when it ended

// finish waits for the last writer to let go of the pipe, and for the disk.
func (s *sink) finish() (savedFile, error) {
	s.in.Close()
	<-s.done
	return s.sum, s.err
}
