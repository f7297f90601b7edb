//go:build linux

package volume_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

// records keeps records in memory, which outlives the daemons of a test.
type records struct {
	mu  sync.Mutex
	all map[string]sandbox.Volume
	// fail is called before a change of state and may refuse it.
	fail func(state sandbox.VolumeState) error
	// path, unless empty, is where they are kept for the next process.
	path string
}

// recordsAt are records in a file.
func recordsAt(path string) (*records, error) {
	r := newRecords()
	r.path = path
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r.all)
	}
	return r, err
}

// save makes a change durable against the end of the process.
func (r *records) save() error {
	if r.path == "" {
		return nil
	}
	b, err := json.Marshal(r.all)
	if err == nil {
		err = os.WriteFile(r.path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(r.path+".new", r.path)
	}
	return err
}

func newRecords() *records { return &records{all: map[string]sandbox.Volume{}} }

func (r *records) AddVolume(_ context.Context, v sandbox.Volume) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, have := range r.all {
		if have.Owner == v.Owner && have.Name == v.Name {
			return fmt.Errorf("there is one: %w", errdefs.ErrAlreadyExists)
		}
	}
	r.all[v.ID] = v
	return r.save()
}

func (r *records) SetVolumeState(_ context.Context, id string, state sandbox.VolumeState) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(state); err != nil {
			return err
		}
	}
	v, ok := r.all[id]
	if !ok {
		return errdefs.ErrNotFound
	}
	v.State = state
	r.all[id] = v
	return r.save()
}

func (r *records) Volume(_ context.Context, owner, name string) (sandbox.Volume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.all {
		if v.Owner == owner && v.Name == name {
			return v, nil
		}
	}
	return sandbox.Volume{}, errdefs.ErrNotFound
}

func (r *records) Volumes(_ context.Context, owner string) ([]sandbox.Volume, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []sandbox.Volume
	for _, v := range r.all {
		if owner == "" || v.Owner == owner {
			some = append(some, v)
		}
	}
	slices.SortFunc(some, func(a, b sandbox.Volume) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Name, b.Name))
	})
	return some, nil
}

func (r *records) DeleteVolume(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, id)
	return r.save()
}

// only returns the id of the only volume.
func (r *records) only(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.all {
		if len(r.all) == 1 {
			return id
		}
	}
	t.Fatalf("there are %d volumes", len(r.all))
	return ""
}

var errKilled = errors.New("killed")
