//go:build linux

package pid1

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups is the sandbox's own tree of control groups (version 2):
//
//	agent/      this process
//	jobs/       pids.max holds for all commands together
//	jobs/<n>/   one command with everything that it started
//
// The mount is hidden once it is open, so that user code, root included, can't
// raise the limit: it can't mount it again without CAP_SYS_ADMIN.
type cgroups struct {
	jobs int // file descriptor of jobs/

	mu        sync.Mutex
	n         int
	spare     *job     // for the next command, so that it need not wait for one
	lingering []string // jobs whose command ended and whose processes live on
}

// job is the control group of one command.
type job struct {
	g    *cgroups
	name string
	fd   int // to fork into, -1 when closed
}

const cgroupMount = "/sys/fs/cgroup"

// openCgroups takes over the tree. It fails where there is none of version 2; a
// sandbox without it does not start, because then a command could leave processes
// behind that nobody finds.
func openCgroups() (*cgroups, error) {
	root, err := unix.Open(cgroupMount, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", cgroupMount, err)
	}
	defer unix.Close(root)
	for _, dir := range []string{"agent", "jobs"} {
		if err := unix.Mkdirat(root, dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make control group %s: %w", dir, err)
		}
	}
	if err := delegate(root); err != nil {
		return nil, fmt.Errorf("set up control groups: %w", err)
	}
	jobs, err := unix.Openat(root, "jobs", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open control group jobs: %w", err)
	}
	g := &cgroups{jobs: jobs}
	if err := g.probe(); err != nil {
		return nil, err
	}
	// Without the right to it, RLIMIT_NPROC is what guest root can't raise.
	_ = unix.Unmount(cgroupMount, unix.MNT_DETACH)
	return g, nil
}

// delegate has the groups below root limit processes, for which none may be in root
// itself. Besides this process that may be one which the host has just started, to
// carry a stream in.
func delegate(root int) error {
	const tries = 100
	for range tries {
		b, err := readAt(root, "cgroup.procs")
		if err != nil {
			return err
		}
		for _, pid := range bytes.Fields(b) {
			if err := writeAt(root, "agent/cgroup.procs", string(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if err := writeAt(root, "cgroup.subtree_control", "+pids"); !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return unix.EBUSY
}

// probe checks that jobs can be made and killed.
func (g *cgroups) probe() error {
	j, err := g.newJob()
	if err != nil {
		return err
	}
	err = j.kill()
	j.close()
	j.remove()
	return err
}

// limit sets how many tasks all commands may have together.
func (g *cgroups) limit(pids int64) error {
	return writeAt(g.jobs, "pids.max", strconv.FormatInt(pids, 10))
}

func (g *cgroups) newJob() (*job, error) {
	g.mu.Lock()
	if j := g.spare; j != nil {
		g.spare = nil
		g.mu.Unlock()
		return j, nil
	}
	g.n++
	name := strconv.Itoa(g.n)
	g.mu.Unlock()
	if err := unix.Mkdirat(g.jobs, name, 0o755); err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	fd, err := unix.Openat(g.jobs, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a control group: %w", err)
	}
	return &job{g, name, fd}, nil
}

// prepare makes the job of the next command.
func (g *cgroups) prepare() {
	j, err := g.newJob()
	if err != nil {
		return // the next command will tell
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spare == nil {
		g.spare = j
		return
	}
	j.close()
	g.lingering = append(g.lingering, j.name)
}

// close lets go of the descriptor; the job stays.
func (j *job) close() {
	unix.Close(j.fd)
	j.fd = -1
}

// remove forgets the job as soon as no process is left in it.
func (j *job) remove() {
	j.g.mu.Lock()
	defer j.g.mu.Unlock()
	j.g.lingering = append(j.g.lingering, j.name)
	left := j.g.lingering[:0]
	for _, name := range j.g.lingering {
		if unix.Unlinkat(j.g.jobs, name, unix.AT_REMOVEDIR) == unix.EBUSY {
			left = append(left, name)
		}
	}
	j.g.lingering = left
}

// kill ends every process in the job, those that are being forked included.
func (j *job) kill() error {
	err := writeAt(j.g.jobs, j.name+"/cgroup.kill", "1")
	if removed(err) {
		return nil // nothing was left
	}
	return err
}

// removed reports whether an error says that the job is gone; one that was
// removed while its file was open is ENODEV.
func removed(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// signal sends a signal to every process in the job.
func (j *job) signal(sig unix.Signal) error {
	pids, err := procs(j.g.jobs, j.name)
	if removed(err) {
		return nil
	}
	for _, pid := range pids {
		if e := unix.Kill(pid, sig); e != nil && e != unix.ESRCH {
			err = e
		}
	}
	return err
}

// killAll ends every process of every command, waits for that and returns how
// many there were.
func (g *cgroups) killAll() (int, error) {
	count := g.pids()
	if err := writeAt(g.jobs, "cgroup.kill", "1"); err != nil {
		return 0, err
	}
	for end := time.Now().Add(killWait); g.pids() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	return count, nil
}

// killWait is how long killed processes may take to go. A process that waits
// for a disk goes later.
const killWait = 2 * time.Second

// pids is how many tasks the commands have.
func (g *cgroups) pids() int {
	b, err := readAt(g.jobs, "pids.current")
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(bytes.TrimSpace(b)))
	return n
}

func procs(dir int, name string) ([]int, error) {
	b, err := readAt(dir, name+"/cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range bytes.Fields(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 1 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func writeAt(dir int, name, value string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

// readAt reads a control file; the largest, of processes, is some 30 kB.
func readAt(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return readBounded(f, 1<<20)
}
