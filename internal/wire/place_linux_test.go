package wire

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/ids"
)

// A copy of a data directory is refused while a sandbox of the original runs; a
// directory that was moved is not, and neither is a copy of one in which none runs.
func TestCopyIsRefused(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "data", daemonDir)
	record := filepath.Join(dir, "sandboxes", ids.UID(), "record.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(process string) {
		t.Helper()
		if err := os.WriteFile(record, []byte(fmt.Sprintf(`{"ID":%q,"State":"running","Process":%s}`, filepath.Base(filepath.Dir(record)), process)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(dir string) error { t.Helper(); return checkPlace(dir) }
	write(thisProcess(t))
	for range 2 {
		if err := check(dir); err != nil {
			t.Fatal(err)
		}
	}
	duplicate := func(name string) string {
		to := filepath.Join(root, name)
		if out, err := exec.Command("cp", "-a", filepath.Dir(dir), to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return filepath.Join(to, daemonDir)
	}
	if err := check(duplicate("copy")); err == nil || !strings.Contains(err.Error(), "is a copy") || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("a copy, while a sandbox runs: %v", err)
	}
	moved := filepath.Join(root, "moved")
	if err := os.Rename(filepath.Dir(dir), moved); err != nil {
		t.Fatal(err)
	}
	if dir = filepath.Join(moved, daemonDir); check(dir) != nil {
		t.Error("a directory that was moved is refused")
	}
	record = filepath.Join(dir, "sandboxes", filepath.Base(filepath.Dir(record)), "record.json")
	write(`{}`)
	still := duplicate("still")
	for range 2 {
		if err := check(still); err != nil {
			t.Errorf("a copy in which nothing runs: %v", err)
		}
	}
}

// thisProcess is the test as a record names a process.
func thisProcess(t *testing.T) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndex(string(stat), ")")+1:]))
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"Pid":%d,"Start":%s,"Boot":%q}`, os.Getpid(), fields[19], strings.TrimSpace(string(boot)))
}
