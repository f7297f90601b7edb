package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// leaf is where processes go that sit in the cgroup under which the sandboxes'
// groups have to be made.
const leaf = top + ".host"

// detectV2 finds or prepares the base of the unified hierarchy mounted at root:
// the mount's own root for the superuser, the cgroup that we are in for others.
func (h *Host) detectV2(root string) error {
	base := root
	if h.tree.UID() != 0 {
		var err error
		if base, err = h.delegated(root); err != nil {
			return err
		}
	}
	for _, f := range []string{procs, subtree} {
		if err := h.tree.Writable(path.Join(base, f)); err != nil {
			return fmt.Errorf("cgroup v2 is mounted, but not for us to use (a container?): %w", err)
		}
	}
	have, err := h.tree.Read(path.Join(base, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of %s: %w", base, err)
	}
	var use []string
	for _, c := range []string{memory, cpu, pids} {
		if slices.Contains(strings.Fields(have), c) {
			use = append(use, c)
		}
	}
	if len(use) == 0 {
		return fmt.Errorf("cgroup %s has none of the controllers memory, cpu and pids", base)
	}
	if err := h.carry(base, use); err != nil {
		return err
	}
	h.mode, h.layout, h.base = V2, layoutV2{}, map[string]string{}
	for _, c := range use {
		h.base[c] = base
	}
	h.reason = "groups are made in " + path.Join(base, top)
	return nil
}

const subtree = "cgroup.subtree_control"

// enable hands controllers down to the children of dir, one order for all.
func enable(t tree, dir string, controllers []string) error {
	file := path.Join(dir, subtree)
	on, err := t.Read(file)
	if err != nil {
		return fmt.Errorf("read controllers: %w", err)
	}
	var order []string
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(on), c) {
			order = append(order, "+"+c)
		}
	}
	if len(order) == 0 {
		return nil
	}
	if err := t.Write(file, strings.Join(order, " ")); err != nil {
		return fmt.Errorf("enable controllers: %w", err)
	}
	return nil
}

// carry makes base hand its controllers down. That is refused as long as
// processes are in it (but for the real root of the machine), so they are moved
// to a leaf: they keep all limits that base has. Processes may be born while
// we do so, hence several rounds.
func (h *Host) carry(base string, controllers []string) error {
	const rounds = 10
	for round := 0; ; round++ {
		err := enable(h.tree, base, controllers)
		if err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		if round == rounds {
			return fmt.Errorf("processes keep appearing in %s: %w", base, err)
		}
		if err := h.evacuate(base); err != nil {
			return fmt.Errorf("move processes out of %s: %w", base, err)
		}
	}
}

func (h *Host) evacuate(base string) error {
	to := path.Join(base, leaf)
	if err := h.tree.Mkdir(to); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	list, err := h.tree.Read(path.Join(base, procs))
	if err != nil {
		return err
	}
	for _, pid := range pidList(list) {
		err := h.tree.Write(path.Join(to, procs), strconv.Itoa(pid))
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// Advice that goes with a refusal.
const howToDelegate = "start agentbox in a unit of its own: systemd-run --user --scope -p Delegate=yes agentbox …"

// delegated returns the cgroup that this ordinary user's process may arrange:
// its own, or the one above it when it was moved to the leaf before.
func (h *Host) delegated(root string) (string, error) {
	list, err := h.tree.Read("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find our own cgroup: %w", err)
	}
	own, ok := ownPath(list)
	if !ok {
		return "", errors.New("we are in no cgroup of the unified hierarchy")
	}
	dir := path.Join(root, own)
	if path.Base(dir) == leaf {
		dir = path.Dir(dir)
	}
	for _, f := range []string{procs, subtree} {
		if err := h.tree.Writable(path.Join(dir, f)); err != nil {
			return "", fmt.Errorf("cgroup %s is not delegated to us (%w); %s", dir, err, howToDelegate)
		}
	}
	if err := h.meant(dir); err != nil {
		return "", fmt.Errorf("%w; %s", err, howToDelegate)
	}
	return dir, nil
}

// meant is nil when dir, which can be written, was given away on purpose. Below
// a user's own manager everything can be written, also what systemd keeps for
// itself and may rearrange. A directory whose parent is somebody else's was
// given away; so was what belongs to a delegated unit or to no unit at all.
func (h *Host) meant(dir string) error {
	unit := unitOf(dir)
	if unit == "" || h.boundary(dir) {
		return nil
	}
	yes, err := h.tree.Delegated(unit)
	if err == nil && !yes {
		err = fmt.Errorf("cgroup %s can be written, but systemd did not delegate it", dir)
	}
	return err
}

// unitOf is the innermost systemd unit of a cgroup's path.
func unitOf(dir string) string {
	for ; dir != "/" && dir != "."; dir = path.Dir(dir) {
		if s := path.Ext(dir); s == ".scope" || s == ".service" {
			return path.Base(dir)
		}
	}
	return ""
}

func (h *Host) boundary(dir string) bool {
	own, err1 := h.tree.Owner(dir)
	above, err2 := h.tree.Owner(path.Dir(dir))
	return err1 == nil && err2 == nil && own == h.tree.UID() && above != own
}

// ownPath finds the unified hierarchy's line, "0::/path". A path that leads
// above what our cgroup namespace shows is of no use.
func ownPath(list string) (string, bool) {
	for line := range strings.Lines(list) {
		p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::/")
		if ok && !strings.HasSuffix(p, " (deleted)") && !slices.Contains(strings.Split(p, "/"), "..") {
			return "/" + p, true
		}
	}
	return "", false
}
