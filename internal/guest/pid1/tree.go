//go:build linux

package pid1

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Without control groups a command's tree is what /proc shows of it: the
// processes of its session and the descendants of its first process. A process
// that left the session and lost its parents is not found.

// task is one line of that tree.
type task struct{ pid, ppid, session int }

// tasks lists all processes but the first.
func tasks() ([]task, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	var list []task
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue // gone since
		}
		// "pid (name) state ppid pgrp session …"; the name may hold anything.
		_, rest, _ := strings.Cut(string(b[max(strings.LastIndexByte(string(b), ')'), 0):]), " ")
		f := strings.Fields(rest)
		if len(f) < 4 {
			continue
		}
		ppid, _ := strconv.Atoi(f[1])
		session, _ := strconv.Atoi(f[3])
		list = append(list, task{pid, ppid, session})
	}
	return list, err
}

// signalTree signals the tree; to kill it, again and again until no one is left
// who could fork.
func (p *process) signalTree(sig unix.Signal) error {
	const rounds = 10
	for range rounds {
		all, err := tasks()
		if err != nil {
			return err
		}
		tree := map[int]bool{p.child.pid: true}
		for grown := true; grown; {
			grown = false
			for _, t := range all {
				if !tree[t.pid] && (tree[t.ppid] || t.session == p.child.pid) {
					tree[t.pid], grown = true, true
				}
			}
		}
		n := 0
		for _, t := range all {
			if tree[t.pid] && unix.Kill(t.pid, sig) == nil {
				n++
			}
		}
		if n == 0 || sig != unix.SIGKILL {
			return nil
		}
	}
	return nil
}

// killOthers ends every process that this one may.
func killOthers() (int, error) {
	all, err := tasks()
	if err != nil || os.Getpid() != 1 {
		return 0, err
	}
	return len(all), unix.Kill(-1, unix.SIGKILL)
}
