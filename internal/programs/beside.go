//go:build !embed

package programs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// embedded: the programs are in the executable.
const embedded = false

// file is a program that lies on disk.
type file string

// find looks for a program where a build without the embed tag has it: the path
// in AGENTBOX_ENGINE or AGENTBOX_GUEST, which tests set, or beside the
// executable.
func find(name string) (program, error) {
	env := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if path := os.Getenv(env); path != "" {
		return file(path), nil
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(exe), name)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("this agentbox was built without its programs, and %s is not beside it: build it with make, or set %s", name, env)
	}
	return file(path), nil
}

func (f file) build() (string, error) {
	r, err := f.open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	return contentHash(r)
}

func (f file) open() (io.ReadCloser, error) { return os.Open(string(f)) }
