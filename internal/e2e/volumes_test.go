package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentbox/internal/failpoint"
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

// mounted lists what of the daemon's volumes is mounted, and the loop devices that
// have their files.
func (d *Daemon) mounted() (all []string) {
	d.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, d.Dir+"/") {
			all = append(all, line)
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, l := range loops {
		if b, err := os.ReadFile(l); err == nil && strings.HasPrefix(string(b), d.Dir+"/") {
			all = append(all, l)
		}
	}
	return all
}

// noneMounted waits until nothing of the volumes is mounted: a process of another
// test that began a mount namespace of its own has our mounts for a moment.
func (d *Daemon) noneMounted() {
	d.t.Helper()
	for end := time.Now().Add(20*time.Second + Slack()); ; time.Sleep(20 * time.Millisecond) {
		left := d.mounted()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			d.t.Errorf("left mounted: %q", left)
			return
		}
	}
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
	d.noneMounted()
	next := d.box(`{"volumes":[{"name":"data","path":"/srv/old","read_only":true}]}`)
	if res := d.sh(next.ID, "cat /srv/old/f; touch /srv/old/g || echo refused"); !strings.HasPrefix(res.Output, "kept\n") || !strings.HasSuffix(res.Output, "refused\n") {
		t.Errorf("the next one: %+v", res)
	}
	if code := d.Do(d.Key, "DELETE", "/volumes/data", "", nil); code != http.StatusConflict {
		t.Errorf("removed while it is used: %d", code)
	}
	d.Do(d.Key, "DELETE", "/sandboxes/"+next.ID, "", nil)
	if code := d.Do(d.Key, "DELETE", "/volumes/data", "", nil); code != http.StatusNoContent {
		t.Errorf("removed: %d", code)
	}
	d.noneMounted()
	if left, err := os.ReadDir(filepath.Join(d.Dir, "volumes")); err != nil || len(left) > 0 {
		t.Errorf("left of the volumes: %v, %v", left, err)
	}
}

// TestVolumeDaemonIsKilled: after a kill -9 the next daemon finds the sandbox with
// its volume, mounted and held; stop and start keep it so.
func TestVolumeDaemonIsKilled(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.Do(d.Key, "POST", "/volumes", `{"name":"data"}`, nil)
	sb := d.box(withData)
	body := `{"command":"while sleep 0.05; do echo line >> /data/log; done","detach":true}`
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/execute", body, nil); code != http.StatusAccepted {
		t.Fatalf("a command in the background: %d", code)
	}
	size := func() int { return len(d.sh(sb.ID, "cat /data/log").Output) }
	grows := func() {
		t.Helper()
		first := size()
		for end := time.Now().Add(10*time.Second + Slack()); size() <= first; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the command writes no more")
			}
		}
	}
	grows()
	for range 2 {
		d.Kill()
		d.Start()
		grows()
		if got := d.holders("data"); len(got) != 1 || got[0] != sb.ID {
			t.Errorf("held by %v", got)
		}
		var p served
		if code := d.Do(d.Key, "POST", "/sandboxes", withData, &p); code != http.StatusConflict || !strings.Contains(p.Detail, sb.ID) {
			t.Errorf("a second sandbox: %d %+v", code, p)
		}
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/stop", "", nil); code != http.StatusOK {
		t.Fatalf("stop: %d", code)
	}
	d.Kill()
	d.Start()
	if got := d.holders("data"); len(got) != 1 {
		t.Errorf("while it is stopped the volume is held by %v", got)
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/start", "", nil); code != http.StatusOK {
		t.Fatalf("start: %d", code)
	}
	if size() == 0 {
		t.Error("the files are gone")
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+sb.ID, "", nil); code != http.StatusNoContent {
		t.Errorf("destroy: %d", code)
	}
	if got := d.holders("data"); len(got) != 0 {
		t.Errorf("after its end the volume is held by %v", got)
	}
	d.noneMounted()
}

// TestVolumeKilledAtEachFailpoint kills the daemon at each step of making and of
// destroying a sandbox with a volume: the next one has the sandbox, which holds the
// volume, or nothing, and the volume is free and not mounted.
func TestVolumeKilledAtEachFailpoint(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.Do(d.Key, "POST", "/volumes", `{"name":"data"}`, nil)
	const body = `{"name":"a","volumes":[{"name":"data","path":"/data"}]}`
	ready := func() {
		if code := d.Do(d.Key, "GET", "/sandboxes/a", "", nil); code == http.StatusNotFound {
			d.sh(d.box(body).ID, "echo kept > /data/f")
		}
	}
	for _, op := range []struct {
		call   Call
		points []failpoint.Point
		before func()
	}{
		{Call{Key: d.Key, Method: "POST", Path: "/sandboxes", Body: body}, stormyOps["create"].points, func() { d.Do(d.Key, "DELETE", "/sandboxes/a", "", nil) }},
		{Call{Key: d.Key, Method: "DELETE", Path: "/sandboxes/a"}, stormyOps["destroy"].points, ready},
	} {
		ready() // so that there is a file to find
		for _, p := range op.points {
			op.before()
			d.Stop()
			if err := d.StartWith(failpoint.Variable + "=" + string(p) + "=kill"); err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			if a, err := d.Try(op.call); err == nil {
				t.Fatalf("%s: the daemon lives, and says %d %s", p, a.Code, a.Body)
			}
			d.Kill()
			d.Start()
			var sb served
			code, held := d.Do(d.Key, "GET", "/sandboxes/a", "", &sb), d.holders("data")
			switch {
			case code == http.StatusNotFound && len(held) == 0:
				d.noneMounted()
				if pids := Count(t, d.Dir+"/daemon"); pids != 0 {
					t.Errorf("%s: %d processes of sandboxes are left", p, pids)
				}
				ready()
			case code != http.StatusOK || sb.Status != "running" || len(held) != 1 || held[0] != sb.ID:
				t.Fatalf("%s: the sandbox is %d %+v, and %v hold the volume", p, code, sb, held)
			}
			d.Do(d.Key, "GET", "/sandboxes/a", "", &sb)
			if got := d.sh(sb.ID, "cat /data/f && echo >> /data/log"); got.Output != "kept\n" {
				t.Errorf("%s: the file holds %+v", p, got)
			}
		}
	}
	d.Do(d.Key, "DELETE", "/sandboxes/a", "", nil)
	d.noneMounted()
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
	d.noneMounted()
}
