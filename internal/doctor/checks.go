package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentbox/internal/sandbox"
)

// checks in the order of the report. One that has nothing to say about a
// machine returns a Check without ID.
var checks = []func(Env) Check{
	checkKernel, checkContainer, checkUserns, checkPtrace, checkOvercommit,
	checkCgroup, checkDataDir, checkDisk, checkMemory, checkSwap, checkLSM, checkVolumes,
	checkImages, checkRunc, checkDocker,
}

func good(id, title, detail string) Check {
	return Check{ID: id, Title: title, Status: OK, Detail: detail}
}

func bad(s Status, id, title, detail, fix string) Check {
	return Check{ID: id, Title: title, Status: s, Detail: detail, Fix: fix}
}

// The engine holds processes by pidfd_open, which Linux has since 5.3.
const minMajor, minMinor = 5, 3

func checkKernel(e Env) Check {
	const id, title = "kernel", "kernel"
	what := fmt.Sprintf("Linux %s on %s", e.Kernel, e.Arch)
	v := version(e.Kernel)
	if slices.Compare(v, []int{minMajor, minMinor}) < 0 {
		return bad(Fail, id, title, what, fmt.Sprintf("use a kernel from %d.%d on", minMajor, minMinor))
	}
	return good(id, title, what)
}

// version parses the numbers that a version begins with: "6.12.5-amd64".
func version(s string) []int {
	var v []int
	for part := range strings.SplitSeq(s, ".") {
		digits := part
		if i := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			digits = part[:i]
		}
		n, err := strconv.Atoi(digits)
		if err != nil {
			break
		}
		if v = append(v, n); digits != part {
			break
		}
	}
	return v
}

const containerFix = "start the container as a user other than root, with a seccomp profile that allows namespaces and mounts " +
	"(docker run --user 1000 --security-opt seccomp=unconfined), or run agentbox on the host"

func checkContainer(e Env) Check {
	const id, title = "container", "surroundings"
	switch {
	case e.Container == "" && !e.Seccomp:
		return good(id, title, "not in a container")
	case e.Userns == nil:
		return good(id, title, "in a container ("+e.name()+"), but it lets us make namespaces")
	}
	return bad(Warn, id, title, "in a container ("+e.name()+"), which may forbid what sandboxes need", containerFix)
}

func (e Env) name() string {
	if e.Container == "" {
		return "a seccomp filter is set"
	}
	return e.Container
}

func checkUserns(e Env) Check {
	const id, title = "userns", "user namespaces"
	if e.Userns == nil {
		return good(id, title, "a process in a user namespace of its own was started")
	}
	return bad(Fail, id, title, "they can't be made: "+e.Userns.Error(), e.usernsFix())
}

func (e Env) usernsFix() string {
	switch {
	case e.Sysctl["user.max_user_namespaces"] == "0":
		return "sysctl -w user.max_user_namespaces=15000"
	case e.UID != 0 && e.Sysctl["kernel.unprivileged_userns_clone"] == "0":
		return "sysctl -w kernel.unprivileged_userns_clone=1, or run agentbox as root"
	case e.UID != 0 && e.Sysctl["kernel.apparmor_restrict_unprivileged_userns"] == "1":
		return "AppArmor forbids them to ordinary users: give agentbox a profile with the rule \"userns,\", " +
			"or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run agentbox as root"
	case e.Container != "" || e.Seccomp:
		return containerFix
	case e.UID != 0:
		return "a security module may forbid them to this program (see the kernel's log); or run agentbox as root"
	}
	return "the kernel needs CONFIG_USER_NS"
}

func checkPtrace(e Env) Check {
	if e.Sysctl["kernel.yama.ptrace_scope"] != "3" {
		return Check{}
	}
	return bad(Fail, "ptrace", "ptrace", "switched off for all (kernel.yama.ptrace_scope=3); the engine starts its processes with it",
		"set kernel.yama.ptrace_scope to 2 or less and reboot")
}

func checkOvercommit(e Env) Check {
	if e.Sysctl["vm.overcommit_memory"] != "2" {
		return Check{}
	}
	return bad(Warn, "overcommit", "memory overcommit", "strict (vm.overcommit_memory=2); the engine reserves far more address space than it uses",
		"sysctl -w vm.overcommit_memory=0")
}

