package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"agentbox/internal/guest"
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
	Labels    map[string]string `json:",omitempty"`
	Limits    sandbox.Limits
	Unlimited []string `json:",omitempty"` // limits that are not enforced

	// Process of the sandbox; zero before it exists.
	Process procID
	// Suspending is the image that a checkpoint is being written to. If the
	// sandbox is dead it is complete.
	Suspending string `json:",omitempty"`
}

func (r *record) engineID() string { return r.ID[:engineIDLen] }

const recordFile = "record.json"

// save replaces the record in dir as a whole.
func (r *record) save(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	tmp := filepath.Join(dir, recordFile+".tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, recordFile)); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// loadRecord reads the record of the sandbox id. A sandbox whose record was
// never completed has an empty one.
func loadRecord(dir, id string) (record, error) {
	b, err := os.ReadFile(filepath.Join(dir, recordFile))
	r := record{}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && r.ID != id {
		err = errors.New("it names another sandbox")
	}
	if err != nil {
		return record{ID: id, State: sandbox.Creating}, fmt.Errorf("read record of %s: %w", id, err)
	}
	return r, nil
}
