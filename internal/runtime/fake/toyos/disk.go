package toyos

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// Disk holds the files of one sandbox. It outlives the systems that run on it.
type Disk struct{ disk *disk }

// NewDisk makes a disk with the usual directories and the users root (uid 0)
// and user (uid 1000). All file contents together take at most limit bytes; 0
// is no limit.
func NewDisk(limit int64) *Disk {
	d := newDisk(limit)
	root, user := d.users[0], d.users[1]
	for _, dir := range []struct {
		path  string
		mode  uint32
		owner cred
	}{
		{"bin", 0o755, root}, {"etc", 0o755, root}, {"home", 0o755, root}, {"root", 0o700, root}, {"run", 0o755, root},
		{"tmp", 0o1777, root}, {"usr", 0o755, root}, {"var", 0o755, root}, {"var/tmp", 0o1777, root},
		{"home/user", 0o755, user}, {"workspace", 0o755, user},
	} {
		d.mustDir(dir.path, dir.mode, dir.owner)
	}
	return &Disk{d}
}

func newDisk(limit int64) *disk {
	d := &disk{limit: limit, notifiers: map[*notifier]struct{}{}, users: users{{"root", 0, 0, "/root"}, {"user", 1000, 1000, "/home/user"}}}
	d.root = d.newNode(syscall.S_IFDIR|0o755, cred{})
	d.root.parent = d.root
	return d
}

// Clone copies the disk as it is. Files without a name stay behind; what is
// mounted on it is on the copy, too.
func (d *Disk) Clone() *Disk {
	d.disk.mu.Lock()
	defer d.disk.mu.Unlock()
	c := &disk{limit: d.disk.limit, users: d.disk.users, lastIno: d.disk.lastIno, mounts: d.disk.mounts, notifiers: map[*notifier]struct{}{}}
	c.root = c.copyOf(d.disk.root, map[*node]*node{})
	c.root.parent = c.root
	return &Disk{c}
}

// copyOf copies a node with all below it. Names of one node stay names of one.
func (d *disk) copyOf(n *node, done map[*node]*node) *node {
	if c, ok := done[n]; ok {
		return c
	}
	c := *n
	done[n] = &c
	c.open, c.data, c.entries = 0, slices.Clone(n.data), nil
	d.used += int64(len(c.data))
	if n.entries != nil {
		c.entries = make(map[string]*node, len(n.entries))
	}
	for name, child := range n.entries {
		to := d.copyOf(child, done)
		if to.is(syscall.S_IFDIR) {
			to.parent = &c
		}
		c.entries[name] = to
	}
	return &c
}

func (d *disk) mustDir(path string, mode uint32, owner cred) {
	at := d.root
	for part := range strings.SplitSeq(path, "/") {
		next, ok := at.entries[part]
		if !ok {
			next = d.newNode(syscall.S_IFDIR|mode, owner)
			at.add(part, next)
		}
		at = next
	}
}

// disk is the tree of nodes. Its lock is held for each operation.
type disk struct {
	users users
	limit int64
	// mounts are made before the disk is used.
	mounts []mount

	mu      sync.Mutex
	root    *node
	lastIno uint64

	notifiers map[*notifier]struct{}
	used      int64
}

// node is a file, a directory or a symbolic link.
type node struct {
	mode         uint32 // type and permission bits, as st_mode
	owner        cred
	ino          uint64
	links        uint32
	mtime, ctime time.Time
	data         []byte           // of a file
	open         int              // descriptors of a file
	target       string           // of a link
	entries      map[string]*node // of a directory
	parent       *node            // of a directory
}

func (d *disk) newNode(mode uint32, owner cred) *node {
	d.lastIno++
	now := time.Now()
	n := &node{mode: mode, owner: owner, ino: d.lastIno, links: 1, mtime: now, ctime: now}
	if n.is(syscall.S_IFDIR) {
		n.entries, n.links = map[string]*node{}, 2
	}
	return n
}

func (n *node) is(kind uint32) bool { return n.mode&syscall.S_IFMT == kind }

