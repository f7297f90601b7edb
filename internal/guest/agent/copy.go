package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

func (s *files) copy(ctx context.Context, q *guestv1.CopyRequest) (*guestv1.CopyResponse, error) {
	from, to := string(q.GetFrom()), string(q.GetTo())
	c := &copier{ctx: ctx, overwrite: q.GetOverwrite(), buf: make([]byte, hole), seen: map[fileID]string{}}
	err := s.goThrough(ctx, q.GetUser(), func(fsys FS) error {
		return c.copy(fsys, from, to, q.GetRecursive())
	}, from, to)
	return &guestv1.CopyResponse{Entries: c.entries, Skipped: &c.skips.list}, err
}

// copier copies files and trees: contents, permissions, times, links, and hard
// links among the files of a tree. Copies belong to the user who makes them, so
// privilege bits are dropped.
type copier struct {
	ctx       context.Context
	overwrite bool
	buf       []byte

	entries uint64
	skips   skips
	seen    map[fileID]string // files with several names, and where the first went
}

// fileID tells which file an entry is.
type fileID struct{ dev, ino uint64 }

func idOf(i *guestv1.FileInfo) fileID { return fileID{i.GetDev(), i.GetIno()} }

// maxHardLinks bounds how many files with several names a copy remembers; of
// further ones each name becomes a file of its own.
const maxHardLinks = 100_000

func (c *copier) copy(fsys FS, from, to string, recursive bool) error {
	i, err := fsys.Stat(from, false)
	switch {
	case err != nil:
		return err
	case isDir(i) && !recursive:
		return &fs.PathError{Op: "copy", Path: from, Err: syscall.EISDIR}
	case isDir(i) && strings.HasPrefix(path.Clean(to)+"/", path.Clean(from)+"/"):
		return guest.Errorf(errdefs.ErrInvalidArgument, "copy %s: into itself", from)
	case !isDir(i):
		if isSpecial(i) {
			return notRegular("copy", from, i.GetMode())
		}
		return c.one(fsys, from, fsys, to, i)
	}
	src, err := fsys.Tree(from, false)
	if err != nil {
		return err
	}
	defer src.Close()
	made, err := c.dir(fsys, to)
	if err != nil {
		return err
	}
	dst, err := fsys.Tree(to, !made) // a link that was there is followed
	if err != nil {
		return err
	}
	defer dst.Close()
	return c.tree(src, dst, i)
}

// tree copies what is in src to dst, and what i says of src itself.
func (c *copier) tree(src, dst Tree, i *guestv1.FileInfo) error {
	top, err := dst.Stat("", false) // it may lie in the tree
	if err != nil {
		return err
	}
	w := &walk{fsys: src, failed: c.skips.failed}
	w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
		switch {
		case isSpecial(i):
			c.skips.add(rel, specialKind(i))
			return false, nil
		case idOf(i) == idOf(top):
			return false, guest.Errorf(errdefs.ErrInvalidArgument, "copy: %s lies in what is copied", rel)
		}
		return true, c.skipped(rel, c.one(src, rel, dst, rel, i))
	}
	w.leave = func(rel string, i *guestv1.FileInfo) error { return finish(dst, rel, i) }
	if err := w.run(c.ctx, ""); err != nil {
		return err
	}
	return finish(dst, "", i)
}

// skipped leaves out what may not be read; that something may not be written
// ends the copy.
func (c *copier) skipped(rel string, err error) error {
	var unreadable *readError
	if errors.As(err, &unreadable) {
		if isGone(err) {
			return nil
		}
		return c.skips.failed(rel, unreadable.error)
	}
	return err
}

// readError tells that the source of a copy can't be read.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

func (c *copier) one(src FS, from string, dst FS, to string, i *guestv1.FileInfo) error {
	c.entries++
	switch {
	case isDir(i):
		_, err := c.dir(dst, to)
		return err
	case isLink(i):
		return c.place(dst, to, func(p string) error { return dst.Symlink(string(i.GetTarget()), p) })
	}
	if i.GetNlink() > 1 {
		if first, ok := c.seen[idOf(i)]; ok {
			return c.place(dst, to, func(p string) error { return dst.Link(first, p) })
		}
		if len(c.seen) < maxHardLinks {
			c.seen[idOf(i)] = to
		}
	}
	err := c.place(dst, to, func(p string) error { return c.file(src, from, dst, p, i) })
	if err != nil && i.GetNlink() > 1 {
		delete(c.seen, idOf(i)) // the next name is the first
	}
	return err
}

// dir makes a directory that can be filled; finish gives it its mode. With
// overwrite one may be there already.
func (c *copier) dir(dst FS, to string) (made bool, err error) {
	err = dst.Mkdir(to, 0o700)
	if !c.overwrite || !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}
	i, serr := dst.Stat(to, true)
	if serr == nil && isDir(i) {
		return false, nil
	}
	return false, err
}

// finish gives a directory the mode and the time of what it is a copy of.
func finish(dst Tree, p string, i *guestv1.FileInfo) error {
	if err := dst.Chmod(p, i.GetMode()&permsMask); err != nil {
		return err
	}
	return dst.Chtimes(p, time.Unix(0, i.GetMtimeNs()))
}

// place makes something at a path. What is there is replaced at once, when the
// new thing is complete.
func (c *copier) place(dst FS, to string, make func(p string) error) error {
	err := make(to)
	if !c.overwrite || !errors.Is(err, fs.ErrExist) {
		return err
	}
	temp := tempName(to)
	if err := make(temp); err != nil {
		return err
	}
	if err := dst.Rename(temp, to, true); err != nil {
		return errors.Join(err, dst.Remove(temp))
	}
	return nil
}

func (c *copier) file(src FS, from string, dst FS, to string, i *guestv1.FileInfo) error {
	r, err := src.Open(from, i)
	if err != nil {
		return &readError{err}
	}
	defer r.Close()
	w, err := dst.Create(to, 0o600, Exclusive)
	if err != nil {
		return err
	}
	err = copySparse(c.ctx, w, r, c.buf)
	if err == nil {
		err = w.Chmod(i.GetMode() & permsMask)
	}
	if err == nil {
		err = w.Chtimes(time.Unix(0, i.GetMtimeNs()))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return errors.Join(err, dst.Remove(to))
	}
	return nil
}

// hole is the unit in which zeros are left out of a copy: as much as is worth a
// system call.
const hole = 64 << 10

var zeroBlock [hole]byte

// copySparse copies to the end of src. Blocks of zeros become holes, so that a
// sparse file stays one.
func copySparse(ctx context.Context, dst File, src io.Reader, buf []byte) error {
	var size int64
	for {
		n, err := io.ReadFull(src, buf)
		if n > 0 {
			var werr error
			if bytes.Equal(buf[:n], zeroBlock[:n]) {
				_, werr = dst.Seek(int64(n), io.SeekCurrent)
			} else {
				_, werr = dst.Write(buf[:n])
			}
			if werr != nil {
				return werr
			}
			size += int64(n)
		}
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return dst.Truncate(size)
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
