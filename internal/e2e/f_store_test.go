package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentbox/internal/sandbox"
	"agentbox/internal/store"
)

// copyStore copies the files of a database that nobody writes.
func copyStore(t testing.TB, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		_ = os.Remove(to + suffix)
		if err == nil {
			if err := os.WriteFile(to+suffix, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = os.Remove(to + "-shm")
}

// TestF16: a store that lost its end has the last state that was whole, or is
// refused; never is it read as empty.
func TestF16(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	for range 5 {
		d.Make(nil)
	}
	db := filepath.Join(d.Dir, "agentbox.db")
	kept := filepath.Join(t.TempDir(), "killed.db")
	d.Kill()
	copyStore(t, db, kept) // with a log
	d.Start()
	if code := d.Stop(); code != 0 {
		t.Fatalf("stop: %d", code)
	}
	stopped := filepath.Join(t.TempDir(), "stopped.db")
	copyStore(t, db, stopped) // without

	look := func(what, path string, least int) {
		s, err := store.Open(t.Context(), path)
		if err == nil {
			var all []sandbox.Sandbox
			all, err = s.Sandboxes(t.Context())
			if err == nil && (len(all) < least || len(all) > 5) {
				t.Errorf("%s: %d sandboxes are read, at least %d were there", what, len(all), least)
			}
			err = errors.Join(err, s.Close())
		}
		if err != nil && len(err.Error()) < 10 {
			t.Errorf("%s: refused with %q", what, err)
		}
	}
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	copyStore(t, kept, damaged)
	look("untouched", damaged, 5)
	for i := range 50 {
		n := int64(1 + i*512/50)
		for name, file := range map[string]string{"its log": kept, "its file": stopped} {
			copyStore(t, file, damaged)
			target := damaged
			if name == "its log" {
				target += "-wal"
			}
			st, err := os.Stat(target)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := os.Truncate(target, st.Size()-n); err != nil {
				t.Fatal(err)
			}
			look(fmt.Sprintf("%d bytes off %s", n, name), damaged, 4)
			if name == "its file" { // a log ends for SQLite where it is damaged
				copyStore(t, file, damaged)
				flip(t, target)
				look("a flipped byte in "+name, damaged, 5)
			}
		}
	}
	refusesDamage(t, d, db, stopped)
	survivesLog(t, d, db)
}

// refusesDamage: the daemon says what is wrong with its store, and the sandboxes
// live on.
func refusesDamage(t *testing.T, d *Daemon, db, stopped string) {
	t.Helper()
	b, err := os.ReadFile(stopped)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b[100:4096] {
		b[100+i] = 0xa5
	}
	if err := os.WriteFile(db, b, 0o600); err != nil {
		t.Fatal(err)
	}
	processes := Count(t, d.Dir+"/")
	if out := Run(t, d.Dir, "", "serve", "--listen", "127.0.0.1:0", "--sandbox-image", Image); out.Code == 0 || !strings.Contains(out.Stderr, db) {
		t.Errorf("a daemon with a damaged store: %+v", out)
	}
	if now := Count(t, d.Dir+"/"); now != processes || now == 0 {
		t.Errorf("%d processes ran before, and %d now", processes, now)
	}
	copyStore(t, stopped, db)
	d.Start()
	var all servedList
	if d.Do(d.Key, "GET", "/sandboxes", "", &all); len(all.Items) != 5 {
		t.Errorf("with the store as it was: %d sandboxes", len(all.Items))
	}
}

// survivesLog: a log that is damaged at its begin takes all with it that was
// written since the last stop. No sandbox is lost with that.
func survivesLog(t *testing.T, d *Daemon, db string) {
	t.Helper()
	late := d.Make(map[string]any{"name": "late"})
	d.Kill()
	b, err := os.ReadFile(db + "-wal")
	if err != nil || len(b) == 0 {
		t.Fatalf("there is no log: %v", err)
	}
	b[16] ^= 1 // its salt
	if err := os.WriteFile(db+"-wal", b, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	var all servedList
	var sb served
	if d.Do(d.Key, "GET", "/sandboxes", "", &all); len(all.Items) != 6 {
		t.Errorf("without the log: %d sandboxes", len(all.Items))
	}
	if code := d.Do(d.Key, "GET", "/sandboxes/late", "", &sb); code != 200 || sb.ID != late || sb.Status != "running" {
		t.Errorf("the one that was in the log only: %d %+v", code, sb)
	}
}

// flip changes one byte.
func flip(t testing.TB, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[rand.N(len(b))] ^= 1 << rand.N(8)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestF18: sandboxes whose daemon lost its store are taken over: nothing that
// runs is forgotten, or removed without a word.
func TestF18(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	before := d.HostState()
	var boxes []*Box
	for range 5 {
		boxes = append(boxes, d.Box(d.Make(nil)))
	}
	boxes[0].Want("", "echo precious > /workspace/f")
	d.Kill()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(d.Dir, "agentbox.db"+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	d.Start() // with a new first key
	var all servedList
	if d.Do(d.Key, "GET", "/sandboxes", "", &all); len(all.Items) != 5 {
		t.Errorf("%d of 5 are listed", len(all.Items))
	}
	for i, b := range boxes {
		b.remote.d = d
		if res, err := b.Try(sandbox.Command{Shell: "echo ok"}, nil, output()); err != nil || string(res.Stdout) != "ok\n" {
			t.Errorf("sandbox %d: %v, %v", i, res, err)
		}
	}
	boxes[0].Want("precious\n", "cat /workspace/f")
	for _, b := range boxes {
		if code := d.Do(d.Key, "DELETE", b.remote.at(""), "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
	}
	d.WantState(before)
}

// TestF19: a full data directory stops what needs room, and nothing else.
func TestF19(t *testing.T) {
	t.Parallel()
	Need(t, os.Getuid() == 0, "root, to mount a small file system")
	d := &Daemon{t: t, Dir: DataDir(t), logs: &lockedBuffer{}}
	small := filepath.Join(d.Dir, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
	for _, name := range []string{"images", "engine", "guest"} {
		at, err := os.Readlink(filepath.Join(d.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(at, filepath.Join(small, name)); err != nil {
			t.Fatal(err)
		}
	}
	d.Dir = small
	d.forTest(t)
	box := d.Box(d.Make(nil))
	long := make(chan *sandbox.Result, 1)
	go func() {
		res, _ := box.Try(sandbox.Command{Shell: "sleep 4.19; echo ok"}, nil, output())
		long <- res
	}()
	box.WaitCount("4.19", 2, 10*time.Second)
	filler := filepath.Join(small, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := 1 << 20; chunk > 0; {
		if _, err := f.Write(make([]byte, chunk)); err != nil {
			chunk /= 2
		}
	}
	_ = f.Close()
	var p *Problem
	for range 3 {
		err := d.ask(t.Context(), "POST", "/sandboxes", "{}", nil)
		if !asProblem(err, &p) || p.Status != http.StatusServiceUnavailable && p.Status != http.StatusInsufficientStorage {
			t.Errorf("a create on a full disk: %v", err)
		}
	}
	box.Want("still\n", "echo still")
	if code := d.Do(d.Key, "GET", "/sandboxes", "", nil); code != 200 {
		t.Errorf("list: %d", code)
	}
	if res := <-long; res == nil || string(res.Stdout) != "ok\n" {
		t.Errorf("a command that ran meanwhile: %v", res)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	Until(t, 5*time.Second, "it makes sandboxes again", func() bool {
		var sb served
		return d.Do(d.Key, "POST", "/sandboxes", "{}", &sb) == http.StatusCreated
	})
	Within(t, began, 5*time.Second)
}
