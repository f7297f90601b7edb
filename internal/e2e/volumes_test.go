package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// servedVolume is what the tests look at of a volume.
type servedVolume struct {
	Name   string   `json:"name"`
	Size   int64    `json:"size"`
	Kind   string   `json:"kind"`
	UsedBy []string `json:"used_by"`
	Used   int64    `json:"used"`
}

// needImages ends a test that needs volumes whose size holds.
func needImages(t *testing.T, d *Daemon) {
	t.Helper()
	var probe servedVolume
	d.Do(d.Key, "POST", "/volumes", `{"name":"probe"}`, &probe)
	d.Do(d.Key, "DELETE", "/volumes/probe", "", nil)
	if probe.Kind != "image" {
		t.Skipf("volumes are of kind %q here: no loop devices, or not root", probe.Kind)
	}
}

func (d *Daemon) volume(name, size string) servedVolume {
	d.t.Helper()
	var v servedVolume
	if code := d.Do(d.Key, "POST", "/volumes", fmt.Sprintf(`{"name":%q,"size":%q}`, name, size), &v); code != http.StatusCreated {
		d.t.Fatalf("make volume %s: %d %+v", name, code, v)
	}
	return v
}

func (d *Daemon) holders(name string) []string {
	d.t.Helper()
	var v servedVolume
	if code := d.Do(d.Key, "GET", "/volumes/"+name, "", &v); code != http.StatusOK {
		d.t.Fatalf("look at volume %s: %d", name, code)
	}
	return v.UsedBy
}

func (d *Daemon) box(body string) served {
	d.t.Helper()
	var sb served
	if code := d.Do(d.Key, "POST", "/sandboxes", body, &sb); code != http.StatusCreated {
		d.t.Fatalf("make %s: %d %+v", body, code, sb)
	}
	return sb
}

// sh runs a shell command in a sandbox and returns what it said.
func (d *Daemon) sh(id, command string) executed {
	d.t.Helper()
	body, err := json.Marshal(map[string]string{"command": command, "user": "root"})
	if err != nil {
		d.t.Fatal(err)
	}
	var res executed
	if code := d.Do(d.Key, "POST", "/sandboxes/"+id+"/execute", string(body), &res); code != http.StatusOK {
		d.t.Fatalf("%s: %d", command, code)
	}
	return res
}

const withData = `{"volumes":[{"name":"data","path":"/data"}]}`

// TestVolumeOutlivesSandboxes: what is written is there for the next sandbox; a full
// volume is full for the guest only; whatever a guest makes, the volume can be
// used, backed up and removed.
func TestVolumeOutlivesSandboxes(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	needImages(t, d)
	d.volume("data", "64m")
	sb := d.box(withData)
	if res := d.sh(sb.ID, "echo kept > /data/f && sync && stat -c %a /data"); res.ExitCode != 0 || res.Output != "777\n" {
		t.Fatalf("%+v", res)
	}
	// Full, of bytes and of names.
	if res := d.sh(sb.ID, "dd if=/dev/zero of=/data/full bs=1M count=200"); res.ExitCode == 0 || !strings.Contains(res.Output, "No space left") {
		t.Errorf("200 MiB in a volume of 64: %+v", res)
	}
	var used servedVolume
	if d.Do(d.Key, "GET", "/volumes/data", "", &used); used.Used > 64<<20 || used.Used < 16<<20 {
		t.Errorf("on the host it takes %d bytes", used.Used)
	}
	if res := d.sh(sb.ID, "rm /data/full; i=0; while : > /data/n$i; do i=$((i+1)); done 2>/dev/null; echo $i"); len(res.Output) < 4 || len(res.Output) > 7 {
		t.Errorf("a flood of names: %+v", res)
	}
	if res := d.sh(sb.ID, "find /data -name 'n*' -delete; cat /data/f"); res.Output != "kept\n" {
		t.Errorf("after the floods: %+v", res)
	}
	// What a hostile guest makes.
	for _, command := range []string{"mknod /data/null c 1 3", "mknod /data/disk b 7 0"} {
		if res := d.sh(sb.ID, command); res.ExitCode == 0 {
			t.Errorf("%s works", command)
		}
	}
	if res := d.sh(sb.ID, `cd /data && ln -s / root && ln -s ../../../etc/shadow up && ln -s loop loop && cp /bin/sh sh && chmod 6755 sh && chown 4242:4242 f &&
		dd if=/dev/null of=sparse bs=1 seek=10G 2>/dev/null && mkdir -p a/b && chmod 0 a && mkfifo fifo && chmod 0 /data && stat -c %s sparse`); res.ExitCode != 0 || res.Output != "10737418240\n" {
		t.Errorf("ordinary work: %+v", res)
	}
	if code, text := d.send(d.Key, "GET", "/volumes/data/archive", ""); code != http.StatusOK || strings.Contains(string(text), "root:") || len(text) > 64<<20 {
		t.Errorf("backed up: %d, %d bytes", code, len(text))
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+sb.ID, "", nil); code != http.StatusNoContent {
		t.Fatalf("destroy: %d", code)
	}
	d.NoneMounted()
	next := d.box(`{"volumes":[{"name":"data","path":"/srv/old","read_only":true}]}`)
	if res := d.sh(next.ID, "cat /srv/old/f; touch /srv/old/g 2>&1 || echo refused"); !strings.HasPrefix(res.Output, "kept\n") || !strings.HasSuffix(res.Output, "refused\n") {
		t.Errorf("the next one: %+v", res)
	}
	if code := d.Do(d.Key, "DELETE", "/volumes/data", "", nil); code != http.StatusConflict {
		t.Errorf("removed while it is used: %d", code)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+next.ID, "", nil)
	if code := d.Do(d.Key, "DELETE", "/volumes/data", "", nil); code != http.StatusNoContent {
		t.Errorf("removed: %d", code)
	}
	d.NoneMounted()
	if left, err := os.ReadDir(filepath.Join(d.Dir, "volumes")); err != nil || len(left) > 0 {
		t.Errorf("left of the volumes: %v, %v", left, err)
	}
}

