//go:build linux

package pid1

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"agentbox/internal/guest"
)

// identity is who a command or a file operation runs as.
type identity struct {
	uid, gid uint32
	groups   []uint32
	name     string // "" when the image has none
	home     string
	shell    string
}

// entry is one line of passwd or group.
type entry struct {
	name        string
	id, gid     uint32
	home, shell string
	members     []string
}

// users looks up the sandbox's users. User code may change the files at any
// time, so they are read again when they changed.
type users struct {
	mu            sync.Mutex
	passwd, group table
}

type table struct {
	path    string
	checked time.Time
	version version
	entries []entry
}

// version of a file's content.
type version struct {
	ino                uint64
	size, mtime, ctime int64
}

// fresh is how long names of owners may lag behind the files: a tree of
// thousands of files must not cost as many looks at them.
const fresh = time.Second

func newUsers() *users {
	return &users{passwd: table{path: "/etc/passwd"}, group: table{path: "/etc/group"}}
}

const (
	// maxTable bounds what is read of passwd and group, maxUsers the lines.
	maxTable = 1 << 20
	maxUsers = 10_000
	// maxGroups is the kernel's NGROUPS_MAX on old systems; more make no sense.
	maxGroups = 256
)

// lookup finds "name", "uid", "name:group" or "uid:gid". A number needs no line
// in passwd; without one and without a group it gets group 0, as it does from
// Docker: images are made so that any uid with that group can use them.
func (u *users) lookup(s string) (identity, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	passwd, group := u.passwd.load(parsePasswd), u.group.load(parseGroup)
	name, groupName, hasGroup := strings.Cut(s, ":")
	id := identity{home: "/"}
	if e := find(passwd, name); e != nil {
		id = identity{uid: e.id, gid: e.gid, name: e.name, home: e.home, shell: e.shell}
	} else {
		n, err := parseID(name)
		if err != nil {
			return identity{}, guest.Errorf(errdefs.ErrNotFound, "the sandbox has no user %q in its /etc/passwd", name)
		}
		id.uid = n
	}
	if hasGroup {
		e := find(group, groupName)
		n, err := parseID(groupName)
		switch {
		case e != nil:
			id.gid = e.id
		case err != nil:
			return identity{}, guest.Errorf(errdefs.ErrNotFound, "the sandbox has no group %q in its /etc/group", groupName)
		default:
			id.gid = n
		}
	}
	id.groups = memberships(group, id)
	if id.home == "" || id.home[0] != '/' {
		id.home = "/"
	}
	return id, nil
}

// find looks for a name, then for a number.
func find(list []entry, s string) *entry {
	if i := slices.IndexFunc(list, func(e entry) bool { return e.name == s }); i >= 0 {
		return &list[i]
	}
	if n, err := parseID(s); err == nil {
		if i := slices.IndexFunc(list, func(e entry) bool { return e.id == n }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func memberships(group []entry, id identity) []uint32 {
	ids := []uint32{id.gid}
	for _, g := range group {
		if id.name != "" && slices.Contains(g.members, id.name) && !slices.Contains(ids, g.id) && len(ids) < maxGroups {
			ids = append(ids, g.id)
		}
	}
	return ids
}

// owner reads "user", "user:group" or ":group"; -1 is what is not given.
func (u *users) owner(s string) (uid, gid int, err error) {
	name, group, hasGroup := strings.Cut(s, ":")
	if name == "" && group == "" {
		return 0, 0, guest.Errorf(errdefs.ErrInvalidArgument, "the owner is neither a user nor a group")
	}
	uid, gid = -1, -1
	if name != "" {
		id, err := u.lookup(name)
		if err != nil {
			return 0, 0, err
		}
		uid = int(id.uid)
	}
	if hasGroup && group != "" {
		id, err := u.lookup("0:" + group)
		if err != nil {
			return 0, 0, err
		}
		gid = int(id.gid)
	}
	return uid, gid, nil
}

// names of a file's owner, "" when there is none.
func (u *users) names(uid, gid uint32) (user, group string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	name := func(list []entry, id uint32) string {
		if i := slices.IndexFunc(list, func(e entry) bool { return e.id == id }); i >= 0 {
			return strings.ToValidUTF8(list[i].name, "\uFFFD")
		}
		return ""
	}
	return name(u.passwd.recent(parsePasswd), uid), name(u.group.recent(parseGroup), gid)
}

// recent is load as of not long ago.
func (t *table) recent(parse func([]byte) []entry) []entry {
	if time.Since(t.checked) < fresh {
		return t.entries
	}
	return t.load(parse)
}

// load reads the file if it changed. One that is missing, or no regular file,
// is empty.
func (t *table) load(parse func([]byte) []entry) []entry {
	t.checked = time.Now()
	var st unix.Stat_t
	if err := unix.Stat(t.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		t.entries, t.version = nil, version{}
		return nil
	}
	v := version{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
	if v != t.version {
		t.entries, t.version = parse(readFile(t.path)), v
	}
	return t.entries
}

// readFile reads a file of bounded size; one that can't be read, or is not a
// regular one any more, is empty.
func readFile(name string) []byte {
	fd, err := openAt(unix.AT_FDCWD, name, unix.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if i, err := f.Stat(); err != nil || !i.Mode().IsRegular() {
		return nil
	}
	b, _ := readBounded(f, maxTable)
	return b
}

// readBounded reads at most limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, limit))
}

// parseID reads a uid or gid. The highest one means "unchanged" to the kernel.
func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == math.MaxUint32 {
		return 0, fmt.Errorf("%q is no id", s)
	}
	return uint32(n), nil
}

// parsePasswd reads name:password:uid:gid:comment:home:shell. Lines that are
// none are left out.
func parsePasswd(b []byte) []entry {
	return parseLines(b, 7, func(f []string) (e entry, ok bool) {
		uid, err := parseID(f[2])
		gid, err2 := parseID(f[3])
		return entry{name: f[0], id: uid, gid: gid, home: f[5], shell: f[6]}, err == nil && err2 == nil
	})
}

// parseGroup reads name:password:gid:members.
func parseGroup(b []byte) []entry {
	return parseLines(b, 4, func(f []string) (e entry, ok bool) {
		gid, err := parseID(f[2])
		return entry{name: f[0], id: gid, members: strings.Split(f[3], ",")}, err == nil
	})
}

func parseLines(b []byte, fields int, line func([]string) (entry, bool)) []entry {
	var list []entry
	for l := range bytes.Lines(b) {
		f := strings.Split(strings.TrimRight(string(l), "\r\n"), ":")
		if len(f) < fields || f[0] == "" || len(list) == maxUsers {
			continue
		}
		if e, ok := line(f); ok {
			list = append(list, e)
		}
	}
	return list
}
