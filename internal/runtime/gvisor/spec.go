package gvisor

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Guest root is this host user when the caller is root. Nobody else should use
// these ids; none is assigned by Debian's adduser below 100,000, and subuid
// ranges of users are no harm because sandboxes have no files of their own on
// the host.
const (
	idBase  = 100_000
	idCount = 65_536
)

func (r *Runtime) hostUser() uint32 {
	if r.rootless {
		return uint32(os.Getuid())
	}
	return idBase
}

// Capabilities of the guest's first process, all of them virtual: they mean
// something to gVisor's kernel only.
var (
	// agentCaps are what the agent needs for its work.
	agentCaps = []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL",
		"CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
	}
	// rootCaps are what a command of guest root may have besides: Docker's
	// default set without NET_RAW and MKNOD.
	rootCaps = []string{
		"CAP_AUDIT_WRITE", "CAP_FSETID", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SYS_CHROOT",
	}
)

// maxTmpfsInodes bounds the files in each tmpfs: every inode costs about a
// kilobyte of the sandbox's memory that the size of the tmpfs does not count.
const maxTmpfsInodes = 16_384

// newSpec is the OCI spec of a sandbox. It holds no host environment and no
// secret.
func (r *Runtime) newSpec(s runtime.Spec) *specs.Spec {
	l := s.Limits
	hostname := s.Hostname
	if hostname == "" {
		hostname = ids.Short(s.ID)
	}
	ids := specs.LinuxIDMapping{ContainerID: 0, HostID: r.hostUser(), Size: idCount}
	if r.rootless {
		ids.Size = 1
	}
	groups := ids
	if r.rootless {
		groups.HostID = uint32(os.Getgid())
	}
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: hostname,
		Root:     &specs.Root{Path: "/nonexistent"}, // the annotations replace it
		Process: &specs.Process{
			Args: []string{runtime.AgentPath, "init"},
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding:  append(append([]string{}, agentCaps...), rootCaps...),
				Permitted: agentCaps,
				Effective: agentCaps,
			},
			Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: uint64(l.OpenFiles), Hard: uint64(l.OpenFiles)}},
			// The agent sets no_new_privs for each command.
		},
		Mounts: append(mounts(l), binds(s.Mounts)...),
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
				{Type: specs.MountNamespace}, {Type: specs.UserNamespace}, {Type: specs.CgroupNamespace},
			},
			UIDMappings: []specs.LinuxIDMapping{ids},
			GIDMappings: []specs.LinuxIDMapping{groups},
		},
		Annotations: map[string]string{
			"dev.gvisor.spec.rootfs.source": s.Image.Path,
			"dev.gvisor.spec.rootfs.type":   "erofs",
			// Selects an upper layer in a file of its own, which we donate; the
			// directory is never opened.
			"dev.gvisor.spec.rootfs.overlay": "dir=/nonexistent",
			"dev.gvisor.spec.rootfs.options": "size=" + strconv.FormatInt(l.Disk, 10),
		},
	}
}

func mounts(l sandbox.Limits) []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: tmpfs(l.Shm, "1777")},
		{Destination: "/run", Type: "tmpfs", Source: "run", Options: tmpfs(l.Run, "0755")},
		// A mount that gVisor does not know is left out. Without any on /tmp it
		// would put a tmpfs there, in memory and without a limit.
		{Destination: "/tmp", Type: "part-of-root", Source: "none"},
	}
}

func tmpfs(size int64, mode string) []string {
	inodes := min(max(size/4096, 64), maxTmpfsInodes)
	return []string{"nosuid", "nodev", "mode=" + mode, fmt.Sprintf("size=%d", size), fmt.Sprintf("nr_inodes=%d", inodes)}
}

// bootFlags are further arguments of the sandbox process: what the guest is
// told about memory and processors. gVisor would take them from control groups
// of its own.
func bootFlags(l sandbox.Limits) []string {
	return []string{
		"--total-memory=" + strconv.FormatInt(l.Memory, 10),
		"--cpu-num=" + strconv.Itoa(guestCPUs(l)),
	}
}

// guestCPUs is how many processors the guest sees.
func guestCPUs(l sandbox.Limits) int { return max(1, int(math.Ceil(l.CPUs))) }

func writeBundle(dir string, spec *specs.Spec) error {
	b, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the OCI spec: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o600); err != nil {
		return fmt.Errorf("write the OCI spec: %w", err)
	}
	return nil
}
