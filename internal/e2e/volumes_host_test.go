package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limited is a sandbox with what does not bound it.
type limited struct {
	ID          string
	NotEnforced []string `json:"not_enforced"`
}

// TestVolumesOfOrdinaryUser: a server without root has volumes and the storage of
// tenants, too. Nothing bounds them, and everything that could say so does.
func TestVolumesOfOrdinaryUser(t *testing.T) {
	t.Parallel()
	dir := ordinaryUser(t)
	data := filepath.Join(dir, "data")
	user := func(cmd *exec.Cmd) {
		cmd.Path, cmd.Env = filepath.Join(dir, "agentbox"), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "AGENTBOX_DATA_DIR=" + data}
		asUser(cmd, uid)
	}
	d := &Daemon{t: t, Dir: data, args: []string{"--storage", filepath.Join(dir, "tenants")}, logs: &lockedBuffer{}, adjust: user}
	d.forTest(t)
	var v struct {
		Kind        string
		NotEnforced []string `json:"not_enforced"`
	}
	var p served
	if code := d.Do(d.Key, "POST", "/volumes", `{"name":"data","size":"16m"}`, &p); code != http.StatusBadRequest || p.Code != "unsupported" {
		t.Errorf("a size that nothing holds: %d %+v", code, p)
	}
	if code := d.Do(d.Key, "POST", "/volumes", `{"name":"data"}`, &v); code != http.StatusCreated || v.Kind != "directory" || !slices.Equal(v.NotEnforced, []string{"disk"}) {
		t.Fatalf("make a volume: %d %+v", code, v)
	}
	create := func(body, unbounded string) string {
		t.Helper()
		var sb limited
		if code := d.Do(d.Key, "POST", "/sandboxes", body, &sb); code != http.StatusCreated || !slices.Contains(sb.NotEnforced, unbounded) {
			t.Fatalf("%s: %d %+v, want %q not enforced", body, code, sb, unbounded)
		}
		return sb.ID
	}
	a := create(withData, "volumes")
	got := d.sh(a, "cd /data && echo kept >f && mkdir d && mv f d && ln d/f hard && ln -s d/f soft && chmod 700 d && chown 1000:1000 d/f && dd if=/dev/zero of=big bs=1M count=20 2>/dev/null; ls; cat soft")
	if got.ExitCode != 0 || got.Output != "big\nd\nhard\nsoft\nkept\n" {
		t.Errorf("work in a volume: %+v", got)
	}
	if code := d.Do(d.Key, "DELETE", "/volumes/data", "", &p); code != http.StatusConflict {
		t.Errorf("remove a volume that is used: %d %+v", code, p)
	}
	d.want(a, "stop")
	d.Kill()
	d.Start()
	d.want(a, "start")
	if got := d.sh(a, "cat /data/hard"); got.Output != "kept\n" {
		t.Errorf("stopped, killed and started: %+v", got)
	}
	archive := d.Text(d.Key, "/volumes/data/archive")
	if !strings.Contains(archive, "d/f") || len(archive) < 20<<20 {
		t.Errorf("the archive has %d bytes", len(archive))
	}
	if code := d.Do(d.Key, "POST", "/volumes", `{"name":"again"}`, nil); code != http.StatusCreated {
		t.Errorf("make another volume: %d", code)
	}
	if a, err := d.Try(Call{Key: d.Key, Method: "PUT", Path: "/volumes/again/archive", Body: archive, Header: map[string]string{"Content-Type": "application/x-tar"}}); err != nil || a.Code != http.StatusNoContent {
		t.Errorf("restore: %v %d %s", err, a.Code, a.Text)
	}
	b := create(`{"volumes":[{"name":"again","path":"/data","read_only":true}]}`, "volumes")
	if got := d.sh(b, "cat /data/soft; { echo x >/data/x; } 2>/dev/null"); got.Output != "kept\n" || got.ExitCode == 0 {
		t.Errorf("restored, to read: %+v", got)
	}
	c, e := create(`{"tenant_id":"acme"}`, "storage"), create(`{"tenant_id":"acme"}`, "storage")
	d.sh(c, "echo shared >/workspace/s; echo out >/mnt/user-data/outputs/o")
	if got := d.sh(e, "cat /workspace/s /mnt/user-data/outputs/o"); got.Output != "shared\nout\n" {
		t.Errorf("another sandbox of the tenant: %+v", got)
	}
	for _, id := range []string{a, b, c, e} {
		if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil); code != http.StatusNoContent {
			t.Errorf("destroy: %d", code)
		}
	}
	for _, name := range []string{"data", "again"} {
		if code := d.Do(d.Key, "DELETE", "/volumes/"+name, "", nil); code != http.StatusNoContent {
			t.Errorf("remove volume %s: %d", name, code)
		}
	}
	if left, err := os.ReadDir(filepath.Join(data, "volumes")); err != nil || len(left) != 0 {
		t.Errorf("left of the volumes: %v, %v", left, err)
	}
	doctor := exec.Command(filepath.Join(dir, "agentbox"), "doctor", "--json")
	user(doctor)
	said, _ := doctor.Output() // it fails where something else is amiss
	if !strings.Contains(string(said), "volumes") || !strings.Contains(string(said), "directory") {
		t.Errorf("the doctor says nothing of the volumes: %s", said)
	}
}

