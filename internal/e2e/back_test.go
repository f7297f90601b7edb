package e2e

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"agentbox/internal/sandbox"
)

// parseVerdict reads what run --json printed.
func parseVerdict(t testing.TB, text string) Verdict {
	t.Helper()
	var v Verdict
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("not a verdict: %v: %.300q", err, text)
	}
	return v
}

// finding is what the doctor says about one thing.
func finding(t *testing.T, r doctorReport, id string) (status, detail, fix string) {
	t.Helper()
	for _, c := range r.Checks {
		if c.ID == id {
			return c.Status, c.Detail, c.Fix
		}
	}
	t.Errorf("the doctor says nothing about %s: %+v", id, r.Checks)
	return "", "", ""
}

// TestBACK04: the doctor names what is weak about a machine, and its status
// tells whether sandboxes can run.
func TestBACK04(t *testing.T) {
	dir := DataDir(t)
	// A runc of old, and a Docker port that is open to all.
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "runc"), []byte("#!/bin/sh\necho runc version 1.1.5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	if l, err := net.Listen("tcp", "127.0.0.1:2375"); err == nil {
		defer l.Close()
	} // else: somebody has one open

	r, out := doctor(t, dir)
	if out.Code != 0 {
		t.Fatalf("status %d on a machine that runs sandboxes: %+v", out.Code, r)
	}
	for _, id := range []string{"runc", "docker_tcp"} {
		if status, _, fix := finding(t, r, id); status != "warn" || fix == "" {
			t.Errorf("%s: %s, want a warning with a remedy", id, status)
		}
	}
	warns := func(id string) bool { status, _, _ := finding(t, r, id); return status == "warn" }
	modules, err := os.ReadFile("/sys/kernel/security/lsm")
	if confined := err == nil && (strings.Contains(string(modules), "apparmor") || strings.Contains(string(modules), "selinux")); !confined && !warns("lsm") {
		t.Errorf("no security module is active, and the doctor does not say so")
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil && !warns("cgroup") {
		t.Errorf("the host has cgroup v1, and the doctor does not say so")
	}
	if swaps, err := os.ReadFile("/proc/swaps"); err == nil && strings.Count(string(swaps), "\n") > 1 != warns("swap") {
		t.Errorf("swap is %q, and the doctor says otherwise", swaps)
	}

	// A data directory that no program can be started from is fatal.
	r, out = doctor(t, noexecDir(t))
	if status, detail, fix := finding(t, r, "data_dir"); out.Code == 0 || status != "fail" || !strings.Contains(detail, "noexec") || fix == "" {
		t.Errorf("a data directory without exec: status %d, %s %q", out.Code, status, detail)
	}
}

// asUser makes cmd run as an ordinary user of the host.
func asUser(cmd *exec.Cmd, uid uint32) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

// uid is an ordinary user.
const uid = 65_000

