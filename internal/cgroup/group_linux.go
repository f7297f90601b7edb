package cgroup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Group is one sandbox's control group. Its methods may be called from any
// goroutine. On a host without control groups there is nothing behind it: it
// measures and ends nothing, and says so by zero values.
type Group struct {
	id     string
	mode   Mode
	tree   tree
	layout layout
	dirs   map[string]string // controller → directory

	mu     sync.Mutex
	ooms   file // where they are counted; nil: it is not open
	closed bool // nothing is kept open any more
}

// ID is the name that the group was created with.
func (g *Group) ID() string { return g.id }

// Dirs are the group's directories on the host, sorted.
func (g *Group) Dirs() []string { return g.distinct() }

// JoinFiles are the files by which a process joins the group. Where perThread
// is set, each of its threads has to write "0" into every file; else one of them
// does so for all. There are none on a host without control groups.
//
// A thread that moves itself takes no lock that waits for the whole machine; a
// process that moves does.
func (g *Group) JoinFiles() (files []string, perThread bool) {
	name := procs
	if g.mode == V1 {
		name = "tasks"
	}
	for _, dir := range g.distinct() {
		files = append(files, path.Join(dir, name))
	}
	return files, g.mode == V1
}

// Add moves a process that runs already into the group, with all its threads.
// What memory it has stays counted where it was.
func (g *Group) Add(pid int) error {
	for _, dir := range g.distinct() {
		if err := g.tree.Write(path.Join(dir, procs), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d into cgroup: %w", pid, err)
		}
	}
	return nil
}

// age is the time since the group's youngest directory was made; 0 when the
// host can't tell.
func (g *Group) age() time.Duration {
	var made time.Time
	for _, dir := range g.distinct() {
		t, err := g.tree.Made(dir)
		if err != nil {
			return 0
		}
		if t.After(made) {
			made = t
		}
	}
	return time.Since(made)
}

func (g *Group) distinct() []string {
	return slices.Compact(slices.Sorted(maps.Values(g.dirs)))
}

// SetCPUs sets the CPU quota, 1.0 = one core. It does nothing where the host
// can't enforce one.
func (g *Group) SetCPUs(n float64) error {
	if err := g.change(g.layout.cpus(n)); err != nil {
		return fmt.Errorf("set cpu quota: %w", err)
	}
	return nil
}

// SetLimits changes the limits of a group whose processes run. [ErrInUse]: they
// have more memory than that already.
func (g *Group) SetLimits(l Limits) error {
	if g.layout.pinned(g.read) > l.Memory {
		return fmt.Errorf("set limits: %w", ErrInUse) // the kernel would kill them
	}
	err := g.change(g.layout.limits(l))
	if errors.Is(err, unix.EBUSY) {
		err = ErrInUse
	}
	if err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	return nil
}

// change applies settings of which one bounds the other: the limit of memory and
// that of memory and swap together, the quota and its burst. Which comes first
// depends on whether they grow.
func (g *Group) change(all []setting) error {
	err := g.apply(all)
	if errors.Is(err, unix.EINVAL) {
		slices.Reverse(all)
		err = g.apply(all)
	}
	return err
}

// ErrInUse says that a group uses more than it is to be limited to.
var ErrInUse = errors.New("more is in use")

