package doctor

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/cgroup"
	"agentbox/internal/datadir"
	"agentbox/internal/sandbox"
)

// HostEnv gathers the facts of this machine for sandboxes in dataDir, which is
// made when it is not there. Where that is the way to get limits, this process
// is moved to a cgroup of its own (see cgroup.Detect).
func HostEnv(dataDir string) Env {
	e := Env{
		UID: os.Geteuid(), DataDir: dataDir, Kernel: kernel(), Arch: runtime.GOARCH,
		Userns: tryUserns(), Sysctl: sysctls(), Cgroup: cgroups(), Disk: disk(dataDir), Memory: HostMemory(),
		Container: container(), Seccomp: seccomp(), LSM: lsm(),
		Programs: programs("mmdebstrap", "newuidmap", "runc"), SubIDs: subIDs(), DockerTCP: dockerTCP(),
	}
	if p := e.Programs["runc"]; p != "" {
		e.Runc = runcVersion(p)
	}
	return e
}

// slurp reads a small file; what can't be read is empty.
func slurp(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return ""
	}
	return string(b)
}

func kernel() string { return strings.TrimSpace(slurp("/proc/sys/kernel/osrelease")) }

// tryUserns starts a process the way a sandbox is: with namespaces of its own,
// and, as their root, mounting and changing the root directory, which a
// security module may forbid even though the namespace can be made.
func tryUserns() error {
	cmd := exec.Command("/bin/true")
	id, gid := guestUID, guestUID
	if os.Geteuid() != 0 {
		id, gid = os.Geteuid(), os.Getegid()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:   unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Unshareflags: unix.CLONE_NEWNS,
		Chroot:       "/",
		UidMappings:  []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}},
		GidMappings:  []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
	}
	cmd.Dir = "/"
	return cmd.Run()
}

func sysctls() map[string]string {
	all := map[string]string{}
	for _, name := range []string{
		"user.max_user_namespaces", "kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns",
		"kernel.yama.ptrace_scope", "vm.overcommit_memory",
	} {
		if v := strings.TrimSpace(slurp("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))); v != "" {
			all[name] = v
		}
	}
	return all
}

// cgroups leaves the number of processes out: the sandbox's own kernel limits
// it in every mode, the host's limit is only a backstop.
func cgroups() Cgroup {
	h := cgroup.Detect(cgroup.Options{})
	missing := slices.DeleteFunc(h.NotEnforced(), func(l string) bool { return l == sandbox.LimitPids })
	return Cgroup{Version: int(h.Mode()), Reason: h.Reason(), NotEnforced: missing}
}

// fsNames of statfs(2), as far as people keep data on them.
var fsNames = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse",
	0x2fc12fc1: "zfs", // OpenZFS: ZFS_SUPER_MAGIC
}

func disk(dir string) Disk {
	if err := datadir.Make(dir); err != nil {
		return Disk{Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Disk{Err: &os.PathError{Op: "statfs", Path: dir, Err: err}}
	}
	d := Disk{FSType: fsNames[st.Type], NoExec: st.Flags&unix.ST_NOEXEC != 0, Free: int64(st.Bavail) * st.Bsize}
	if d.FSType == "" {
		d.FSType = fmt.Sprintf("file system %#x", st.Type)
	}
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		d.Err = err
		return d
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		d.Err = err
	}
	d.Holes = tryHole(f)
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if d.Unnamed = err; err == nil {
		unix.Close(fd)
	}
	return d
}

func tryHole(f *os.File) error {
	if _, err := f.Write(make([]byte, 64<<10)); err != nil {
		return err
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 32<<10)
}

// HostMemory is what this machine has and can still give. Zero: nobody knows.
func HostMemory() Memory {
	kb := map[string]int64{}
	for line := range strings.Lines(slurp("/proc/meminfo")) {
		if f := strings.Fields(line); len(f) >= 2 {
			kb[f[0]], _ = strconv.ParseInt(f[1], 10, 64) // what is no number is 0
		}
	}
	return Memory{Total: kb["MemTotal:"] << 10, Available: kb["MemAvailable:"] << 10, Swap: kb["SwapTotal:"] << 10}
}

// firstPIDs is the namespace of process ids that a kernel starts with, in which no
// engine puts a container unless it was asked for; PROC_PID_INIT_INO of
// linux/proc_ns.h.
const firstPIDs = "pid:[4026531836]"

// container finds the traces that container engines leave.
func container() string {
	for line := range strings.SplitSeq(slurp("/proc/1/environ"), "\x00") {
		if v, ok := strings.CutPrefix(line, "container="); ok {
			return v
		}
	}
	if ns, err := os.Readlink("/proc/self/ns/pid"); err == nil && ns == firstPIDs {
		return "" // files that an engine makes may be of the image that this machine was made of
	}
	for file, name := range map[string]string{"/.dockerenv": "docker", "/run/.containerenv": "podman", "/run/systemd/container": "container", "/var/run/secrets/kubernetes.io": "kubernetes"} {
		if _, err := os.Stat(file); err == nil {
			return name
		}
	}
	return ""
}

func seccomp() bool {
	for line := range strings.Lines(slurp("/proc/self/status")) {
		if v, ok := strings.CutPrefix(line, "Seccomp:"); ok {
			return strings.TrimSpace(v) != "0"
		}
	}
	return false
}

func lsm() string {
	active := strings.Split(strings.TrimSpace(slurp("/sys/kernel/security/lsm")), ",")
	if slices.Contains(active, "apparmor") || strings.HasPrefix(slurp("/sys/module/apparmor/parameters/enabled"), "Y") {
		return "AppArmor"
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil || slices.Contains(active, "selinux") {
		return "SELinux"
	}
	return ""
}

func programs(names ...string) map[string]string {
	all := map[string]string{}
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			all[n] = p
		}
	}
	return all
}

func runcVersion(program string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return ""
	}
	first, _, _ := bytes.Cut(out, []byte("\n"))
	v, _ := bytes.CutPrefix(first, []byte("runc version "))
	return string(v)
}

// subIDs reports whether the user has ranges of ids in both files; each line
// there begins with a name or a uid.
func subIDs() bool {
	who := []string{strconv.Itoa(os.Geteuid())}
	if u, err := user.Current(); err == nil {
		who = append(who, u.Username)
	}
	has := func(file string) bool {
		for line := range strings.Lines(slurp(file)) {
			if name, _, ok := strings.Cut(line, ":"); ok && slices.Contains(who, name) {
				return true
			}
		}
		return false
	}
	return has("/etc/subuid") && has("/etc/subgid")
}

func dockerTCP() []string {
	return slices.Concat(listeners(slurp("/proc/net/tcp"), 2375), listeners(slurp("/proc/net/tcp6"), 2375))
}

// listeners finds the addresses that something listens on at port, in the form
// of /proc/net/tcp: "sl local remote st …", the local one being hexadecimal
// words in the machine's byte order, a colon and the port; st 0A is LISTEN.
func listeners(table string, port int) []string {
	var all []string
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != "0A" {
			continue
		}
		addr, p, ok := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(p, 16, 16)
		if !ok || err != nil || int(n) != port {
			continue
		}
		if ip, err := hexIP(addr); err == nil {
			all = append(all, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
		}
	}
	return all
}

func hexIP(s string) (net.IP, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != net.IPv4len && len(b) != net.IPv6len {
		return nil, errors.New("no address")
	}
	for word := range slices.Chunk(b, 4) { // little endian on all that we run on
		slices.Reverse(word)
	}
	return b, nil
}
