package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

// namespaces that a sandbox must have for itself.
var namespaces = []string{"mnt", "pid", "net", "ipc", "uts", "user", "cgroup"}

// sentryCaps are those that gVisor's kernel may hold, in its own user namespace:
// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SYS_PTRACE.
const sentryCaps = 0x8001f

// TestPOS01: what runs a sandbox is itself confined by the host's kernel.
func TestPOS01(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	var said Lines // processes of the sandbox's ordinary user run as well
	box.Go(sandbox.Command{Shell: "echo $(id -u); sleep 600"}, &said)
	said.WaitFor(t, "1000", answerLimit)
	all := CgroupPids(box.ID)
	if len(all) < 2 {
		t.Fatalf("only the processes %v are in the sandbox's group", all)
	}
	uid := Engine(t).Capabilities().HostUser
	for _, pid := range all {
		t.Run(strconv.Itoa(pid), func(t *testing.T) {
			s := ProcStatus(t, pid)
			t.Logf("%s: uid %s, CapEff %s, Seccomp %s, NoNewPrivs %s", s["Name"], s["Uid"], s["CapEff"], s["Seccomp"], s["NoNewPrivs"])
			if s["Seccomp"] != "2" {
				t.Errorf("Seccomp is %s, want 2 (filtered)", s["Seccomp"])
			}
			if s["NoNewPrivs"] != "1" {
				t.Errorf("NoNewPrivs is %s", s["NoNewPrivs"])
			}
			for _, id := range strings.Fields(s["Uid"]) {
				if id == "0" || id != fmt.Sprint(uid) {
					t.Errorf("the process has the host's user id %s, want %d", id, uid)
				}
			}
			if caps, err := strconv.ParseUint(s["CapEff"], 16, 64); err != nil || caps&^sentryCaps != 0 {
				t.Errorf("CapEff is %s, more than %x", s["CapEff"], sentryCaps)
			}
			for _, ns := range namespaces {
				ours, err := os.Readlink("/proc/self/ns/" + ns)
				if err != nil {
					t.Fatal(err)
				}
				if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns)); err != nil || theirs == ours {
					t.Errorf("the %s namespace is the host's: %s %v", ns, theirs, err)
				}
			}
			mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(mounts, []byte("\n")); n > 2 {
				t.Errorf("the process sees %d mounts:\n%s", n, mounts)
			}
		})
	}
}

// TestPOS03: nothing that agentbox starts inherits its environment or its
// standard streams.
func TestPOS03(t *testing.T) {
	c := NewCanaries(t)
	dir := DataDir(t)
	cmd := exec.Command(Binary(t), "--data-dir", dir, "run", Image, "--", "sh", "-c", "tr '\\0' '\\n' </proc/self/environ; echo ready; exec sleep 60")
	cmd.Env = os.Environ() // with the canaries
	var out Lines
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // its status is that of an interrupted command
	}()
	out.WaitFor(t, "ready", 30*time.Second)

	// A process is the sandbox's if it names the data directory or is in its
	// owner's control groups.
	ours := owners(dir)
	if len(ours) != 1 {
		t.Fatalf("the owners of %s are %v", dir, ours)
	}
	streams := streamsOf(t, cmd.Process.Pid)
	found := 0
	for _, pid := range pids(t) {
		environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil {
			continue
		}
		command, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		group, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		if pid == cmd.Process.Pid {
			if !strings.Contains(string(environ), "CANARY_ENV=") {
				t.Error("agentbox itself has no canary: the search finds nothing")
			}
			continue
		}
		if pid == os.Getpid() {
			continue
		}
		if bytes.Contains(group, []byte("/agentbox/"+ours[0]+"/")) || bytes.Contains(command, []byte(dir)) {
			found++
			checkStreams(t, pid, streams)
		}
		c.Check(string(environ), string(command))
	}
	if found == 0 {
		t.Error("no process of a sandbox was seen")
	}
	lines, _ := out.Get()
	c.Check(strings.Join(lines, "\n"))
	t.Logf("%d processes of the sandbox looked at", found)
}

// streamsOf are what a process has for its standard streams, without what is
// everybody's.
func streamsOf(t testing.TB, pid int) map[string]bool {
	t.Helper()
	streams := map[string]bool{}
	for fd := range 3 {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err != nil {
			t.Fatal(err)
		}
		if to != os.DevNull {
			streams[to] = true
		}
	}
	if len(streams) == 0 {
		t.Fatal("the process has no stream of its own")
	}
	return streams
}

// checkStreams fails if a process holds one of another's streams.
func checkStreams(t testing.TB, pid int, streams map[string]bool) {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid)) // the pattern is good
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && streams[to] {
			t.Errorf("%s is agentbox's %s", file, to)
		}
	}
}

// TestBuildInheritsNoFile: what builds an image gets no file that our caller
// left open. Its tools pass the numbers of their files to /bin/sh, which knows those
// of one digit only.
func TestBuildInheritsNoFile(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	const fake = "#!/bin/sh\nls -l /proc/$$/fd >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(tools, "mmdebstrap"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	file, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(Binary(t), "--data-dir", t.TempDir(), "images", "build", "--mirror", "http://127.0.0.1:1/debian", "small")
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	cmd.ExtraFiles = []*os.File{w}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), " 1 -> ") {
		t.Fatalf("the build tells no open files: %v\n%s", err, out)
	}
	if strings.Contains(string(out), file) {
		t.Errorf("the build has the caller's %s open:\n%s", file, out)
	}
}
