package client

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// FileInfo describes a file of the guest. Path, Name and Target are bytes.
type FileInfo struct {
	Path, Name, Target  string
	Mode                fs.FileMode
	UID, GID            uint32
	User, Group         string // "" when the guest has no name for them
	Size                int64
	Mtime, Atime, Ctime time.Time
	Nlink               uint32
	Dev, Ino            uint64 // equal for two names of one file
}

// StatOptions govern Stat.
type StatOptions struct {
	User   string // whose rights; "": the sandbox's default
	Follow bool   // a link at the end of the path
}

// Stat describes one file.
func (s *Session) Stat(ctx context.Context, name string, o StatOptions) (FileInfo, error) {
	a := new(guestv1.StatResponse)
	q := &guestv1.StatRequest{Path: []byte(name), User: o.User, Follow: o.Follow}
	if err := s.call(ctx, "Stat", q, a); err != nil {
		return FileInfo{}, fmt.Errorf("stat %q: %w", name, err)
	}
	return fileInfo(a.GetInfo(), name), nil
}

// ListOptions govern List.
type ListOptions struct {
	User   string
	Depth  int    // levels of directories; 0: 1, the directory's own entries; at most 64
	Limit  int    // entries at most; 0: 1,000; at most 10,000
	Cursor string // what the call before returned
}

// List describes what is in a directory. A directory comes before what is in it,
// the entries of one directory are sorted by name, bytewise; that order is also
// what makes cursors work while the tree changes. Links are not followed but for
// name itself. Directories that the user may not read are listed without what is
// in them. next is the cursor of what follows, "" at the end. An answer may hold
// fewer entries than Limit when it would be larger than 8 MiB. Each call reads the
// directory anew: of very large ones large pages are cheaper.
func (s *Session) List(ctx context.Context, name string, o ListOptions) (entries []FileInfo, next string, err error) {
	a := new(guestv1.ListResponse)
	q := &guestv1.ListRequest{
		Path: []byte(name), User: o.User, Depth: uint32(max(o.Depth, 0)), Limit: uint32(max(o.Limit, 0)), Cursor: []byte(o.Cursor),
	}
	if err := s.call(ctx, "List", q, a); err != nil {
		return nil, "", fmt.Errorf("list %q: %w", name, err)
	}
	return infosBelow(name, a.GetEntries()), string(a.GetNextCursor()), nil
}

// infosBelow are entries of a tree with the paths that lead to them.
func infosBelow(root string, list []*guestv1.FileInfo) []FileInfo {
	var entries []FileInfo
	for _, i := range list {
		entries = append(entries, fileInfo(i, below(root, string(i.GetPath()))))
	}
	return entries
}

// below is the path of something in a tree. Not path.Join: it would resolve ".."
// in root before links.
func below(root, rel string) string {
	switch {
	case rel == "":
		return root
	case strings.HasSuffix(root, "/"):
		return root + rel
	}
	return root + "/" + rel
}

// MkdirOptions govern Mkdir.
type MkdirOptions struct {
	User    string
	Mode    fs.FileMode // permissions; 0: 0755
	Parents bool        // make them too, and accept a directory that exists
	Owner   string      // of what is made, as in Chown; "": the user
}

// Mkdir makes a directory.
func (s *Session) Mkdir(ctx context.Context, name string, o MkdirOptions) error {
	q := &guestv1.MkdirRequest{Path: []byte(name), User: o.User, Mode: uint32(o.Mode.Perm()), Parents: o.Parents, Owner: o.Owner}
	if err := s.call(ctx, "Mkdir", q, new(guestv1.MkdirResponse)); err != nil {
		return fmt.Errorf("make directory %q: %w", name, err)
	}
	return nil
}

// MoveOptions govern Move.
type MoveOptions struct {
	User      string
	Overwrite bool // replace what is there
}

// Move renames a file or directory.
func (s *Session) Move(ctx context.Context, from, to string, o MoveOptions) error {
	q := &guestv1.MoveRequest{From: []byte(from), To: []byte(to), User: o.User, Overwrite: o.Overwrite}
	if err := s.call(ctx, "Move", q, new(guestv1.MoveResponse)); err != nil {
		return fmt.Errorf("move %q to %q: %w", from, to, err)
	}
	return nil
}

// RemoveOptions govern Remove.
type RemoveOptions struct {
	User      string
	Recursive bool // directories with what is in them
}

// Remove removes a file or directory. Links are not followed.
func (s *Session) Remove(ctx context.Context, name string, o RemoveOptions) error {
	q := &guestv1.RemoveRequest{Path: []byte(name), User: o.User, Recursive: o.Recursive}
	if err := s.call(ctx, "Remove", q, new(guestv1.RemoveResponse)); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

func fileInfo(m *guestv1.FileInfo, p string) FileInfo {
	return FileInfo{
		Path: p, Name: path.Base(p), Target: string(m.GetTarget()), Mode: fileMode(m.GetMode()),
		UID: m.GetUid(), GID: m.GetGid(), User: m.GetUser(), Group: m.GetGroup(), Size: m.GetSize(),
		Mtime: time.Unix(0, m.GetMtimeNs()), Atime: time.Unix(0, m.GetAtimeNs()), Ctime: time.Unix(0, m.GetCtimeNs()),
		Nlink: m.GetNlink(), Dev: m.GetDev(), Ino: m.GetIno(),
	}
}

// fileMode translates st_mode (see inode(7)).
func fileMode(m uint32) fs.FileMode {
	f := fs.FileMode(m & 0o777)
	types := map[uint32]fs.FileMode{
		0o040000: fs.ModeDir, 0o120000: fs.ModeSymlink, 0o010000: fs.ModeNamedPipe, 0o140000: fs.ModeSocket,
		0o020000: fs.ModeDevice | fs.ModeCharDevice, 0o060000: fs.ModeDevice,
	}
	f |= types[m&0o170000]
	for bit, mode := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			f |= mode
		}
	}
	return f
}
