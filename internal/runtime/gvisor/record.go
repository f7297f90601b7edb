package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentbox/internal/guest"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// engineIDLen is the length of gVisor's own name of a sandbox, the first digits
// of ours: whole, the paths of its sockets would be too long.
const engineIDLen = 24

// record is what a later process must know of a sandbox. It is written before
// each side effect that it describes.
type record struct {
	ID        string
	Key       guest.Key // secret: the file is readable by its owner only
	State     sandbox.State
	Reason    sandbox.Reason `json:",omitempty"`
	Created   time.Time
	Image     string            // digest of the root file system
	ImagePath string            // where it is
	Base      string            `json:",omitempty"` // see follow
	Hostname  string            `json:",omitempty"`
	Labels    map[string]string `json:",omitempty"`
	Limits    sandbox.Limits
	Require   []string        `json:",omitempty"` // limits that must be enforced
	Unlimited []string        `json:",omitempty"` // limits that are not enforced
	Mounts    []runtime.Mount `json:",omitempty"`

	// Process of the sandbox; zero when there is none.
	Process procID
	// Gofer is the process that opens the directories of Mounts for it.
	Gofer procID `json:",omitzero"`
	// Saved is the last complete save of the layer.
	Saved *save `json:",omitempty"`
	// Starting: a stopped sandbox may have a process that Process does not name.
	Starting bool `json:",omitempty"`
	// Suspending is the image that a checkpoint is being written to. If the
	// sandbox is dead it is complete.
	Suspending string `json:",omitempty"`
}

func (r *record) engineID() string { return r.ID[:engineIDLen] }

// spec is what the sandbox was created as.
func (r *record) spec() runtime.Spec {
	return runtime.Spec{
		ID: r.ID, Image: runtime.Image{Path: r.ImagePath, Digest: r.Image}, Hostname: r.Hostname,
		Limits: r.Limits, Require: r.Require, Labels: r.Labels, Mounts: r.Mounts,
	}
}

// follow finds what the record names, if the directory base, which holds the back
// end's own, was called Base when the record was written: what lies in it was moved
// with it.
func (r *record) follow(base string) {
	switch {
	case r.Base != "":
		r.ImagePath = moved(r.ImagePath, r.Base, base)
		for i := range r.Mounts {
			r.Mounts[i].Source = moved(r.Mounts[i].Source, r.Base, base)
		}
	case moved(r.ImagePath, base, "") == r.ImagePath:
		return // of a build that noted no Base: nobody knows what it was
	}
	r.Base = base
}

// moved is a path after the directory from became the directory to.
func moved(path, from, to string) string {
	if rest, below := strings.CutPrefix(path, from+string(filepath.Separator)); below {
		return filepath.Join(to, rest)
	}
	return path
}

// baseOf is the directory that holds the back end's, of a sandbox's.
func baseOf(boxDir string) string { return filepath.Join(boxDir, "..", "..", "..") }

const recordFile = "record.json"

// save replaces the record in dir as a whole.
func (r *record) save(dir string) error { return r.replace(dir, false) }

// saveSynced does so, and the record survives a crash of the host as well.
func (r *record) saveSynced(dir string) error { return r.replace(dir, true) }

func (r *record) replace(dir string, sync bool) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	tmp := filepath.Join(dir, recordFile+".tmp")
	if err := writeFile(tmp, b, sync); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, recordFile)); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if sync {
		return syncDir(dir)
	}
	return nil
}

// writeFile replaces the contents of a private file.
func writeFile(name string, b []byte, sync bool) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// errBadRecord is a record that can be read and not understood.
var errBadRecord = errors.New("the record is damaged")

// loadRecord reads the record of the sandbox id. A sandbox whose record was
// never completed has an empty one.
func loadRecord(dir, id string) (record, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	r := record{}
	if err == nil {
		if e := json.Unmarshal(b, &r); e != nil {
			err = fmt.Errorf("%w: %w", errBadRecord, e)
		} else if r.ID != id {
			err = fmt.Errorf("%w: it names another sandbox", errBadRecord)
		}
		r.follow(baseOf(dir))
	}
	if err != nil {
		return record{ID: id, State: sandbox.Creating}, fmt.Errorf("read record of %s: %w", id, err)
	}
	return r, nil
}
