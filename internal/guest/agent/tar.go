package agent

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"path"
	"strings"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// getTar sends a tree: regular files, directories and links. Sockets, devices
// and FIFOs are left out. The names in it are relative to the path; a path that
// is no directory is one entry of its own name.
func (s *files) getTar(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	root := q.v.Get("path")
	err := s.trees.do(r.Context(), func() error {
		return s.as(q.v.Get("user"), func(fsys FS) error {
			if _, err := fsys.Stat(root, true); err != nil {
				return err
			}
			sendBody(w, r, func(w io.Writer) error {
				b := bufio.NewWriterSize(w, copyBuffer) // headers and small files go together
				t := &tarOut{ctx: r.Context(), fsys: fsys, w: tar.NewWriter(b), buf: make([]byte, copyBuffer)}
				return errors.Join(t.tree(root), t.w.Close(), b.Flush())
			})
			return nil
		}, root)
	})
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
}

func (t *tarOut) tree(root string) error {
	i, err := t.fsys.Stat(root, true)
	if err != nil {
		return err
	}
	if !isDir(i) {
		return t.entry(root, path.Base(root), i)
	}
	w := &walk{fsys: t.fsys, root: root}
	w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
		return true, t.entry(join(root, rel), rel, i)
	}
	return w.run(t.ctx, "")
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
	}
	return nil
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
	err := q.err
	if err == nil {
		err = s.trees.do(r.Context(), func() error {
			return s.as(q.v.Get("user"), func(fsys FS) error {
				if q.flag("parents") {
					if err := mkdirAll(fsys, root, 0o755, owner{}); err != nil {
						return err
					}
				}
				return Extract(r.Context(), fsys, root, r.Body, maxBytes, maxEntries)
			}, root)
		})
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
