package image

import (
	"bufio"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithUs lets the command end when this process is killed, and keeps a
// terminal's Ctrl-C from it: it is told to end by us.
func endWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// interrupt tells the command and its children to end, as Ctrl-C would.
func interrupt(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }

// privateMounts gives the command a mount namespace of its own, so that its
// mounts are gone when its last process is.
func privateMounts(cmd *exec.Cmd) { cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS }

// memoryForScratch returns how many bytes a root file system may take in memory
// while it is made, or 0: it goes to the disk then. In memory it takes half the
// time, because packages are many small files.
func memoryForScratch() int64 {
	if os.Geteuid() != 0 {
		return 0 // can't mount
	}
	// An image takes one or two gigabytes, and as much must be left for others.
	const enough = 6 << 30
	free := min(availableMemory(), cgroupMemory("/sys/fs/cgroup/memory.max"), cgroupMemory("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
	if free < enough {
		return 0
	}
	return free / 2
}

// availableMemory is MemAvailable of proc_meminfo(5).
func availableMemory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// cgroupMemory is the limit of the container that this process may live in.
func cgroupMemory(file string) int64 {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return math.MaxInt64
	}
	if s := strings.TrimSpace(string(text)); err == nil && s != "max" {
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	return math.MaxInt64
}
