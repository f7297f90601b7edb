// Package oracle tells what sandboxes leave behind on the host. A test takes a
// snapshot, does its work, and asks what is there that was not there before:
// processes, mounts, control groups, owner directories, files, sockets, and
// open files of the test itself.
//
// Only what provably belongs to the test's own data directory counts, so that
// tests with directories of their own run side by side. Zombies whose parent is
// the machine's init don't count: reaping them is not ours to do.
package oracle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Place is where a test's sandboxes live.
type Place struct {
	// DataDir is the data directory; the images in it may be shared.
	DataDir string
	// TempDir is the TMPDIR of the programs that the test runs.
	TempDir string
}

// NewPlace makes a data directory of the test's own, which shares the images
// of the data directory shared ("": it begins without any).
func NewPlace(t testing.TB, shared string) Place {
	t.Helper()
	// Paths of sockets are limited to 107 bytes; t.TempDir has the test's name
	// in it and is too long.
	dir, err := os.MkdirTemp("", "abx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the test's directory: %v", err)
		}
	})
	p := Place{DataDir: filepath.Join(dir, "data"), TempDir: filepath.Join(dir, "tmp")}
	for _, d := range []string{p.DataDir, p.TempDir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if shared == "" {
		return p
	}
	if err := os.Symlink(filepath.Join(shared, "images"), filepath.Join(p.DataDir, "images")); err != nil {
		t.Fatal(err)
	}
	return p
}

// Env is the environment of the programs that the test runs.
func (p Place) Env() []string {
	return append(os.Environ(), "AGENTBOX_DATA_DIR="+p.DataDir, "TMPDIR="+p.TempDir)
}

// Snapshot is what there was at one moment. Take it after a first sandbox has
// run, so that what is made once (the engine, lock files) is in it.
type Snapshot struct {
	place  Place
	owners *owners
	seen   map[string]string // key → description
}

// Take notes what there is now.
func Take(t testing.TB, p Place) *Snapshot {
	t.Helper()
	o := watchOwners(t, p)
	seen, err := survey(p, o)
	if err != nil {
		t.Fatalf("look at the host: %v", err)
	}
	return &Snapshot{place: p, owners: o, seen: seen}
}

// Diff returns what is there now and was not there when s was taken, sorted,
// one line for each.
func (s *Snapshot) Diff() ([]string, error) {
	now, err := survey(s.place, s.owners)
	if err != nil {
		return nil, fmt.Errorf("look at the host: %w", err)
	}
	maps.DeleteFunc(now, func(key, _ string) bool { _, ok := s.seen[key]; return ok })
	return slices.Sorted(maps.Values(now)), nil
}

// Check fails the test unless the difference is nothing within the given time.
func (s *Snapshot) Check(t testing.TB, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		diff, err := s.Diff()
		if err != nil {
			t.Fatal(err)
		}
		if len(diff) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind after %v, %d things:\n  %s", within, len(diff), strings.Join(diff, "\n  "))
			return
		}
		time.Sleep(20 * time.Millisecond) // the kernel tells of none of these by an event
	}
}

// survey returns everything that belongs to p, by a key that is not used again.
func survey(p Place, o *owners) (map[string]string, error) {
	seen := map[string]string{}
	add := func(kind, key, text string) { seen[kind+" "+key] = kind + ": " + text }
	procs, err := processes()
	if err != nil {
		return nil, err
	}
	ours := procs.of(p.DataDir)
	for _, pr := range ours {
		add("process", fmt.Sprint(pr.pid, " ", pr.start), pr.String())
	}
	for _, look := range []func(Place, func(kind, key, text string)) error{mounts, files, fds, sockets} {
		if err := look(p, add); err != nil {
			return nil, err
		}
	}
	return seen, cgroups(o.all(), add)
}
