package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0947 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:0947 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   2: 0100007F:0947 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 1 1
   3: 0100007F:0948 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   4: 00000000000000000000000001000000:0947 00000000000000000000000000000000:0000 0A 0
   5: zz:0947 0 0A
   6: 0100007F 0 0A 0
`
	if got, want := listeners(table, 2375), []string{"0.0.0.0:2375", "127.0.0.1:2375", "[::1]:2375"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestContainer: what a container engine left in files says nothing of a machine whose
// own processes we are among.
func TestContainer(t *testing.T) {
	if ns, err := os.Readlink("/proc/self/ns/pid"); err != nil || ns != firstPIDs {
		t.Skipf("in a namespace of process ids of its own: %s, %v", ns, err)
	}
	if c := container(); c != "" {
		t.Errorf("in a container (%s)", c)
	}
}

// What is gathered here is true of any machine that tests run on.
func TestHostEnvGathersFacts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	e := HostEnv(dir)
	if e.UID != os.Geteuid() || e.Memory.Total == 0 || e.Memory.Available == 0 || len(version(e.Kernel)) < 2 || e.Disk.Free == 0 || e.Disk.FSType == "" {
		t.Errorf("%+v", e)
	}
	if e.Disk.Err != nil || e.Disk.NoExec {
		t.Errorf("a directory that tests run in is no good: %+v", e.Disk)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the data directory: %v, %v", left, err)
	}
	if d := disk("/proc/nothing/can/be/made/here"); d.Err == nil {
		t.Error("/proc is a good data directory")
	}
	r := Run(t.Context(), e)
	for _, c := range r.Checks {
		t.Logf("%-5s %s: %s [%s]", c.Status, c.Title, c.Detail, c.Fix)
	}
	t.Logf("mode: %s; %s", r.Mode, r.Identity)
}
