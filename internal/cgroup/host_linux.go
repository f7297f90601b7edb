package cgroup

import (
	"time"

	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"agentbox/internal/cleanup"
	"agentbox/internal/sandbox"
)

// Mode is how the host's control groups can be used.
type Mode int

const (
	// None: no limit of this package can be enforced.
	None Mode = iota
	// V1: one hierarchy per controller, as root.
	V1
	// V2: the unified hierarchy, as root or in a delegated unit.
	V2
)

func (m Mode) String() string {
	return [...]string{"no cgroups", "cgroup v1", "cgroup v2"}[m]
}

// Controllers that limits need. cpuacct only measures, and version 2 has it
// built into cpu.
const (
	memory  = "memory"
	cpu     = "cpu"
	pids    = "pids"
	cpuacct = "cpuacct"
)

// top is the directory under the host's base that holds all owners.
const top = "agentbox"

// Options of [Detect]. The zero value is right for a real host.
type Options struct {
	// Owner names whose groups these are, unique on the host. Two processes
	// with different owners never touch each other's groups. Default "default".
	Owner string
	// Root is where control groups are mounted. Default /sys/fs/cgroup.
	Root string

	tree tree // the host; tests have a kernel of their own
}

// Host is the control groups of this machine as this process may use them.
// Its methods may be called from any goroutine.
type Host struct {
	mode    Mode
	reason  string
	owner   string
	tree    tree
	layout  layout
	base    map[string]string // controller → directory in which top is made
	missing []string          // sandbox.Limit… names
	unified string            // mount of the unified hierarchy, also when mode is None
}

// Detect finds out which limits can be enforced here. On version 2 it also
// prepares the place: where our own cgroup has to carry the sandboxes' groups,
// the processes in it are moved into a leaf beside them, because version 2
// allows processes only in leaves.
func Detect(o Options) *Host {
	if o.Owner == "" {
		o.Owner = "default"
	}
	if o.Root == "" {
		o.Root = "/sys/fs/cgroup"
	}
	if o.tree == nil {
		o.tree = osTree{}
	}
	h := &Host{owner: o.Owner, tree: o.tree, layout: layoutV2{}} // without a base no layout writes anything
	err := checkName(o.Owner)
	switch {
	case err != nil:
	case o.tree.Exists(path.Join(o.Root, "cgroup.controllers")):
		h.unified = o.Root
		err = h.detectV2(o.Root)
	default:
		err = h.detectV1(o.Root)
	}
	if err != nil {
		h.mode, h.base, h.reason = None, nil, err.Error()
	}
	for _, l := range []struct{ limit, controller string }{
		{sandbox.LimitMemory, memory}, {sandbox.LimitCPUs, cpu}, {sandbox.LimitPids, pids},
	} {
		if h.base[l.controller] == "" {
			h.missing = append(h.missing, l.limit)
		}
	}
	return h
}

// Mode tells which version is in use.
func (h *Host) Mode() Mode { return h.mode }

// Reason says in words why the mode is None, or where the groups are.
func (h *Host) Reason() string { return h.reason }

// NotEnforced names the limits (sandbox.LimitMemory, LimitCPUs, LimitPids) that
// the host can't enforce for us.
func (h *Host) NotEnforced() []string { return slices.Clone(h.missing) }

// Limits of one group.
type Limits struct {
	// Memory is the cap in bytes, swap included.
	Memory int64
	// Pids is the number of tasks that the guest may have. The group gets the
	// far higher [PidsBackstop]: the guest's own kernel refuses the fork first.
	Pids int64
}

// PidsBackstop is the number of host tasks at which the host itself refuses a
// fork. The isolating process does not survive that, so it lies far above what
// a guest with n tasks needs.
func PidsBackstop(n int64) int64 { return max(4096, 16*n) }

