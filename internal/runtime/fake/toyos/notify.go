package toyos

import (
	"io"
	"sync"
	"syscall"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// notifier tells of changes in directories of a disk. Its fields are under the
// disk's lock.
type notifier struct {
	d       *disk
	dirs    map[int]*node
	lastID  int
	changes []agent.Change
	wake    *sync.Cond
	closed  bool
}

// Notify implements agent.Files.
func (s *System) Notify() (agent.Notifier, error) {
	d := s.disk
	n := &notifier{d: d, dirs: map[int]*node{}, wake: sync.NewCond(&d.mu)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notifiers[n] = struct{}{}
	return n, nil
}

func (n *notifier) Next() ([]agent.Change, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	for len(n.changes) == 0 && !n.closed {
		n.wake.Wait()
	}
	if n.closed {
		return nil, io.EOF
	}
	c := n.changes
	n.changes = nil
	return c, nil
}

func (n *notifier) Remove(id int) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	delete(n.dirs, id)
}

func (n *notifier) Close() error {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	n.closed = true
	n.wake.Broadcast()
	delete(n.d.notifiers, n)
	return nil
}

func (v *view) Watch(to agent.Notifier, p string) (id int, err error) {
	n := to.(*notifier)
	v, in := v.at(p)
	err = v.do("watch", p, func() error {
		at, err := v.existing(in, false)
		switch {
		case n.d != v.d:
			return syscall.ENOTSUP
		case err != nil:
			return err
		case !at.node.is(syscall.S_IFDIR):
			return syscall.ENOTDIR
		}
		if err := v.may(at.node, mayRead); err != nil {
			return err
		}
		for known, dir := range n.dirs {
			if dir == at.node {
				id = known
				return nil
			}
		}
		n.lastID++
		id = n.lastID
		n.dirs[id] = at.node
		return nil
	})
	return id, err
}

// notify tells who watches dir. Without a name it is dir itself that changed.
// d.mu is held.
func (d *disk) notify(dir *node, kind guestv1.WatchKind, name string, what *node) {
	for n := range d.notifiers {
		for id, watched := range n.dirs {
			if watched == dir {
				n.changes = append(n.changes, agent.Change{ID: id, Kind: kind, Name: name, Dir: what.is(syscall.S_IFDIR)})
				n.wake.Broadcast()
				if name == "" {
					delete(n.dirs, id)
				}
			}
		}
	}
}
