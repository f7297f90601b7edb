package cgroup

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernel is a small model of the host's control groups: it makes the files
// that the real one makes, keeps its rules about where processes may be, and
// records every change that is asked of it, in order.
type kernel struct {
	uid, pid  int
	self      string // /proc/self/cgroup
	dirs      map[string]*kdir
	delegated map[string]bool // unit → Delegate=
	realRoot  string          // the machine's own root, where processes may stay
	readOnly  bool
	youngDirs map[string]bool // made a moment ago
	absent    []string        // files that this kernel was built without
	log       []string
	open      int // files that stay open
}

type kdir struct {
	owner int
	files map[string]string
}

// newKernel is a host with the unified hierarchy at /cg. Directories are made
// with all controllers enabled on the way down to them.
func newKernel(uid int, self string, dirs ...string) *kernel {
	k := &kernel{uid: uid, pid: 100, self: "0::" + self + "\n", dirs: map[string]*kdir{}, delegated: map[string]bool{}, realRoot: "/cg"}
	k.dirs["/cg"] = &kdir{files: map[string]string{"cgroup.controllers": "cpuset cpu io memory pids", "cgroup.subtree_control": "cpu memory pids", procs: ""}}
	for _, d := range dirs {
		if err := k.Mkdir(path.Join("/cg", d)); err != nil {
			panic(err)
		}
		k.dirs[path.Join("/cg", d)].owner = 0
		k.dirs[path.Join("/cg", d)].files[subtree] = "cpu memory pids"
	}
	if d := k.dirs[path.Join("/cg", self)]; d != nil {
		d.files[procs] = strconv.Itoa(k.pid)
		d.files[subtree] = ""
	}
	k.log = nil
	return k
}

// give makes uid the owner of dirs.
func (k *kernel) give(uid int, dirs ...string) *kernel {
	for _, d := range dirs {
		k.dirs[path.Join("/cg", d)].owner = uid
	}
	return k
}

func (k *kernel) at(name string) (*kdir, string, error) {
	d := k.dirs[path.Dir(name)]
	if d == nil {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	}
	if _, ok := d.files[path.Base(name)]; !ok {
		return nil, "", &fs.PathError{Op: "open", Path: name, Err: unix.ENOENT}
	}
	return d, path.Base(name), nil
}

func (k *kernel) Read(name string) (string, error) {
	if name == "/proc/self/cgroup" {
		return k.self, nil
	}
	d, f, err := k.at(name)
	if err != nil {
		return "", err
	}
	return d.files[f], nil
}

// Open implements tree.
func (k *kernel) Open(name string) (file, error) {
	if _, _, err := k.at(name); err != nil {
		return nil, err
	}
	k.open++
	return &kfile{k, name}, nil
}

// kfile is a file of a kernel that is open. It has an end with the group.
type kfile struct {
	k    *kernel
	name string
}

func (f *kfile) ReadAt(p []byte, off int64) (int, error) {
	s, err := f.k.Read(f.name)
	if err != nil {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: unix.ENODEV}
	}
	return strings.NewReader(s).ReadAt(p, off)
}

func (f *kfile) Close() error {
	f.k.open--
	return nil
}

