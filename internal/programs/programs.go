// Package programs lays out the two programs that agentbox carries: the engine,
// which every sandbox process executes, and the guest agent. They go under the
// data directory by the hash of their content, so that running sandboxes keep
// theirs when agentbox is replaced.
package programs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	engineName = "agentbox-engine"
	guestName  = "agentbox-guest"
	// sidecarDir is where the engine looks for its helper programs, beside
	// itself. All of them are the engine, under other names.
	sidecarDir = "gvisor-bin"
)

// sidecars are the names that gVisor looks for with its strict policy.
var sidecars = []string{"gvisor_sentry", "gvisor-sentry-prewarmer"}

// program is one program to be laid out.
type program interface {
	// build identifies the content; it is a file name.
	build() (string, error)
	// open gives the content.
	open() (io.ReadCloser, error)
}

// Engine lays out the engine under dataDir, if it is not there yet, and returns
// its path.
func Engine(dataDir string) (string, error) {
	p, err := find(engineName)
	if err != nil {
		return "", err
	}
	path, _, err := layOut(filepath.Join(dataDir, "engine"), engineName, p, func(dir string) error {
		if err := os.Mkdir(filepath.Join(dir, sidecarDir), 0o755); err != nil {
			return err
		}
		for _, name := range sidecars {
			if err := os.Link(filepath.Join(dir, engineName), filepath.Join(dir, sidecarDir, name)); err != nil {
				return err
			}
		}
		return nil
	})
	return path, err
}

// Guest lays out the guest agent under dataDir, if it is not there yet, and
// returns its path and build. Images that hold the agent are keyed by the build.
func Guest(dataDir string) (path, build string, err error) {
	p, err := find(guestName)
	if err != nil {
		return "", "", err
	}
	return layOut(filepath.Join(dataDir, "guest"), guestName, p, func(string) error { return nil })
}

// layOut writes p as parent/<build>/name. The directory appears whole or not at
// all; several processes may do it at once.
func layOut(parent, name string, p program, finish func(dir string) error) (path, build string, err error) {
	build, err = p.build()
	if err != nil {
		return "", "", fmt.Errorf("identify %s: %w", name, err)
	}
	dir := filepath.Join(parent, build)
	path = filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, build, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", "", fmt.Errorf("lay out %s: %w", name, err)
	}
	tmp, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return "", "", fmt.Errorf("lay out %s: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	err = errors.Join(os.Chmod(tmp, 0o755), write(filepath.Join(tmp, name), p))
	if err == nil {
		err = finish(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if errors.Is(err, fs.ErrExist) { // another process was faster
		err = nil
	}
	if err != nil {
		return "", "", fmt.Errorf("lay out %s: %w", name, err)
	}
	return path, build, nil
}

func write(path string, p program) error {
	r, err := p.open()
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync() // the rename must not outlive the content
	}
	return errors.Join(err, f.Close())
}