// TestTenantStorage: sandboxes of one tenant share what outlives them, with any user.
func TestTenantStorage(t *testing.T) {
	t.Parallel()
	storage := filepath.Join(DataDir(t), "tenants")
	d := StartDaemon(t, "--storage", storage)
	a, b := d.box(`{"tenant_id":"acme"}`), d.box(`{"tenant_id":"acme","user":"1000"}`)
	d.sh(a.ID, "echo shared > /workspace/f; chmod 666 /workspace/f; echo out > /mnt/user-data/outputs/o")
	var res executed
	d.Do(d.Key, "POST", "/sandboxes/"+b.ID+"/execute", `{"command":"id -u; cat /workspace/f /mnt/user-data/outputs/o && echo x > /workspace/t && cat /workspace/t"}`, &res)
	if res.Output != "1000\nshared\nout\nx\n" {
		t.Errorf("the other sandbox: %+v", res)
	}
	if b, err := os.ReadFile(filepath.Join(storage, "acme", "workspace", "f")); err != nil || string(b) != "shared\n" {
		t.Errorf("on the host: %q, %v", b, err)
	}
	for _, tenant := range []string{"../x", "..", "a/b", ".owners", ""} {
		var p served
		if code := d.Do(d.Key, "POST", "/sandboxes", fmt.Sprintf(`{"tenant_id":%q}`, tenant), &p); tenant != "" && code != http.StatusBadRequest {
			t.Errorf("tenant %q: %d %+v", tenant, code, p)
		} else if tenant == "" && code == http.StatusCreated {
			d.Do(d.Key, "DELETE", "/sandboxes/"+p.ID, "", nil)
		}
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+a.ID+"?remove_storage=true", "", nil); code != http.StatusConflict {
		t.Errorf("removed while another one has it: %d", code)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+a.ID, "", nil)
	d.Kill()
	d.Start()
	if got := d.sh(b.ID, "cat /workspace/f"); got.Output != "shared\n" {
		t.Errorf("after a restart: %+v", got)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+b.ID, "", nil)
	c := d.box(`{"tenant_id":"acme"}`)
	if got := d.sh(c.ID, "cat /workspace/f"); got.Output != "shared\n" {
		t.Errorf("the next sandbox: %+v", got)
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+c.ID+"?remove_storage=true", "", nil); code != http.StatusNoContent {
		t.Errorf("removed with it: %d", code)
	}
	if _, err := os.Stat(filepath.Join(storage, "acme")); !os.IsNotExist(err) {
		t.Errorf("the storage is left: %v", err)
	}
}

// TestVolumeCommands goes through what the command line has for volumes.
func TestVolumeCommands(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	must := func(args ...string) string {
		t.Helper()
		out := d.Run(args...)
		if out.Code != 0 {
			t.Fatalf("%q: %+v", args, out)
		}
		return strings.TrimSpace(out.Stdout)
	}
	must("volume", "create", "data")
	a := must("create", "--volume", "data:/data")
	must("exec", a, "--", "sh", "-c", "echo kept > /data/f; ln -s / /data/l")
	if out := must("volume", "ls"); !strings.Contains(out, "data") || !strings.Contains(out, a) {
		t.Errorf("ls: %s", out)
	}
	for args, want := range map[string]string{
		"volume rm data": "is used by", "volume create data": "already", "volume rm none": "not found", "create --volume data": "such as data:/data",
		"create --volume none:/d": "a volume that you have made", "create --volume data:/d": "is used by",
	} {
		if out := d.Run(strings.Fields(args)...); out.Code == 0 || !strings.Contains(out.Stderr, want) {
			t.Errorf("%s: %+v", args, out)
		}
	}
	archive := filepath.Join(t.TempDir(), "data.tar.gz")
	must("volume", "backup", "data", "-o", archive)
	must("volume", "create", "copy")
	must("volume", "restore", "copy", archive)
	b := must("create", "--volume", "copy:/c:ro")
	if out := must("exec", b, "--", "sh", "-c", "cat /c/f; readlink /c/l; touch /c/g || echo refused"); out != "kept\n/\nrefused" {
		t.Errorf("the copy has %q", out)
	}
	if out := must("volume", "inspect", "copy"); !strings.Contains(out, `"used"`) {
		t.Errorf("inspect: %s", out)
	}
	must("rm", a, b)
	must("volume", "rm", "data", "copy")
	if out := must("volume", "ls", "-q"); out != "" {
		t.Errorf("left: %s", out)
	}
	d.NoneMounted()
}
