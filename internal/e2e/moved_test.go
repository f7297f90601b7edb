package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDataDirectoryIsMoved: a data directory that was moved while no daemon ran has
// all that was in it: images, sandboxes that run and that are stopped, volumes, the
// storage of tenants. A copy beside it does not take the sandboxes away from it.
func TestDataDirectoryIsMoved(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	moved := dir + "m"
	t.Cleanup(func() { _ = os.RemoveAll(moved) })
	d := &Daemon{t: t, Dir: dir, args: []string{"--storage", filepath.Join(dir, "storage")}, logs: &lockedBuffer{}}
	d.forTest(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	d.volume("kept", "32m")
	d.volume("used", "32m")
	boxes := map[string]string{}
	for name, body := range map[string]string{
		"runs": `{}`, "stopped": `{}`, "runs with a volume": `{"volumes":[{"name":"used","path":"/data"}]}`,
		"stopped with a volume": `{"volumes":[{"name":"kept","path":"/data"}]}`, "stopped with a tenant": `{"tenant_id":"acme"}`,
	} {
		id := d.box(body).ID
		boxes[name] = id
		d.sh(id, "mkdir -p /data; echo "+id+" >/workspace/f; echo "+id+" >/data/f")
		if strings.HasPrefix(name, "stopped") {
			d.want(id, "stop")
		}
	}
	if code := d.Stop(); code != 0 {
		t.Fatalf("the daemon ended with %d", code)
	}
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	d.Dir, d.args = moved, []string{"--storage", filepath.Join(moved, "storage")}
	d.Start()
	for name, id := range boxes {
		if strings.HasPrefix(name, "stopped") {
			d.want(id, "start")
		}
		if got := d.sh(id, "cat /workspace/f /data/f"); got.Output != id+"\n"+id+"\n" {
			t.Errorf("%s: has %+v", name, got)
		}
		d.want(id, "stop") // and once more, with what was recorded here
		d.want(id, "start")
		if got := d.sh(id, "cat /workspace/f /data/f"); got.Output != id+"\n"+id+"\n" {
			t.Errorf("%s: stopped and started it has %+v", name, got)
		}
	}
	copied := DataDir(t)
	if out, err := exec.Command("cp", "-a", filepath.Join(moved, "daemon"), filepath.Join(moved, "agentbox.db"), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	other := &Daemon{t: t, Dir: copied, logs: &lockedBuffer{}}
	if err := other.StartWith(); err == nil || !strings.Contains(err.Error(), copied+" is a copy") {
		t.Errorf("a copy, while sandboxes of the original run: %v", err)
	}
	if got := d.sh(boxes["runs"], "echo ours"); got.Output != "ours\n" {
		t.Errorf("after the copy was tried: %+v", got)
	}
}

// want does something with a sandbox that must succeed.
func (d *Daemon) want(id, verb string) {
	d.t.Helper()
	var p served
	if code := d.Do(d.Key, "POST", "/sandboxes/"+id+"/"+verb, "", &p); code != http.StatusOK {
		d.t.Fatalf("%s: %d %+v", verb, code, p)
	}
}