func (k *kernel) Write(name, value string) error {
	if err := k.Writable(name); err != nil {
		return err
	}
	d, f, _ := k.at(name)
	dir := path.Dir(name)
	var err error
	switch f {
	case procs:
		err = k.move(dir, value)
	case subtree:
		err = k.enable(dir, value)
	case "cgroup.kill":
		d.files[procs] = ""
	case limitV1, swapV1:
		err = d.limit(f, value)
	case "cpu.max", "cpu.max.burst":
		err = d.quota(f, value)
	default:
		d.files[f] = value
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	k.log = append(k.log, "write "+value+" to "+name)
	return nil
}

const limitV1, swapV1 = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"

// limit keeps version 1's rules about its two limits of memory.
func (d *kdir) limit(file, value string) error {
	next := map[string]int64{limitV1: number(d.files[limitV1]), swapV1: number(d.files[swapV1])}
	next[file] = number(value)
	switch {
	case next[limitV1] > next[swapV1]:
		return unix.EINVAL
	case next[file] < number(d.files["memory.usage_in_bytes"]):
		return unix.EBUSY
	}
	d.files[file] = value
	return nil
}

// quota keeps the rule that a burst is not longer than its quota.
func (d *kdir) quota(file, value string) error {
	next := maps.Clone(d.files)
	next[file] = value
	if max, _, _ := strings.Cut(next["cpu.max"], " "); max != "max" && number(next["cpu.max.burst"]) > number(max) {
		return unix.EINVAL
	}
	d.files[file] = value
	return nil
}

func (k *kernel) move(dir, pid string) error {
	if k.dirs[dir].files[subtree] != "" && dir != k.realRoot {
		return unix.EBUSY
	}
	for _, d := range k.dirs {
		all := slices.DeleteFunc(strings.Fields(d.files[procs]), func(s string) bool { return s == pid })
		d.files[procs] = strings.Join(all, "\n")
	}
	k.dirs[dir].files[procs] += "\n" + pid
	return nil
}

func (k *kernel) enable(dir, order string) error {
	d := k.dirs[dir]
	if d.files[procs] != "" && dir != k.realRoot {
		return unix.EBUSY
	}
	for _, o := range strings.Fields(order) {
		c, plus := strings.CutPrefix(o, "+")
		if !plus || !slices.Contains(strings.Fields(d.files["cgroup.controllers"]), c) {
			return unix.ENOENT
		}
		d.files[subtree] = strings.TrimSpace(d.files[subtree] + " " + c)
	}
	return nil
}

func (k *kernel) Mkdir(name string) error {
	up := k.dirs[path.Dir(name)]
	switch {
	case k.dirs[name] != nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: unix.EEXIST}
	case up == nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: unix.ENOENT}
	}
	files := map[string]string{procs: "", subtree: "", "cgroup.kill": "", "cgroup.controllers": up.files[subtree]}
	if _, v1 := up.files["tasks"]; v1 {
		files = map[string]string{"tasks": "", procs: ""}
		if strings.HasPrefix(name, "/cg/memory/") {
			maps.Copy(files, map[string]string{limitV1: "9223372036854771712", swapV1: "9223372036854771712"})
		}
		if strings.HasPrefix(name, "/cg/pids/") {
			files["pids.max"] = "max"
		}
	}
	for _, c := range strings.Fields(up.files[subtree]) {
		maps.Copy(files, map[string]map[string]string{
			"memory": {"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "memory.current": "0", "memory.peak": "0", "memory.events": "oom 0\noom_kill 0\n"},
			"cpu":    {"cpu.max": "max 100000", "cpu.max.burst": "0", "cpu.stat": "usage_usec 0\n"},
			"pids":   {"pids.max": "max", "pids.current": "0"},
		}[c])
	}
	for _, f := range k.absent {
		delete(files, f)
	}
	k.dirs[name] = &kdir{owner: k.uid, files: files}
	k.log = append(k.log, "mkdir "+name)
	return nil
}

func (k *kernel) Rmdir(name string) error {
	d := k.dirs[name]
	if d == nil {
		return &fs.PathError{Op: "rmdir", Path: name, Err: unix.ENOENT}
	}
	if sub, _ := k.Subdirs(name); len(sub) > 0 || d.files[procs] != "" {
		return &fs.PathError{Op: "rmdir", Path: name, Err: unix.EBUSY}
	}
	delete(k.dirs, name)
	k.log = append(k.log, "rmdir "+name)
	return nil
}

// Made: everything in the model is old but what youngDirs names.
func (k *kernel) Made(dir string) (time.Time, error) {
	if k.youngDirs[dir] {
		return time.Now(), nil
	}
	return time.Time{}, nil
}

func (k *kernel) Subdirs(dir string) ([]string, error) {
	if k.dirs[dir] == nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: unix.ENOENT}
	}
	var names []string
	for d := range k.dirs {
		if path.Dir(d) == dir && d != dir {
			names = append(names, path.Base(d))
		}
	}
	slices.Sort(names)
	return names, nil
}

func (k *kernel) Exists(name string) bool {
	_, _, err := k.at(name)
	return err == nil || k.dirs[name] != nil
}

func (k *kernel) Writable(name string) error {
	d, _, err := k.at(name)
	switch {
	case err != nil:
		return err
	case k.readOnly:
		return &fs.PathError{Op: "write to", Path: name, Err: unix.EROFS}
	case k.uid != 0 && d.owner != k.uid:
		return &fs.PathError{Op: "write to", Path: name, Err: unix.EACCES}
	}
	return nil
}

func (k *kernel) Owner(dir string) (int, error) {
	if k.dirs[dir] == nil {
		return 0, unix.ENOENT
	}
	return k.dirs[dir].owner, nil
}

func (k *kernel) Delegated(unit string) (bool, error) {
	yes, ok := k.delegated[unit]
	if !ok {
		return false, fmt.Errorf("ask systemd about %s: no such unit", unit)
	}
	return yes, nil
}

func (k *kernel) UID() int { return k.uid }
func (k *kernel) PID() int { return k.pid }