// quotaDisk makes directories of the test lie on a small file system that enforces
// project quotas.
func quotaDisk(t *testing.T) {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to mount a file system")
	dir, err := os.MkdirTemp("", "abq")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	img, mnt := filepath.Join(dir, "disk"), filepath.Join(dir, "m")
	script := `set -e; mkdir "$2"; chmod 711 "${2%/*}"; truncate -s 512M "$1"; mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota "$1"; mount -o loop,prjquota "$1" "$2"`
	if out, err := exec.Command("sh", "-c", script, "sh", img, mnt).CombinedOutput(); err != nil {
		t.Skipf("no file system with project quotas can be had here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Error("unmount the disk with quotas:", err, unix.Unmount(mnt, unix.MNT_DETACH))
		}
	})
	t.Setenv("TMPDIR", mnt)
}

// TestQuotasOfProjects: where the file system of the data directory has project
// quotas, the storage of each tenant is bounded, and so are volumes where no loop
// device can be had.
func TestQuotasOfProjects(t *testing.T) {
	quotaDisk(t)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("without unshare loop devices can't be hidden:", err)
	}
	dir := DataDir(t)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, Dir: dir, args: []string{"--storage", filepath.Join(dir, "tenants"), "--volumes-storage-size", "16m"}, logs: &lockedBuffer{}, adjust: func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"unshare", "-m", "sh", "-c", `mount --bind /dev/null /dev/loop-control && exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = unshare
	}}
	d.forTest(t)
	var v struct {
		Kind        string
		NotEnforced []string `json:"not_enforced"`
	}
	if code := d.Do(d.Key, "POST", "/volumes", `{"name":"data","size":"16m"}`, &v); code != http.StatusCreated || v.Kind != "quota" || len(v.NotEnforced) != 0 {
		t.Fatalf("make a volume: %d %+v", code, v)
	}
	create := func(body string) string {
		t.Helper()
		var sb limited
		if code := d.Do(d.Key, "POST", "/sandboxes", body, &sb); code != http.StatusCreated || slices.Contains(sb.NotEnforced, "volumes") || slices.Contains(sb.NotEnforced, "storage") {
			t.Fatalf("%s: %d %+v", body, code, sb)
		}
		return sb.ID
	}
	fill := func(id, dir string) int {
		t.Helper()
		res := d.sh(id, fmt.Sprintf("dd if=/dev/zero of=%s/fill bs=64k count=1000 2>&1; stat -c %%s %s/fill", dir, dir))
		lines := strings.Fields(res.Output)
		if !strings.Contains(res.Output, "Disk quota exceeded") && !strings.Contains(res.Output, "No space left") || len(lines) == 0 {
			t.Errorf("fill %s: %+v", dir, res)
			return 0
		}
		var n int
		_, _ = fmt.Sscan(lines[len(lines)-1], &n)
		return n
	}
	const mib = 1 << 20
	acme, acme2, other, vol := create(`{"tenant_id":"acme"}`), create(`{"tenant_id":"acme"}`), create(`{"tenant_id":"other"}`), create(withData)
	if n := fill(acme, "/workspace"); n < 14*mib || n > 16*mib {
		t.Errorf("a tenant has %d bytes", n)
	}
	if res := d.sh(acme2, "dd if=/dev/zero of=/mnt/user-data/outputs/x bs=1M count=4"); res.ExitCode == 0 {
		t.Errorf("the tenant's other sandbox has room of its own: %+v", res)
	}
	if res := d.sh(other, "dd if=/dev/zero of=/workspace/x bs=1M count=8"); res.ExitCode != 0 {
		t.Errorf("another tenant has no room: %+v", res)
	}
	if n := fill(vol, "/data"); n < 14*mib || n > 16*mib {
		t.Errorf("a volume has %d bytes", n)
	}
	d.Kill()
	d.Start()
	d.sh(acme, "rm /workspace/fill")
	if n := fill(acme2, "/mnt/user-data/outputs"); n < 14*mib || n > 16*mib {
		t.Errorf("after the daemon was killed a tenant has %d bytes", n)
	}
	if res := d.sh(vol, "rm /data/fill; i=0; while echo x >/data/$i; do i=$((i+1)); [ $i -lt 5000 ] || exit 9; done 2>/dev/null; exit 0"); res.ExitCode != 0 {
		t.Errorf("files without end: %+v", res)
	}
}
