package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// decoys are a process and control groups that look like those of the sandbox uid of
// d and are another daemon's. The returned function tells which are gone.
func (d *Daemon) decoys(uid string) func() []string {
	d.t.Helper()
	process := exec.Command("sh", "-c", "read line", "--root="+d.t.TempDir(), "boot", uid[:engineDigits])
	stdin, err := process.StdinPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = stdin.Close(); _ = process.Wait() })
	var groups []string
	for _, dir := range cgroupDirs(uid) {
		other := filepath.Join(filepath.Dir(filepath.Dir(dir)), "e2e-other-"+filepath.Base(d.Dir), uid)
		if err := os.MkdirAll(other, 0o755); err != nil {
			d.t.Fatal(err)
		}
		d.t.Cleanup(func() { _ = os.Remove(other); _ = os.Remove(filepath.Dir(other)) })
		groups = append(groups, other)
	}
	return func() (gone []string) {
		if err := process.Process.Signal(syscall.Signal(0)); err != nil {
			gone = append(gone, process.String())
		}
		for _, g := range groups {
			if _, err := os.Stat(g); err != nil {
				gone = append(gone, g)
			}
		}
		return gone
	}
}

// TestOrphansOfLostRecords: what a sandbox has on the host goes when its directory
// is lost, whether the store knows of it or not; sandboxes beside it, and what is
// another daemon's, stay.
func TestOrphansOfLostRecords(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	db, before := filepath.Join(d.Dir, "agentbox.db"), filepath.Join(t.TempDir(), "before.db")
	kept, known := d.Make(nil), d.Make(nil)
	d.Kill()
	copyStore(t, db, before)
	d.Start()
	unknown := d.Make(nil)
	gone := d.decoys(unknown)
	d.Kill()
	copyStore(t, before, db)
	for _, uid := range []string{known, unknown} {
		if err := os.RemoveAll(filepath.Join(d.Dir, "daemon", "sandboxes", uid)); err != nil {
			t.Fatal(err)
		}
	}
	// gVisor's state is all that is left of a third one.
	state := filepath.Join(d.Dir, "daemon", "run", strings.Repeat("5", engineDigits)+"_sandbox:"+strings.Repeat("5", engineDigits)+".lock")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.Start()
	for _, line := range d.Disagreements(map[string]string{kept: "running"}) {
		t.Error(line)
	}
	for _, what := range gone() {
		t.Errorf("%s was another's, and is gone", what)
	}
	for _, uid := range []string{known, unknown} {
		if code := d.Do(d.Key, "GET", "/sandboxes/"+uid, "", nil); code != 404 {
			t.Errorf("it has no directory, and the answer is %d", code)
		}
	}
	d.Box(kept).Want("ok\n", "echo ok")
}