// Create makes the group id and sets its limits; the CPU quota is left to
// [Group.SetCPUs], so that it does not slow the start down. A limit whose
// controller is missing (see [Host.NotEnforced]) is not set. The error is
// fs.ErrExist when the group is there already.
func (h *Host) Create(id string, l Limits) (*Group, error) {
	if err := checkName(id); err != nil {
		return nil, err
	}
	g := h.group(h.owner, id)
	// A group that is removed at the same time takes empty directories above
	// it away, or they come back without their controllers.
	const tries = 10
	for try := 1; ; try++ {
		err := h.create(g, l)
		if err == nil {
			return g, nil
		}
		if try == tries || !gone(err) {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
	}
}

func (h *Host) create(g *Group, l Limits) (err error) {
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	for _, dir := range g.distinct() {
		owner := path.Dir(dir)
		if err := h.parent(path.Dir(owner)); err != nil {
			return err
		}
		if err := h.parent(owner); err != nil {
			return err
		}
		if err := h.tree.Mkdir(dir); err != nil {
			return err
		}
		undo.Add(func() error { return h.tree.Rmdir(dir) })
	}
	if err := g.apply(h.layout.limits(l)); err != nil {
		return fmt.Errorf("set limits: %w", err)
	}
	undo.Release()
	return nil
}

// parent makes a directory above groups and lets it hand its controllers down.
func (h *Host) parent(dir string) error {
	if err := h.tree.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if h.mode != V2 {
		return nil
	}
	return enable(h.tree, dir, h.controllers())
}

// controllers are those in use, in the order in which they are enabled.
func (h *Host) controllers() []string {
	var all []string
	for _, c := range []string{memory, cpu, cpuacct, pids} {
		if h.base[c] != "" {
			all = append(all, c)
		}
	}
	return all
}

func (h *Host) group(owner, id string) *Group {
	g := &Group{id: id, mode: h.mode, tree: h.tree, layout: h.layout, dirs: map[string]string{}}
	for c, base := range h.base {
		g.dirs[c] = path.Join(base, top, owner, id)
	}
	return g
}

// Open returns the group id of this owner. It need not exist: removing what is
// not there is no error.
func (h *Host) Open(id string) (*Group, error) {
	if err := checkName(id); err != nil {
		return nil, err
	}
	all, err := h.Own()
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if g.id == id {
			return g, nil
		}
	}
	return h.group(h.owner, id), nil
}

// List returns all groups of owner, half-made ones too, sorted by id. It also
// finds those that an ordinary user's earlier process made in another unit than
// ours, and does so even where we can't make any.
func (h *Host) List(owner string) ([]*Group, error) {
	if err := checkName(owner); err != nil {
		return nil, err
	}
	found := map[string]*Group{}
	for c, bases := range h.everyBase() {
		for _, base := range bases {
			dir := path.Join(base, top, owner)
			names, err := h.tree.Subdirs(dir)
			if err != nil && !gone(err) {
				return nil, fmt.Errorf("list cgroups: %w", err)
			}
			for _, id := range names {
				if found[id] == nil {
					found[id] = &Group{id: id, mode: h.version(), tree: h.tree, layout: h.layout, dirs: map[string]string{}}
				}
				found[id].dirs[c] = path.Join(dir, id)
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Group) int { return strings.Compare(a.id, b.id) }), nil
}

// Own returns all groups of this owner, as List does.
func (h *Host) Own() ([]*Group, error) { return h.List(h.owner) }

// youngGroup is the age below which an empty group may be one that another
// process is about to fill: making a sandbox takes well under a second.
const youngGroup = time.Minute

// Purge removes all groups, of any owner, in which nothing runs, but for those
// that were made within the last minute.
func Purge() error { return Detect(Options{}).purge() }

func (h *Host) purge() error {
	owners := map[string]bool{}
	for _, bases := range h.everyBase() {
		for _, base := range bases {
			names, err := h.tree.Subdirs(path.Join(base, top))
			if err != nil && !gone(err) {
				return fmt.Errorf("list owners of cgroups: %w", err)
			}
			for _, n := range names {
				owners[n] = true
			}
		}
	}
	var errs []error
	for o := range owners {
		all, err := h.List(o)
		errs = append(errs, err)
		for _, g := range all {
			if in, err := g.Procs(); err == nil && len(in) == 0 && g.age() >= youngGroup {
				errs = append(errs, g.Remove())
			}
		}
	}
	return errors.Join(errs...)
}

func (h *Host) version() Mode {
	if h.unified != "" {
		return V2
	}
	return h.mode
}

// everyBase returns, by controller, the directories that may hold groups.
func (h *Host) everyBase() map[string][]string {
	all := map[string][]string{}
	if h.unified == "" || h.tree.UID() == 0 {
		for c, base := range h.base {
			all[c] = []string{base}
		}
		return all
	}
	var bases []string
	h.walk(h.unified, maxDepth, func(dir string) { bases = append(bases, dir) })
	for _, c := range []string{memory, cpu, pids} {
		all[c] = bases
	}
	return all
}

// maxDepth is far below where systemd puts units.
const maxDepth = 16

// walk calls f for every directory that has a directory of ours.
func (h *Host) walk(dir string, depth int, f func(dir string)) {
	names, err := h.tree.Subdirs(dir)
	if err != nil || depth == 0 { // not ours to read: nothing of ours in it
		return
	}
	for _, n := range names {
		if n == top {
			f(dir)
		} else {
			h.walk(path.Join(dir, n), depth-1, f)
		}
	}
}

// checkName accepts what can be one directory name and nothing else.
func checkName(s string) error {
	ok := s != "" && len(s) <= 128 && s[0] != '.'
	for _, c := range []byte(s) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.", c) >= 0)
	}
	if !ok {
		return fmt.Errorf("invalid cgroup name %q: letters, digits, '-', '_' and '.' are allowed", s)
	}
	return nil
}
