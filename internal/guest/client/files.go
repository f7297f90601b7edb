package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
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
	Ino                 uint64
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
	Limit  int    // entries at most; 0: 1,000; at most 10,000
	Cursor string // what the call before returned
}

// List describes a directory's entries, sorted by name. next is the cursor of
// what follows, "" at the end.
func (s *Session) List(ctx context.Context, name string, o ListOptions) (entries []FileInfo, next string, err error) {
	a := new(guestv1.ListResponse)
	q := &guestv1.ListRequest{Path: []byte(name), User: o.User, Limit: uint32(max(o.Limit, 0)), Cursor: []byte(o.Cursor)}
	if err := s.call(ctx, "List", q, a); err != nil {
		return nil, "", fmt.Errorf("list %q: %w", name, err)
	}
	for _, i := range a.GetEntries() {
		entries = append(entries, fileInfo(i, path.Join(name, string(i.GetName()))))
	}
	return entries, string(a.GetNextCursor()), nil
}

// MkdirOptions govern Mkdir.
type MkdirOptions struct {
	User    string
	Mode    fs.FileMode // permissions; 0: 0755
	Parents bool        // make them too, and accept a directory that exists
}

// Mkdir makes a directory.
func (s *Session) Mkdir(ctx context.Context, name string, o MkdirOptions) error {
	q := &guestv1.MkdirRequest{Path: []byte(name), User: o.User, Mode: uint32(o.Mode.Perm()), Parents: o.Parents}
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

// ReadOptions govern ReadFile.
type ReadOptions struct {
	User           string
	Offset, Length int64 // Length 0: to the end
}

// ReadFile streams a regular file. The guest may send without end: the caller
// bounds what it takes. Reading ends with the context or Close.
func (s *Session) ReadFile(ctx context.Context, name string, o ReadOptions) (io.ReadCloser, error) {
	q := url.Values{"path": {name}, "user": {o.User}}
	setNumber(q, "offset", o.Offset, 10)
	setNumber(q, "length", o.Length, 10)
	b, err := s.get(ctx, guest.PathFiles, q)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", name, err)
	}
	return b, nil
}

// WriteOptions govern WriteFile.
type WriteOptions struct {
	User    string
	Mode    fs.FileMode // permissions; 0: those of the file, else 0644
	Append  bool        // write at the end
	Atomic  bool        // the file changes when all was written, or not at all
	Parents bool        // make missing directories
}

// WriteFile writes a file from r to its end.
func (s *Session) WriteFile(ctx context.Context, name string, r io.Reader, o WriteOptions) error {
	q := url.Values{"path": {name}, "user": {o.User}}
	setNumber(q, "mode", int64(o.Mode.Perm()), 8)
	setFlag(q, "append", o.Append)
	setFlag(q, "atomic", o.Atomic)
	setFlag(q, "parents", o.Parents)
	if err := s.put(ctx, guest.PathFiles, q, r); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	return nil
}

// TarOptions govern GetTar and PutTar.
type TarOptions struct {
	User string
	// Only for GetTar: entries without content tell of FIFOs, devices and, as
	// guest.TarSocket, sockets, which are else left out. An agent that does not
	// know how leaves them out.
	Special bool
	// Only for PutTar:
	Parents    bool  // make the target and missing directories above it
	MaxBytes   int64 // of all files together; 0: as the disk allows
	MaxEntries int64 // 0: 500,000, which is also the most
}

// GetTar streams a tree as a tar archive: regular files, directories and links,
// with names relative to the path. The archive comes from inside the sandbox:
// the caller trusts no name in it, and bounds what it takes.
func (s *Session) GetTar(ctx context.Context, name string, o TarOptions) (io.ReadCloser, error) {
	q := url.Values{"path": {name}, "user": {o.User}}
	setFlag(q, "special", o.Special)
	b, err := s.get(ctx, guest.PathTar, q)
	if err != nil {
		return nil, fmt.Errorf("read tree %q: %w", name, err)
	}
	return b, nil
}

// PutTar unpacks a tar archive into a directory. Entries that lead outside of
// it, or are no files, directories and links, are refused: the error is
// InvalidArgument and has the entry's name. What came before stays.
func (s *Session) PutTar(ctx context.Context, name string, r io.Reader, o TarOptions) error {
	q := url.Values{"path": {name}, "user": {o.User}}
	setFlag(q, "parents", o.Parents)
	setNumber(q, "max_bytes", o.MaxBytes, 10)
	setNumber(q, "max_entries", o.MaxEntries, 10)
	if err := s.put(ctx, guest.PathTar, q, r); err != nil {
		return fmt.Errorf("unpack into %q: %w", name, err)
	}
	return nil
}

func setNumber(q url.Values, name string, n int64, base int) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, base))
	}
}

func setFlag(q url.Values, name string, on bool) {
	if on {
		q.Set(name, "1")
	}
}

func (s *Session) get(ctx context.Context, path string, q url.Values) (io.ReadCloser, error) {
	a, err := s.do(ctx, http.MethodGet, path, q, nil, nil)
	if err != nil {
		return nil, err
	}
	return &body{ctx: ctx, a: a}, nil
}

func (s *Session) put(ctx context.Context, path string, q url.Values, r io.Reader) error {
	a, err := s.do(ctx, http.MethodPut, path, q, nil, r)
	if err != nil {
		return err
	}
	a.close()
	return nil
}

// body is a file's content on its way from the guest.
type body struct {
	ctx context.Context
	a   *answer
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.a.Body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		if told := guest.DecodeTrailer(b.a.Trailer.Get(guest.ErrorTrailer)); told != nil {
			return n, told
		}
		return n, io.EOF
	case b.ctx.Err() != nil:
		return n, context.Cause(b.ctx)
	}
	return n, err
}

func (b *body) Close() error {
	b.a.close()
	return nil
}

func fileInfo(m *guestv1.FileInfo, p string) FileInfo {
	return FileInfo{
		Path: p, Name: path.Base(p), Target: string(m.GetTarget()), Mode: fileMode(m.GetMode()),
		UID: m.GetUid(), GID: m.GetGid(), User: m.GetUser(), Group: m.GetGroup(), Size: m.GetSize(),
		Mtime: time.Unix(0, m.GetMtimeNs()), Atime: time.Unix(0, m.GetAtimeNs()), Ctime: time.Unix(0, m.GetCtimeNs()),
		Nlink: m.GetNlink(), Ino: m.GetIno(),
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
