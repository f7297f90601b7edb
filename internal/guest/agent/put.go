package agent

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// put writes a file's body.
func (s *files) put(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	u := upload{
		path: q.v.Get("path"), owner: q.v.Get("owner"), mode: uint32(q.number("mode", permsMask, 8)),
		append: q.flag("append"), atomic: q.flag("atomic"), parents: q.flag("parents"),
	}
	if q.err == nil && u.append && u.atomic {
		q.err = guest.Errorf(errdefs.ErrInvalidArgument, "append and atomic exclude each other")
	}
	if q.err != nil {
		guest.WriteError(w, q.err)
		return
	}
	if err := s.write(q.v["within"], q.v.Get("user"), &u, r.Body); err != nil {
		guest.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// write writes a file that must stay below one of some directories; see within.
func (s *files) write(dirs []string, user string, u *upload, body io.Reader) error {
	first := func(f func(FS) error) error {
		return s.within(dirs, user, u.path, func(fsys FS, p string) error {
			u.path, u.bare = p, len(dirs) > 0
			return f(fsys)
		})
	}
	// Where the path led first: what it leads to now may be another place.
	then := func(f func(FS) error) error { return s.again(dirs, user, f) }
	return u.write(first, then, body)
}

// upload is one file that is being written.
type upload struct {
	path                    string
	owner                   string // as in ChownRequest; "": keep that of the file, else the user
	mode                    uint32 // 0: keep that of the file, else 0644
	append, atomic, parents bool

	bare   bool   // path leads through no link, and none at its end is to be followed
	target string // path behind links
	temp   string // where the bytes go first, if atomic
}

// write copies body. The files are opened with the user's rights, by first, and
// renamed with them, by then; the bytes move without them, so that a slow upload
// holds nothing.
func (u *upload) write(first, then func(func(FS) error) error, body io.Reader) error {
	var f File
	err := first(func(fsys FS) (err error) {
		f, err = u.open(fsys)
		return err
	})
	if err != nil {
		return err
	}
	err = copyBody(f, body)
	err = errors.Join(err, f.Close())
	if u.temp == "" {
		return err
	}
	return then(func(fsys FS) error {
		if err == nil {
			err = fsys.Rename(u.temp, u.target, true)
		}
		if err != nil {
			_ = fsys.Remove(u.temp)
		}
		return err
	})
}

func (u *upload) open(fsys FS) (File, error) {
	to, err := ownerOf(fsys, u.owner)
	if err != nil {
		return nil, err
	}
	if u.parents {
		if err := mkdirAll(fsys, parent(u.path), 0o755, to); err != nil {
			return nil, err
		}
	}
	if u.atomic {
		return u.openTemp(fsys, to)
	}
	how := Truncate
	if u.append {
		how = Append
	}
	f, err := fsys.Create(u.path, cmp.Or(u.mode, 0o644), how)
	if err != nil {
		return nil, err
	}
	if u.mode != 0 {
		err = f.Chmod(u.mode)
	}
	if err == nil {
		err = to.giveFile(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// openTemp opens the file that takes the place of the target when it is whole.
func (u *upload) openTemp(fsys FS, to owner) (f File, err error) {
	mode := cmp.Or(u.mode, 0o644)
	var keep owner // of the file that is replaced, as far as the user may
	u.target = u.path
	if !u.bare {
		if u.target, err = followLinks(fsys, u.path); err != nil {
			return nil, err
		}
	}
	if i, err := fsys.Stat(u.target, false); err == nil {
		if !isFile(i) {
			return nil, notRegular("open", u.path, i.GetMode())
		}
		if u.mode == 0 {
			mode = i.GetMode() & permsMask
		}
		keep = owner{true, int(i.GetUid()), int(i.GetGid())}
	}
	u.temp = tempName(u.target)
	f, err = fsys.Create(u.temp, mode, Exclusive)
	if err != nil {
		u.temp = ""
		return nil, err
	}
	// The mode is asked for by name, so the umask must not narrow it.
	err = f.Chmod(mode)
	if err == nil {
		_ = keep.giveFile(f)
		err = to.giveFile(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, errors.Join(err, fsys.Remove(u.temp))
	}
	return f, nil
}

// tempName is a free name beside p.
func tempName(p string) string {
	var r [6]byte
	_, _ = rand.Read(r[:])
	return join(parent(p), tempPrefix+hex.EncodeToString(r[:])+tempSuffix)
}

// Names of files that are being written.
const (
	tempPrefix = ".agentbox-"
	tempSuffix = ".tmp"
)

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// followLinks resolves links at the end of a path, so that replacing the file
// leaves them in place.
func followLinks(fsys FS, p string) (string, error) {
	const most = 40 // as Linux: MAXSYMLINKS
	for range most {
		i, err := fsys.Stat(p, false)
		if err != nil || !isLink(i) {
			return p, nil // that it can't be examined is for the open to tell
		}
		t, err := fsys.Readlink(p)
		if err != nil {
			return "", err
		}
		if !path.IsAbs(t) {
			t = join(parent(p), t)
		}
		p = t
	}
	return "", &fs.PathError{Op: "open", Path: p, Err: syscall.ELOOP}
}

// notRegular refuses what is no regular file. Directories keep their errno.
func notRegular(op, p string, mode uint32) error {
	if mode&typeMask == typeDir {
		return &fs.PathError{Op: op, Path: p, Err: syscall.EISDIR}
	}
	return guest.Errorf(errdefs.ErrInvalidArgument, "%s %s: not a regular file", op, p)
}
