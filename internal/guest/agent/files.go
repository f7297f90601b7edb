package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// files answers the calls about files.
type files struct {
	files Files
	tars  chan struct{} // holds one element for each tree that moves
}

// checkPath refuses what is no path, before a file system sees it.
func checkPath(p string) error {
	switch {
	case p == "":
		return guest.Errorf(errdefs.ErrInvalidArgument, "the path is empty")
	case strings.IndexByte(p, 0) >= 0:
		return guest.Errorf(errdefs.ErrInvalidArgument, "the path holds NUL")
	}
	return nil
}

// as runs f with the rights of user after it checked the paths.
func (s *files) as(user string, f func(FS) error, paths ...string) error {
	for _, p := range paths {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	return s.files.As(user, f)
}

func (s *files) stat(_ context.Context, q *guestv1.StatRequest) (a *guestv1.StatResponse, err error) {
	p := string(q.GetPath())
	err = s.as(q.GetUser(), func(fsys FS) error {
		i, err := fsys.Stat(p, q.GetFollow())
		a = &guestv1.StatResponse{Info: i}
		return err
	}, p)
	return a, err
}

// Entries in one answer of List.
const (
	defaultEntries = 1_000
	maxEntries     = 10_000
)

func (s *files) list(_ context.Context, q *guestv1.ListRequest) (*guestv1.ListResponse, error) {
	a := new(guestv1.ListResponse)
	dir, limit := string(q.GetPath()), int(q.GetLimit())
	if limit == 0 {
		limit = defaultEntries
	}
	limit = min(limit, maxEntries)
	err := s.as(q.GetUser(), func(fsys FS) error {
		names, err := fsys.Names(dir)
		if err != nil {
			return err
		}
		if c := string(q.GetCursor()); c != "" {
			i, found := slices.BinarySearch(names, c)
			if found {
				i++
			}
			names = names[i:]
		}
		room := maxList
		for i, name := range names {
			info, err := fsys.Stat(path.Join(dir, name), false)
			if errors.Is(err, fs.ErrNotExist) {
				continue // gone since
			}
			if err != nil {
				return err
			}
			info.Path, info.Name = nil, []byte(name) // the caller knows the directory
			a.Entries = append(a.Entries, info)
			room -= proto.Size(info) + 8
			if (len(a.Entries) == limit || room < 0) && i < len(names)-1 {
				a.NextCursor = []byte(name)
				return nil
			}
		}
		return nil
	}, dir)
	return a, err
}

func (s *files) mkdir(_ context.Context, q *guestv1.MkdirRequest) (*guestv1.MkdirResponse, error) {
	p, mode := string(q.GetPath()), q.GetMode()&0o777
	if q.GetMode() == 0 {
		mode = 0o755
	}
	return new(guestv1.MkdirResponse), s.as(q.GetUser(), func(fsys FS) error {
		if q.GetParents() {
			return mkdirAll(fsys, p, mode)
		}
		return fsys.Mkdir(p, mode)
	}, p)
}

func (s *files) move(_ context.Context, q *guestv1.MoveRequest) (*guestv1.MoveResponse, error) {
	from, to := string(q.GetFrom()), string(q.GetTo())
	return new(guestv1.MoveResponse), s.as(q.GetUser(), func(fsys FS) error {
		return fsys.Rename(from, to, q.GetOverwrite())
	}, from, to)
}

func (s *files) remove(ctx context.Context, q *guestv1.RemoveRequest) (*guestv1.RemoveResponse, error) {
	p := string(q.GetPath())
	return new(guestv1.RemoveResponse), s.as(q.GetUser(), func(fsys FS) error {
		if q.GetRecursive() {
			return removeAll(ctx, fsys, p)
		}
		return fsys.Remove(p)
	}, p)
}

// mkdirAll makes a directory and its parents. What is there already must be a
// directory or a link to one.
func mkdirAll(fsys FS, p string, mode uint32) error {
	if i, err := fsys.Stat(p, true); err == nil {
		if !isDir(i) {
			return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if parent := path.Dir(strings.TrimRight(p, "/")); parent != p && parent != "." && parent != "/" {
		if err := mkdirAll(fsys, parent, mode); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(p, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// removeAll removes a tree without following links. It walks with a stack of
// its own, so that a deep tree costs no stack of the agent.
func removeAll(ctx context.Context, fsys FS, p string) error {
	type dir struct {
		path  string
		names []string
	}
	var stack []dir
	visit := func(p string) error {
		i, err := fsys.Stat(p, false)
		if err != nil || !isDir(i) {
			return errors.Join(err, removeIf(err == nil, fsys, p))
		}
		names, err := fsys.Names(p)
		stack = append(stack, dir{p, names})
		return err
	}
	if err := visit(p); err != nil {
		return err
	}
	for len(stack) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		top := &stack[len(stack)-1]
		if len(top.names) == 0 {
			p := top.path
			stack = stack[:len(stack)-1]
			if err := fsys.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		name := top.names[0]
		top.names = top.names[1:]
		if err := visit(path.Join(top.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func removeIf(ok bool, fsys FS, p string) error {
	if !ok {
		return nil
	}
	return fsys.Remove(p)
}

// Types of files, as in st_mode.
const (
	typeMask  = 0o170000
	typeFile  = 0o100000
	typeDir   = 0o040000
	typeLink  = 0o120000
	typeFifo  = 0o010000
	typeChar  = 0o020000
	typeBlock = 0o060000
	permsMask = 0o777 // uploads never set the setuid, setgid and sticky bits
)

func isDir(i *guestv1.FileInfo) bool  { return i.GetMode()&typeMask == typeDir }
func isFile(i *guestv1.FileInfo) bool { return i.GetMode()&typeMask == typeFile }
func isLink(i *guestv1.FileInfo) bool { return i.GetMode()&typeMask == typeLink }

// params reads the parameters of a request about a file's body; the first
// mistake is kept.
type params struct {
	v   url.Values
	err error
}

func paramsOf(r *http.Request) *params {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		err = guest.Errorf(errdefs.ErrInvalidArgument, "parameters: %v", err)
	}
	return &params{v, err}
}

func (p *params) number(name string, limit int64, base int) int64 {
	s := p.v.Get(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, base, 64)
	if (err != nil || n < 0 || n > limit) && p.err == nil {
		p.err = guest.Errorf(errdefs.ErrInvalidArgument, "parameter %s: %q is not a number from 0 to %d", name, s, limit)
	}
	return n
}

func (p *params) flag(name string) bool { return p.v.Get(name) == "1" }

// get sends a file's bytes from an offset on.
func (s *files) get(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	name, offset, length := q.v.Get("path"), q.number("offset", math.MaxInt64, 10), q.number("length", math.MaxInt64, 10)
	if q.err != nil {
		guest.WriteError(w, q.err)
		return
	}
	var f File
	err := s.as(q.v.Get("user"), func(fsys FS) (err error) {
		f, err = fsys.Open(name)
		return err
	}, name)
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	defer f.Close()
	if offset > 0 {
		if _, err := f.Seek(offset, io.SeekStart); err != nil {
			guest.WriteError(w, err)
			return
		}
	}
	var src io.Reader = f
	if length > 0 {
		src = io.LimitReader(f, length)
	}
	sendBody(w, r, func(w io.Writer) error { return copyBody(w, src) })
}

// sendBody answers with what send writes. An error on the way ends in the
// trailer, so that the host can tell a short body from a whole one.
func sendBody(w http.ResponseWriter, r *http.Request, send func(io.Writer) error) {
	ctl := http.NewResponseController(w)
	stop := context.AfterFunc(r.Context(), func() { _ = ctl.SetWriteDeadline(past) })
	defer stop()
	w.Header().Set("Trailer", guest.ErrorTrailer)
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := send(writerOnly{w}); err != nil {
		w.Header().Set(guest.ErrorTrailer, guest.EncodeTrailer(err))
	}
}

// writerOnly hides ReadFrom, which would copy in small pieces.
type writerOnly struct{ io.Writer }
