package agent

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strings"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// tarSlots bounds how many trees move at once: each holds a thread of the
// agent.
const tarSlots = 8

// slot waits for a place and returns how to leave it.
func (s *files) slot() (leave func()) {
	s.tars <- struct{}{}
	return func() { <-s.tars }
}

// getTar sends a tree: regular files, directories and links. Sockets, devices
// and FIFOs are left out unless asked for; then they are entries that tell their
// name and kind. The names in it are relative to the path; a path that is no
// directory is one entry of its own name.
func (s *files) getTar(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	root := q.v.Get("path")
	defer s.slot()()
	err := s.as(q.v.Get("user"), func(fsys FS) error {
		if _, err := fsys.Stat(root, true); err != nil {
			return err
		}
		sendBody(w, r, func(w io.Writer) error {
			b := bufio.NewWriterSize(w, treeBuffer) // headers and small files go together
			t := &tarOut{ctx: r.Context(), fsys: fsys, w: tar.NewWriter(b), buf: make([]byte, treeBuffer), special: q.flag("special")}
			return errors.Join(t.tree(root), t.w.Close(), b.Flush())
		})
		return nil
	}, root)
	if err != nil {
		guest.WriteError(w, err)
	}
}

// tarOut writes a tree.
type tarOut struct {
	ctx  context.Context
	fsys FS
	w    *tar.Writer
	buf  []byte

	special bool // with sockets, devices and FIFOs
}

func (t *tarOut) tree(root string) error {
	i, err := t.fsys.Stat(root, true)
	if err != nil {
		return err
	}
	if !isDir(i) {
		return t.entry(root, path.Base(root), i)
	}
	stack := []string{""} // directories, relative to root
	for len(stack) > 0 {
		dir := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		names, err := t.fsys.Names(path.Join(root, dir))
		if err != nil {
			return err
		}
		for _, name := range names {
			rel := path.Join(dir, name)
			i, err := t.fsys.Stat(path.Join(root, rel), false)
			if errors.Is(err, fs.ErrNotExist) {
				continue // gone since
			}
			if err == nil {
				err = t.entry(path.Join(root, rel), rel, i)
			}
			if err != nil {
				return err
			}
			if isDir(i) {
				stack = append(stack, rel)
			}
		}
	}
	return nil
}

func (t *tarOut) entry(p, name string, i *guestv1.FileInfo) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	h := &tar.Header{
		Name: name, Mode: int64(i.GetMode() & 0o7777), Uid: int(i.GetUid()), Gid: int(i.GetGid()),
		ModTime: time.Unix(0, i.GetMtimeNs()).Truncate(time.Second),
	}
	switch {
	case isDir(i):
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		return t.w.WriteHeader(h)
	case isLink(i):
		target, err := t.fsys.Readlink(p)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return t.w.WriteHeader(h)
	case isFile(i):
		h.Typeflag, h.Size = tar.TypeReg, i.GetSize()
		return t.file(p, h)
	case t.special:
		h.Typeflag = specialType(i)
		return t.w.WriteHeader(h)
	}
	return nil
}

// specialType is how an archive calls what is no file, directory or link.
func specialType(i *guestv1.FileInfo) byte {
	switch i.GetMode() & typeMask {
	case typeFifo:
		return tar.TypeFifo
	case typeChar:
		return tar.TypeChar
	case typeBlock:
		return tar.TypeBlock
	}
	return guest.TarSocket
}

// file writes a file that may change meanwhile: exactly the size that the
// header says, cut or filled with zeros.
func (t *tarOut) file(p string, h *tar.Header) error {
	f, err := t.fsys.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(writerOnly{t.w}, io.LimitReader(f, h.Size), t.buf)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(writerOnly{t.w}, io.LimitReader(zeros{}, h.Size-n), t.buf)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// putTar unpacks a tree into a directory.
func (s *files) putTar(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	root := q.v.Get("path")
	maxBytes, maxEntries := q.number("max_bytes", math.MaxInt64, 10), q.number("max_entries", MaxTarEntries, 10)
	defer s.slot()()
	err := q.err
	if err == nil {
		err = s.as(q.v.Get("user"), func(fsys FS) error {
			if q.flag("parents") {
				if err := mkdirAll(fsys, root, 0o755); err != nil {
					return err
				}
			}
			return Extract(r.Context(), fsys, root, r.Body, maxBytes, maxEntries)
		}, root)
	}
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// clean is an entry's name as path elements below the target. "" is the target
// itself. ok is false for a name that leads outside or is no name.
func clean(name string) (elements []string, ok bool) {
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || name == "" {
		return nil, false
	}
	for _, e := range strings.Split(name, "/") {
		switch {
		case e == "..":
			return nil, false
		case e == "" || e == ".":
		default:
			elements = append(elements, e)
		}
	}
	return elements, true
}