func checkCgroup(e Env) Check {
	const id, title = "cgroup", "control groups"
	c := e.Cgroup
	missing := strings.Join(c.NotEnforced, ", ")
	switch {
	case c.Version == 0:
		fix := "mount cgroup v2 so that agentbox can write to it"
		if e.UID != 0 {
			fix = "on cgroup v2: systemd-run --user --scope -p Delegate=yes agentbox …; or run agentbox as root"
		}
		return bad(Warn, id, title, fmt.Sprintf("not usable (%s); not enforced by the host: %s. A request for one of them is refused", c.Reason, missing), fix)
	case missing != "":
		fix := "enable the controllers for this unit (systemctl edit user@.service: Delegate=cpu memory pids)"
		if c.Version == 1 {
			fix = "boot with these controllers mounted, or with cgroup v2"
		}
		return bad(Warn, id, title, fmt.Sprintf("version %d, but not enforced by the host: %s. A request for one of them is refused", c.Version, missing), fix)
	case c.Version == 1:
		return bad(Warn, id, title, "version 1: memory and cpus are enforced; this version is deprecated",
			"boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
	}
	return good(id, title, "version 2: memory and cpus are enforced; "+c.Reason)
}

func checkDataDir(e Env) Check {
	const id, title = "data_dir", "data directory"
	d := e.Disk
	where := e.DataDir
	if d.FSType != "" {
		where += " (" + d.FSType + ")"
	}
	const elsewhere = "choose another place with --data-dir or AGENTBOX_DATA_DIR"
	switch {
	case d.Err != nil:
		return bad(Fail, id, title, where+" can't be used: "+d.Err.Error(), elsewhere)
	case d.NoExec:
		return bad(Fail, id, title, where+" is mounted noexec; the engine is started from it", elsewhere+", or mount it with exec")
	case d.Unnamed != nil:
		return bad(Warn, id, title, fmt.Sprintf("%s can't hold files without a name (%v): a crash may leave some behind", where, d.Unnamed), elsewhere+" (ext4, xfs or btrfs)")
	case d.Holes != nil:
		return bad(Warn, id, title, fmt.Sprintf("%s can't give back parts of a file (%v): what sandboxes delete stays allocated until they end", where, d.Holes), elsewhere+" (ext4, xfs or btrfs)")
	case d.FSType == "tmpfs":
		return bad(Warn, id, title, where+" lies in memory: so do images and what sandboxes write", elsewhere)
	}
	return good(id, title, where+": programs run from it, unnamed files and holes work")
}

// Disk space: below failFree not even a small image fits; below warnFree one
// default image and one sandbox that fills its disk do not fit together.
const (
	failFree = 512 * sandbox.MiB
	warnFree = sandbox.DefaultDisk + 2*sandbox.GiB
)

func checkDisk(e Env) Check {
	const id, title = "disk", "disk space"
	if e.Disk.Err != nil {
		return Check{}
	}
	detail := inGiB(e.Disk.Free) + " free"
	const fix = "free some space, or choose another place with --data-dir"
	switch {
	case e.Disk.Free < failFree:
		return bad(Fail, id, title, detail, fix)
	case e.Disk.Free < warnFree:
		return bad(Warn, id, title, detail+"; an image takes 1 to 2 GiB, a sandbox up to its disk limit ("+inGiB(sandbox.DefaultDisk)+" by default)", fix)
	}
	return good(id, title, detail)
}

func inGiB(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/float64(sandbox.GiB)) }

func checkMemory(e Env) Check {
	const id, title = "memory", "memory"
	m := e.Memory
	detail := fmt.Sprintf("%s available of %s", inGiB(m.Available), inGiB(m.Total))
	if m.Available < m.Total/10 || m.Available < sandbox.DefaultMemory {
		return bad(Warn, id, title, detail+"; sandboxes are capped, not reserved: the machine itself may run out", "end something, or give sandboxes less memory")
	}
	return good(id, title, detail)
}

func checkSwap(e Env) Check {
	const id, title = "swap", "swap"
	if e.Memory.Swap == 0 {
		return good(id, title, "off")
	}
	return bad(Warn, id, title, inGiB(e.Memory.Swap)+" on: memory of sandboxes without a memory limit by the host may be written to disk", "swapoff -a, or encrypt it")
}

func checkLSM(e Env) Check {
	const id, title = "lsm", "security module"
	if e.LSM != "" {
		return good(id, title, e.LSM)
	}
	return bad(Warn, id, title, "neither AppArmor nor SELinux is active; sandboxes do not need it, it is one more layer", "boot with apparmor=1 security=apparmor")
}

func checkVolumes(e Env) Check {
	const id, title = "volumes", "volumes"
	v := e.Volumes
	switch {
	case v.Kind == "":
		return Check{}
	case v.Closed != nil:
		return bad(Warn, id, title, "sandboxes can't have any: "+v.Closed.Error(), "let everybody go through that directory (chmod o+x; what is private in the data directory stays so), or choose another place with --data-dir")
	case v.Kind == sandbox.VolumeImage:
		return good(id, title, "each is a file system in a file, so its size holds")
	case v.Kind == sandbox.VolumeQuota:
		return good(id, title, "each is a directory under a project quota, so its size holds")
	}
	return bad(Warn, id, title, "they are plain directories without a limit of size: "+v.Why.Error(),
		"run agentbox as root with mkfs.ext4 and loop devices, or mount the data directory's file system with project quotas (prjquota)")
}

func checkImages(e Env) Check {
	const id, title = "images", "building images"
	if e.Programs["mmdebstrap"] == "" {
		return bad(Warn, id, title, "mmdebstrap is missing; images that are there can be used, none can be built", "apt-get install mmdebstrap")
	}
	if e.UID != 0 && (e.Programs["newuidmap"] == "" || !e.SubIDs) {
		return bad(Warn, id, title, "an ordinary user needs newuidmap and ranges of ids to build images",
			"apt-get install uidmap && usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER; or build them as root")
	}
	return good(id, title, e.Programs["mmdebstrap"])
}

// checkRunc looks at a runc that other tools of this machine use. Releases
// before these let a container's image out onto the host (CVE-2025-31133,
// CVE-2025-52565, CVE-2025-52881, CVE-2026-41579).
func checkRunc(e Env) Check {
	const id, title = "runc", "runc"
	v := version(e.Runc)
	switch {
	case e.Runc == "":
		return Check{}
	case slices.Compare(v, []int{1, 4, 3}) >= 0, slices.Compare(v, []int{1, 3, 6}) >= 0 && slices.Compare(v, []int{1, 4}) < 0:
		return good(id, title, e.Runc)
	}
	return bad(Warn, id, title, "version "+e.Runc+" is older than the releases that close known ways out of a container; agentbox does not use it", "update runc to 1.3.6, 1.4.3 or later, or to a release of your distribution with the fixes")
}

func checkDocker(e Env) Check {
	if len(e.DockerTCP) == 0 {
		return Check{}
	}
	return bad(Warn, "docker_tcp", "Docker", "an unencrypted Docker port is open ("+strings.Join(e.DockerTCP, ", ")+"): whoever reaches it is root on this host",
		"take -H tcp://… out of Docker's options, or demand TLS")
}
