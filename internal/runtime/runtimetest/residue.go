package runtimetest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentbox/internal/ids"
)

// traces are what a sandbox can leave behind, by kind.
type traces map[string][]string

// look finds everything that belongs to the test's directory or to a sandbox of
// the test.
func (e *env) look() traces {
	e.Helper()
	t := traces{
		"descriptors": e.descriptors(),
		"processes":   e.processes(),
		"mounts":      e.mounts(),
		"cgroups":     e.cgroups(),
		"files":       e.files(),
	}
	if e.f.Residue != nil {
		more, err := e.f.Residue(e.dir)
		e.ok(err)
		t["residue"] = more
	}
	return t
}

// checkResidue compares with an earlier look. What ends a moment after the call
// that ends it, such as a process in the hands of the kernel, gets that moment.
func (e *env) checkResidue(before traces) {
	e.Helper()
	var left []string
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		left = left[:0]
		for kind, now := range e.look() {
			for _, x := range now {
				if !slices.Contains(before[kind], x) {
					left = append(left, kind+": "+x)
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	e.Errorf("left behind:\n\t%s", strings.Join(left, "\n\t"))
}

// descriptors of this process, but for those of Go itself and of the look.
func (e *env) descriptors() []string {
	all, err := os.ReadDir("/proc/self/fd")
	e.ok(err)
	var open []string
	times := map[string]int{}
	for _, d := range all {
		target, err := os.Readlink("/proc/self/fd/" + d.Name())
		if err != nil || strings.HasSuffix(target, "/fd") || strings.HasPrefix(target, "anon_inode:[event") {
			continue
		}
		times[target]++ // numbers change when a back end is opened again
		open = append(open, fmt.Sprintf("%s (%d)", target, times[target]))
	}
	return open
}

// processes that have the test's directory in their command line, and children
// of this process. A zombie has no command line, and one that waits for
// the machine's init is no child of ours.
func (e *env) processes() []string {
	all, err := os.ReadDir("/proc")
	e.ok(err)
	var found []string
	for _, p := range all {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmd, err := os.ReadFile(filepath.Join("/proc", p.Name(), "cmdline"))
		if err != nil {
			continue // it ended
		}
		if bytes.Contains(cmd, []byte(e.dir)) || parent(pid) == os.Getpid() {
			found = append(found, fmt.Sprintf("%d %q", pid, cmd))
		}
	}
	return found
}

// parent reads the parent of a process from proc(5); 0 when it is gone.
func parent(pid int) int {
	f := statFields(pid)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// statFields are the fields of /proc/PID/stat from the third, the state, on.
func statFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(b[bytes.LastIndexByte(b, ')'):]), " ")
	return strings.Fields(rest)
}

func (e *env) mounts() []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	e.ok(err)
	var found []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, e.dir) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// cgroups whose path names a sandbox of the test.
func (e *env) cgroups() []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // without cgroups there are none of ours; others come and go
		}
		if slices.ContainsFunc(e.made, func(id string) bool { return strings.Contains(path, ids.Short(id)) }) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

func (e *env) files() []string {
	var found []string
	err := filepath.WalkDir(e.dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(e.dir, path)
		if slices.Contains(e.f.Keeps, rel) {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			return nil // it was just removed
		}
		found = append(found, rel)
		return nil
	})
	e.ok(err)
	return found
}
