package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
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
func (h *Host) Create(id string, l Limits) (_ *Group, err error) {
	if err := checkName(id); err != nil {
		return nil, err
	}
	g := h.group(h.owner, id)
	var undo cleanup.Stack
	defer func() { err = errors.Join(err, undo.Run()) }()
	for _, dir := range g.distinct() {
		if err := h.mkdir(dir); err != nil {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		undo.Add(func() error { return h.tree.Rmdir(dir) })
	}
	if err := g.apply(h.layout.limits(l)); err != nil {
		return nil, fmt.Errorf("set limits of cgroup: %w", err)
	}
	undo.Release()
	return g, nil
}

// mkdir makes dir and its parents up to the base, with their controllers. A
// group that is removed at the same time may take empty parents away, hence the
// second and third try.
func (h *Host) mkdir(dir string) error {
	owner := path.Dir(dir)
	for try := 0; ; try++ {
		err := errors.Join(h.parent(path.Dir(owner)), h.parent(owner))
		if err == nil {
			err = h.tree.Mkdir(dir)
		}
		if try == 2 || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

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

// Open returns the group id of this owner, which need not exist: removing what
// is not there is no error.
func (h *Host) Open(id string) (*Group, error) {
	if err := checkName(id); err != nil {
		return nil, err
	}
	return h.group(h.owner, id), nil
}

// List returns all groups of owner, half-made ones too, sorted by id.
func (h *Host) List(owner string) ([]*Group, error) {
	if err := checkName(owner); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, base := range h.base {
		names, err := h.tree.Subdirs(path.Join(base, top, owner))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
		for _, n := range names {
			seen[n] = true
		}
	}
	var all []*Group
	for n := range seen {
		all = append(all, h.group(owner, n))
	}
	slices.SortFunc(all, func(a, b *Group) int { return strings.Compare(a.id, b.id) })
	return all, nil
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