func (g *Group) apply(all []setting) error {
	for _, s := range all {
		dir := g.dirs[s.controller]
		if dir == "" {
			continue
		}
		err := g.tree.Write(path.Join(dir, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// Stats measures the group. A group that is gone has none.
func (g *Group) Stats() Stats {
	return g.layout.stats(g.read)
}

// read is a file of a controller's, "" for what is not there.
func (g *Group) read(controller, file string) string {
	dir := g.dirs[controller]
	if dir == "" {
		return ""
	}
	s, err := g.tree.Read(path.Join(dir, file))
	if err != nil {
		return ""
	}
	return s
}

// OOMKills is the number of the group's processes that the kernel killed
// because the memory limit was reached. Read it before [Group.Remove].
func (g *Group) OOMKills() int64 { return g.layout.ooms(g.readKept) }

// maxCounters bounds a file of counters, in bytes: there are some ten in one.
const maxCounters = 4 << 10

// readKept is read for the one file that is read before each command. It stays open
// until Close or Remove: to open it takes five times as long as to read it.
func (g *Group) readKept(controller, file string) string {
	dir := g.dirs[controller]
	if dir == "" {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return g.read(controller, file)
	}
	if g.ooms == nil {
		f, err := g.tree.Open(path.Join(dir, file))
		if err != nil {
			return ""
		}
		g.ooms = f
	}
	b := make([]byte, maxCounters)
	n, err := g.ooms.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(b[:n])
}

// Close lets go of what this process holds of the group, which lives on. It can
// still be used.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.ooms == nil {
		return nil
	}
	err := g.ooms.Close()
	g.ooms = nil
	return err
}

// Procs returns the processes in the group; on version 1 those in any of its
// directories. Our own is never one of them.
func (g *Group) Procs() ([]int, error) {
	seen := map[int]bool{}
	for _, dir := range g.distinct() {
		s, err := g.tree.Read(path.Join(dir, procs))
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup: %w", err)
		}
		for _, pid := range pidList(s) {
			seen[pid] = true
		}
	}
	delete(seen, g.tree.PID())
	return slices.Sorted(maps.Keys(seen)), nil
}

const procs = "cgroup.procs"

// gone reports an error that means that the group was removed: the kernel
// answers ENODEV through a file that was opened before.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// How long Kill and Remove try. Processes in uninterruptible sleep can hold a
// group much longer; they are left to a later sweep.
const (
	patience  = 5 * time.Second
	firstWait = time.Millisecond
	maxWait   = 50 * time.Millisecond
)

// retry calls f until it is done, fails, or patience ends.
func retry(what string, f func() (done bool, err error)) error {
	end := time.Now().Add(patience)
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		done, err := f()
		if err != nil || done {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w after %v", what, os.ErrDeadlineExceeded, patience)
		}
		time.Sleep(wait)
	}
}

// Kill ends all processes in the group and waits, for some seconds, until they
// are gone. No more processes can be born in it then, so that it can only be
// removed.
func (g *Group) Kill() error {
	if dir := g.dirs[pids]; dir != "" && g.mode == V1 {
		// A fork bomb would win against a list that is read and then killed.
		if err := g.tree.Write(path.Join(dir, "pids.max"), "0"); err != nil && !gone(err) {
			return fmt.Errorf("stop forks in cgroup: %w", err)
		}
	}
	return retry("kill processes of cgroup", func() (bool, error) {
		all, err := g.Procs()
		if err != nil || len(all) == 0 {
			return err == nil, err
		}
		if g.mode == V2 {
			err := g.tree.Write(path.Join(g.distinct()[0], "cgroup.kill"), "1")
			if err == nil || gone(err) && !g.tree.Exists(g.distinct()[0]) {
				return false, nil
			}
			if !errors.Is(err, fs.ErrNotExist) { // a kernel before 5.14 has no such file
				return false, fmt.Errorf("kill cgroup: %w", err)
			}
		}
		return false, g.killEach(all)
	})
}

// killEach kills the processes that are in the group. A pid may be taken by a
// stranger at any time: the process is held by a pidfd first and only then
// looked for in the group again.
func (g *Group) killEach(all []int) error {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	for _, pid := range all {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		} else if !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("hold process %d: %w", pid, err)
		}
	}
	still, err := g.Procs()
	if err != nil {
		return err
	}
	for _, pid := range still {
		fd, ok := held[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// Remove removes the group, waiting some seconds for dying processes to leave
// it, and then the directories above it that are empty. A group that is not
// there is success.
func (g *Group) Remove() error {
	errs := []error{g.Close()}
	for _, dir := range g.distinct() {
		errs = append(errs, retry("remove cgroup "+dir, func() (bool, error) {
			err := g.tree.Rmdir(dir)
			if errors.Is(err, unix.EBUSY) {
				return false, nil
			}
			if err != nil && !gone(err) {
				return false, fmt.Errorf("remove cgroup: %w", err)
			}
			return true, nil
		}))
		// Others may have groups in them or make one just now: not an error.
		if owner := path.Dir(dir); g.tree.Rmdir(owner) == nil {
			_ = g.tree.Rmdir(path.Dir(owner))
		}
	}
	return errors.Join(errs...)
}
