package oracle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// owners are those of a data directory who have been there. Their names are those
// of control groups, which nothing else ties to the directory once it has none of
// the owner any more.
type owners struct {
	place Place
	mu    sync.Mutex
	seen  map[string]bool
}

// ownerTick is much less than an owner lives.
const ownerTick = 10 * time.Millisecond

// watchOwners notes them until the test ends.
func watchOwners(t testing.TB, p Place) *owners {
	o := &owners{place: p, seen: map[string]bool{}}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(ownerTick); ; {
			o.look()
			select {
			case <-tick.C:
			case <-stop:
				tick.Stop()
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return o
}

func (o *owners) look() {
	entries, _ := os.ReadDir(filepath.Join(o.place.DataDir, "owners"))     // none yet
	mark, _ := os.ReadFile(filepath.Join(o.place.DataDir, "daemon/owner")) // no daemon
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range entries {
		if e.IsDir() {
			o.seen[e.Name()] = true
		}
	}
	if name := strings.TrimSpace(string(mark)); name != "" {
		o.seen[name] = true
	}
}

// all is a function that tells whether a name is that of an owner who has been there
// so far.
func (o *owners) all() func(name string) bool {
	o.look()
	return func(name string) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.seen[name]
	}
}

// cgroups finds the groups of our owners, at BASE/agentbox/OWNER/SANDBOX in any
// hierarchy.
func cgroups(ours func(owner string) bool, add func(kind, key, text string)) error {
	return filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if vanished(err) {
				return nil
			}
			return err
		}
		_, below, found := strings.Cut(path, "/agentbox/")
		owner, _, _ := strings.Cut(below, "/")
		if !d.IsDir() || !found || !ours(owner) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil // it is gone
		}
		add("cgroup", fmt.Sprint(path, " ", info.Sys().(*syscall.Stat_t).Ino), path)
		return nil
	})
}
