package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// bootID tells whether the host was started anew.
func bootID(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestESC01: guest root does not reach the host's block devices.
func TestESC01(t *testing.T) {
	t.Parallel()
	c := NewCanaries(t)
	f := NewBox(t, sandbox.Limits{}).RunProbe("esc01", "root")
	for _, dev := range []string{"254:0", "8:0", "259:0"} {
		if f.Get("mknod "+dev) == "OK" {
			f.Want("read "+dev, "ENXIO", "EPERM", "EACCES", "ENODEV")
		} else {
			f.Want("mknod "+dev, "EPERM")
			f.Want("read "+dev, "ENOENT")
		}
		f.Want("mount "+dev, "EPERM", "ENODEV")
	}
	f.Want("mount /dev/vda", "EPERM", "ENODEV")
	f.Want("read /dev/mem", "ENOENT", "ENXIO", "EPERM")
	f.Want("read /dev/zero", "OK")
	c.Check(f.Text)
}

// TestESC03: no release_agent of the host can be set, and the host never runs
// one.
func TestESC03(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mark, agent := filepath.Join(dir, "pwned"), filepath.Join(dir, "agent")
	if err := os.WriteFile(agent, []byte("#!/bin/sh\n: > "+mark+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The mark works when the host runs the agent.
	if err := exec.Command(agent).Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	f := NewBox(t, sandbox.Limits{}).RunProbe("esc03", "root", agent)
	f.Want("plain mount cgroup", "EPERM", "ENODEV")
	for what, result := range f.All("") {
		if strings.HasSuffix(what, "release_agent") && result == "OK" {
			t.Errorf("%s: OK", what)
		}
	}
	for _, where := range []string{"plain", "unshared", "unshared cgroup"} {
		f.Get(where + " mount cgroup")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the host ran the release agent")
	}
}

// TestESC05: the host's emergency keys are out of reach.
func TestESC05(t *testing.T) {
	t.Parallel()
	before := bootID(t)
	f := NewBox(t, sandbox.Limits{}).RunProbe("esc05", "root")
	for _, key := range "hsubco" {
		f.Want("sysrq "+string(key), "EIO", "EROFS", "ENOENT", "EPERM", "EACCES")
	}
	f.Want("sysrq mask", "ENOENT", "EROFS", "EPERM", "EACCES")
	if bootID(t) != before {
		t.Error("the host was started anew")
	}
}

// TestESC06: system calls that belong to the owner of a machine are refused.
func TestESC06(t *testing.T) {
	t.Parallel()
	f := NewBox(t, sandbox.Limits{}).RunProbe("esc06", "root")
	names := []string{"init_module", "finit_module", "delete_module", "kexec_load", "swapon", "acct", "reboot", "syslog", "nfsservctl"}
	if f.Get("machine") == "x86_64" {
		names = append(names, "iopl", "ioperm", "uselib")
	}
	for _, name := range names {
		f.Want(name, "EPERM", "ENOSYS")
	}
	f.Want("getpid", "OK") // raw calls work
}

// hashes are the contents of the host's programs and images: agentbox with its
// parts, and runc where there is one.
func hashes(t testing.TB) map[string]string {
	t.Helper()
	files := []string{Binary(t)}
	if runc, err := exec.LookPath("runc"); err == nil {
		files = append(files, runc)
	}
	for _, dir := range []string{"engine", "guest", "images"} {
		err := filepath.WalkDir(filepath.Join(SharedDir(t), dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]string{}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		out[path] = hex.EncodeToString(h.Sum(nil))
	}
	return out
}

// TestESC08: a sandbox that overwrites whatever program starts commands in it
// harms itself only.
func TestESC08(t *testing.T) {
	t.Parallel()
	before := hashes(t)
	if len(before) < 4 {
		t.Fatalf("too few files are watched: %v", before)
	}
	box := NewBox(t, sandbox.Limits{CPUs: 2})
	var out Lines
	attacker := box.Go(Probe(t, "esc08", "root"), &out)
	out.WaitFor(t, "sh: #!/proc/self/exe", 10*time.Second)
	const execs = 200
	ends := map[string]int{}
	for i := range execs {
		argv := []string{"/bin/sh", "-c", "exit 0"}
		if i%4 == 0 {
			argv = []string{"/bin/true"}
		}
		r := box.Exec(sandbox.Command{Argv: argv, User: "root", Timeout: 10 * time.Second}, nil)
		ends[fmt.Sprintf("%s: %v %d", argv[0], r.Outcome, r.ExitCode)]++
		if i%4 == 0 && r.ShellCode() != 0 {
			t.Fatalf("/bin/true: %s", Describe(r))
		}
		if r.Outcome != sandbox.Exited && r.Outcome != sandbox.Signaled {
			t.Fatalf("%q: %s", argv, Describe(r))
		}
	}
	box.Exec(sandbox.Command{Argv: []string{"/usr/bin/touch", "/tmp/stop"}, User: "root"}, nil)
	if r := attacker.Result(); r.ShellCode() != 0 {
		t.Errorf("the attacker: %s", Describe(r))
	}
	lines, _ := out.Get()
	f := ParseFindings(t, strings.Join(lines, "\n"))
	t.Logf("%v\n%s", ends, f.Text)
	if n := len(f.All("tally ")); n == 0 {
		t.Error("the attacker tried nothing")
	}
	after := hashes(t)
	for path, h := range before {
		if after[path] != h {
			t.Errorf("%s was changed", path)
		}
	}
}

// TestESC11: namespaces, chroot and pivot_root lead nowhere.
func TestESC11(t *testing.T) {
	t.Parallel()
	c := NewCanaries(t)
	mark := "pwned-" + ids.Hex(4)
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	box := NewBox(t, sandbox.Limits{})
	f := box.RunProbe("esc11", "root", c.File, mark)
	stages := f.All("")
	secrets := 0
	for what, result := range stages {
		if strings.HasSuffix(what, " secret") {
			secrets++
			if result == "OK" {
				t.Errorf("%s: the host's file was read", what)
			}
		}
	}
	if secrets < 5 {
		t.Errorf("only %d looks at the host's file", secrets)
	}
	for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		f.Want("setns "+kind, "EPERM", "EACCES", "ENOENT", "EINVAL")
	}
	f.Want("plain secret", "ENOENT")
	f.Get("unshare all")
	f.Get("double chroot secret")
	f.Get("pivot_root")
	f.Get("nested depth")
	f.Want("proc root", "ENOENT", "EACCES", "EPERM")
	f.Want("proc cwd", "ENOENT", "EACCES", "EPERM")
	c.Check(f.Text)

	if now, err := os.Hostname(); err != nil || now != hostname {
		t.Errorf("the host's name is %q, was %q (%v)", now, hostname, err)
	}
	if mounts, err := os.ReadFile("/proc/1/mountinfo"); err != nil || strings.Contains(string(mounts), mark) {
		t.Errorf("the guest's mount is among the host's, or unknown: %v", err)
	}
	if err := box.Answers(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestESC12: a command has no descriptor but its three.
func TestESC12(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	f := box.RunProbe("esc12", "")
	f.Want("descriptors", "0 1 2")
	f.Want("reached", "nothing")
	// The probe finds one that is there.
	probe := Probe(t, "esc12", "")
	probe.Argv = append([]string{"/bin/sh", "-c", `exec 5</etc; exec "$@"`, "sh"}, probe.Argv...)
	r := box.Exec(probe, nil)
	f = ParseFindings(t, string(r.Stdout))
	f.Want("descriptors", "0 1 2 5")
	if f.Get("reached") == "nothing" {
		t.Error("the probe does not see what a descriptor leads to")
	}
	// With a terminal it is no different.
	probe = Probe(t, "esc12", "root")
	probe.TTY = true
	r = box.Exec(probe, nil)
	ParseFindings(t, strings.ReplaceAll(string(r.Stdout), "\r\n", "\n")).Want("descriptors", "0 1 2")
}