// ordinaryUser is a directory with what an ordinary user has: a copy of the
// program, agentbox, and in data of the image.
func ordinaryUser(t *testing.T) string {
	t.Helper()
	Need(t, os.Geteuid() == 0, "root, to become an ordinary user")
	dir, err := os.MkdirTemp("/var/tmp", "ab")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cp := exec.Command("sh", "-c", `set -e; cp "$1" "$2"/agentbox; mkdir "$2"/data; cp -a "$3"/images "$2"/data/; chmod 755 "$2"; chown -R "$4:$4" "$2"`,
		"sh", Binary(t), dir, SharedDir(t), strconv.Itoa(uid))
	if out, err := cp.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestBACK08_OrdinaryUser: a limit that was asked for and can't be enforced is an error; one
// that was not is named.
func TestBACK08_OrdinaryUser(t *testing.T) {
	dir := ordinaryUser(t)
	bin := filepath.Join(dir, "agentbox")
	run := func(flags ...string) (int, string, string) {
		t.Helper()
		cmd := exec.Command(bin, append(append([]string{"--data-dir", dir + "/data", "run", "--json"}, flags...), Image, "--", "sh", "-c", "id -u; echo ran")...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		for _, name := range []string{"AGENTBOX_ENGINE", "AGENTBOX_GUEST"} {
			if v := os.Getenv(name); v != "" {
				cmd.Env = append(cmd.Env, name+"="+v)
			}
		}
		asUser(cmd, uid)
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	code, stdout, stderr := run()
	if code != 0 {
		t.Fatalf("an ordinary user's sandbox: %d\n%s\n%s", code, stdout, stderr)
	}
	v := parseVerdict(t, stdout)
	if !strings.Contains(v.Stdout, "ran") {
		t.Errorf("the command did not run: %+v", v)
	}
	if v.HostUID != uid {
		t.Errorf("the sandbox's processes are said to be the host's user %d, want %d", v.HostUID, uid)
	}
	t.Logf("not enforced for an ordinary user: %v", v.NotEnforced)
	asked := map[string][]string{
		sandbox.LimitMemory: {"--memory", "256m"},
		sandbox.LimitCPUs:   {"--cpus", "0.5"},
		sandbox.LimitPids:   {"--pids", "100"},
		sandbox.LimitDisk:   {"--disk", "100m"},
	}
	for limit, flags := range asked {
		code, stdout, stderr := run(flags...)
		refused := slices.Contains(v.NotEnforced, limit)
		switch {
		case refused && (code != 125 || stdout != "" || !strings.Contains(stderr, limit)):
			t.Errorf("%v can't be enforced, but: %d\n%s\n%s", flags, code, stdout, stderr)
		case !refused && code != 0:
			t.Errorf("%v can be enforced, but: %d\n%s\n%s", flags, code, stdout, stderr)
		}
	}
	if len(v.NotEnforced) == 0 {
		t.Log("this user's control groups are delegated: everything is enforced")
	}
}

// TestBACK09: without its engine agentbox runs nothing; there is no weaker way.
func TestBACK09(t *testing.T) {
	each := func(data string, f func(path string) error) error {
		all, err := filepath.Glob(filepath.Join(data, "engine", "*", "agentbox-engine"))
		sidecars, _ := filepath.Glob(filepath.Join(data, "engine", "*", "gvisor-bin", "*")) // the pattern is good
		if err == nil && len(all) == 0 {
			err = errors.New("no engine is laid out")
		}
		for _, path := range append(all, sidecars...) {
			err = errors.Join(err, f(path))
		}
		return err
	}
	replaced := func(text string) func(string) error {
		return func(data string) error {
			return each(data, func(path string) error {
				return errors.Join(os.Remove(path), os.WriteFile(path, []byte(text), 0o755))
			})
		}
	}
	for name, breakIt := range map[string]func(data string) error{
		"missing":         func(data string) error { return each(data, os.Remove) },
		"no program":      replaced("no program\n"),
		"another program": replaced("#!/bin/sh\nwhile [ \"$1\" != sh ]; do shift; done; exec \"$@\"\n"),
		"not to be laid out": func(data string) error {
			dir := filepath.Join(data, "engine")
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) { withoutEngine(t, breakIt) })
	}
}

func withoutEngine(t *testing.T, breakIt func(data string) error) {
	dir := t.TempDir()
	for _, name := range []string{"images", "guest"} {
		if err := os.Symlink(filepath.Join(SharedDir(t), name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mark := filepath.Join(t.TempDir(), "ran-on-the-host")
	args := []string{"--data-dir", dir, "run", Image, "--", "sh", "-c", "echo ran; dmesg; : >" + mark}
	if out := Run(t, dir, "", args...); !strings.HasPrefix(out.Stdout, "ran\n") || !strings.Contains(out.Stdout, "gVisor") {
		t.Fatalf("with its engine: %+v", out)
	}
	if err := breakIt(dir); err != nil {
		t.Fatal(err)
	}
	out := Run(t, dir, "", args...)
	if out.Code != 125 || out.Stdout != "" || strings.TrimSpace(out.Stderr) == "" {
		t.Errorf("without its engine: %+v, want 125 and the cause", out)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the command ran on the host")
	}
}
