package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Enter runs f, so that processes which f itself forks are born in the group.
//
// On version 1 a thread of ours moves there for the time of f. Moving a thread
// that moves itself costs next to nothing, whereas moving a process makes the
// kernel wait for an RCU grace period per controller. The thread is not the
// first one of the process, so our memory stays charged where it was. f runs on
// another goroutine than the caller and must not start goroutines that fork.
//
// Version 2 has no such threads for memory: there f just runs, and
// [Group.Add] has to move what it forked.
func (g *Group) Enter(f func() error) error {
	if g.mode != V1 {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- g.enterThread(f) }()
	return <-done
}

func (g *Group) enterThread(f func() error) error {
	// Never unlocked: the thread ends with its goroutine, so that nothing else
	// runs in the group afterwards.
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The first thread decides where the memory of the whole process is
		// charged, and it can't end. While we hold it, another one is used.
		defer runtime.UnlockOSThread()
		return g.Enter(f)
	}
	for _, dir := range g.distinct() {
		if err := g.tree.Write(path.Join(dir, "tasks"), "0"); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	return f()
}

// Add moves the processes and all their descendants into the group; those that
// are in it already cost nothing. A process that ended is not an error.
func (g *Group) Add(pids ...int) error {
	if len(g.dirs) == 0 {
		return nil
	}
	in, err := g.inAll()
	if err != nil {
		return err
	}
	// A process may fork just before it is moved; its child is found in the
	// next round. The last round finds nobody new.
	for found := true; found; {
		found = false
		for _, pid := range family(pids) {
			if in[pid] {
				continue
			}
			if err := g.move(pid); err != nil {
				return err
			}
			in[pid], found = true, true
		}
	}
	return nil
}

// inAll returns the processes that are in every directory of the group.
func (g *Group) inAll() (map[int]bool, error) {
	count := map[int]int{}
	dirs := g.distinct()
	for _, dir := range dirs {
		s, err := g.tree.Read(path.Join(dir, procs))
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup: %w", err)
		}
		for _, pid := range pidList(s) {
			count[pid]++
		}
	}
	in := map[int]bool{}
	for pid, n := range count {
		in[pid] = n == len(dirs)
	}
	return in, nil
}

func (g *Group) move(pid int) error {
	for _, dir := range g.distinct() {
		err := g.tree.Write(path.Join(dir, procs), strconv.Itoa(pid))
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("move process %d to cgroup: %w", pid, err)
		}
	}
	return nil
}

// family returns pids and their descendants.
func family(pids []int) []int {
	all := slices.Clone(pids)
	for i := 0; i < len(all); i++ {
		for _, pid := range children(all[i]) {
			if !slices.Contains(all, pid) {
				all = append(all, pid)
			}
		}
	}
	return all
}

// children of a process; none when it ended.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is good
	var all []int
	for _, f := range files {
		s, _ := osTree{}.Read(f) // the thread may have ended
		all = append(all, pidList(s)...)
	}
	return all
}
