package oracle

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFinds leaves one thing of each kind behind and expects to hear of it.
func TestFinds(t *testing.T) {
	p := NewPlace(t, "")
	before := Take(t, p)
	if diff, err := before.Diff(); err != nil || len(diff) > 0 {
		t.Fatalf("nothing happened, and the difference is %q, %v", diff, err)
	}

	t.Run("process and what descends from it", func(t *testing.T) {
		// The child of the shell does not name the directory.
		cmd := exec.Command("sh", "-c", "sleep 1000 & wait", "--root="+p.DataDir+"/owners/x")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, before, ": sleep 1000") // not the shell, whose command line has it, too
		diff, _ := before.Diff()
		t.Cleanup(func() { before.Check(t, 10*time.Second) })
		t.Cleanup(func() {
			procs, _ := processes()
			for _, p := range procs.of(p.DataDir) {
				if proc, err := os.FindProcess(p.pid); err == nil {
					_ = proc.Kill()
				}
			}
			_ = cmd.Wait()
		})
		if n := count(diff, "process: "); n != 2 {
			t.Errorf("%d processes in %q, want 2", n, diff)
		}
	})
	t.Run("zombie of the test", func(t *testing.T) {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, before, "state Z")
		_ = cmd.Wait()
		before.Check(t, 10*time.Second)
	})
	t.Run("file", func(t *testing.T) {
		for _, dir := range []string{p.DataDir, p.TempDir} {
			name := filepath.Join(dir, "left")
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			eventually(t, before, name)
			_ = os.Remove(name)
		}
	})
	t.Run("open file", func(t *testing.T) {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, before, "-> /dev/null")
		f.Close()
	})
	t.Run("socket", func(t *testing.T) {
		l, err := net.Listen("unix", filepath.Join(p.DataDir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, before, "socket: "+p.DataDir)
		l.Close()
		before.Check(t, 10*time.Second)
	})
	t.Run("mount", func(t *testing.T) {
		dir := filepath.Join(p.TempDir, "m")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
		if out, err := exec.Command("mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
			t.Skipf("mounting needs root: %s", out)
		}
		defer func() { _ = exec.Command("umount", dir).Run() }()
		eventually(t, before, "mount: ")
	})
	t.Run("cgroup", func(t *testing.T) {
		base := "/sys/fs/cgroup"
		if _, err := os.Stat(base + "/cgroup.controllers"); err != nil {
			base += "/pids"
		}
		dir, other := filepath.Join(base, "agentbox", "oracle-test"), filepath.Join(base, "agentbox", "oracle-other")
		for _, d := range []string{dir, other} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Skipf("making a group needs root: %v", err)
			}
		}
		owner := filepath.Join(p.DataDir, "owners", "oracle-test")
		if err := os.MkdirAll(owner, 0o700); err != nil {
			t.Fatal(err)
		}
		eventually(t, before, owner)
		if err := os.RemoveAll(filepath.Dir(owner)); err != nil { // a group is left of it
			t.Fatal(err)
		}
		eventually(t, before, "cgroup: "+dir)
		if diff, _ := before.Diff(); count(diff, other) > 0 {
			t.Errorf("the group of somebody else is in %q", diff)
		}
		for _, d := range []string{dir, other} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
		_ = os.Remove(filepath.Dir(dir)) // others may use it
	})
	before.Check(t, 10*time.Second)
}

// eventually waits for a difference that contains want.
func eventually(t *testing.T, s *Snapshot, want string) {
	t.Helper()
	var diff []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		diff, _ = s.Diff()
		if count(diff, want) > 0 {
			return
		}
	}
	t.Errorf("no %q among what was left behind: %q", want, diff)
}

func count(lines []string, want string) int {
	return len(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, want) }))
}

func TestParseStat(t *testing.T) {
	p, err := parseStat("42 (a b) (c)) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2\n")
	if err != nil || p.pid != 42 || p.parent != 7 || p.name != "a b) (c)" || p.start != "98765" || p.state != "S" {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, bad := range []string{"", "42", "42 (x", "42 (x) S 1", "x (x) " + strings.Repeat("1 ", 30)} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