// link enters child into a directory and tells who watches that.
func (d *disk) link(n *node, name string, child *node) {
	n.add(name, child)
	d.notify(n, guestv1.WatchKind_WATCH_KIND_CREATE, name, child)
}

func (n *node) add(name string, child *node) {
	n.entries[name] = child
	if child.is(syscall.S_IFDIR) {
		child.parent = n
		n.links++
	}
	n.touch()
}

func (n *node) touch() { n.mtime, n.ctime = time.Now(), time.Now() }

// unlink takes child out of n.
func (d *disk) unlink(n *node, name string, child *node) {
	delete(n.entries, name)
	n.touch()
	if child.is(syscall.S_IFDIR) {
		n.links--
		child.links = 0
		return
	}
	child.links--
	child.ctime = time.Now()
	d.free(child)
}

// free gives the space of a file back when nothing refers to it any more.
func (d *disk) free(n *node) {
	if n.links == 0 && n.open == 0 {
		d.used -= int64(len(n.data))
		n.data = nil
	}
}

// resize sets the length of a file.
func (d *disk) resize(n *node, size int64) error {
	grow := size - int64(len(n.data))
	if d.limit > 0 && grow > 0 && d.used+grow > d.limit {
		return syscall.ENOSPC
	}
	d.used += grow
	if grow > 0 {
		n.data = append(n.data, make([]byte, grow)...)
	} else {
		n.data = n.data[:size]
	}
	n.touch()
	return nil
}

func (d *disk) info(path, name string, n *node) *guestv1.FileInfo {
	size := int64(len(n.data))
	if n.is(syscall.S_IFLNK) {
		size = int64(len(n.target))
	}
	return &guestv1.FileInfo{
		Path: []byte(path), Name: []byte(name), Mode: n.mode, Uid: n.owner.uid, Gid: n.owner.gid, Size: size,
		MtimeNs: n.mtime.UnixNano(), AtimeNs: n.mtime.UnixNano(), CtimeNs: n.ctime.UnixNano(), Target: []byte(n.target),
		Nlink: n.links, Ino: n.ino, Dev: 1, User: d.users.name(n.owner.uid), Group: d.users.name(n.owner.gid),
	}
}

// cred is a user.
type cred struct {
	name     string
	uid, gid uint32
	home     string
}

type users []cred

// lookup reads a name or uid, optionally with ":group". Numbers need no entry.
func (u users) lookup(s string) (cred, error) {
	if s == "" {
		return u[0], nil
	}
	name, group, hasGroup := strings.Cut(s, ":")
	who, ok := u.one(name)
	if !ok {
		return cred{}, guest.Errorf(errdefs.ErrNotFound, "the sandbox has no user %q in its /etc/passwd", name)
	}
	if hasGroup {
		g, ok := u.one(group)
		if !ok {
			return cred{}, guest.Errorf(errdefs.ErrNotFound, "the sandbox has no group %q in its /etc/group", group)
		}
		who.gid = g.uid // a group has the number of the user of its name
	}
	return who, nil
}

func (u users) one(name string) (cred, bool) {
	id, err := strconv.ParseUint(name, 10, 32)
	for _, c := range u {
		if c.name == name || err == nil && c.uid == uint32(id) {
			return c, true
		}
	}
	return cred{name: name, uid: uint32(id), home: "/"}, err == nil
}

// owner reads "user", "user:group" or ":group"; -1 is what is not given.
func (u users) owner(s string) (uid, gid int, err error) {
	name, group, _ := strings.Cut(s, ":")
	uid, gid = -1, -1
	for i, to := range []*int{&uid, &gid} {
		what := []string{name, group}[i]
		if what == "" {
			continue
		}
		c, ok := u.one(what)
		if !ok {
			return 0, 0, guest.Errorf(errdefs.ErrNotFound, "unknown user or group %q", what)
		}
		*to = int(c.uid)
	}
	if uid < 0 && gid < 0 {
		return 0, 0, guest.Errorf(errdefs.ErrInvalidArgument, "the owner is neither a user nor a group")
	}
	return uid, gid, nil
}

func (u users) name(uid uint32) string {
	for _, c := range u {
		if c.uid == uid {
			return c.name
		}
	}
	return ""
}
