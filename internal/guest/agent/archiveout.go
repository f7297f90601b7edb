package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// archiver writes a tree in some format.
type archiver interface {
	// entry begins an entry. For a regular file exactly size bytes must be
	// written to what it returns.
	entry(name string, i *guestv1.FileInfo, size int64) (io.Writer, error)
	Close() error
}

// getArchive sends a tree: regular files, directories and links. The names in it
// are relative to the path; a path that is no directory is one entry of its own
// name. What is left out is told in a trailer.
func (s *files) getArchive(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	root := q.v.Get("path")
	t := &treeOut{ctx: r.Context(), prefix: q.v.Get("prefix")}
	t.room, t.entries = q.number("max_bytes", math.MaxInt64, 10), q.number("max_entries", math.MaxInt64, 10)
	t.bounded = t.room > 0
	if t.entries == 0 {
		t.entries = math.MaxInt64
	}
	err := q.err
	if err == nil {
		t.exclude, err = parseGlobs("exclude", q.v["exclude"], true)
	}
	if _, ok := clean(t.prefix); err == nil && t.prefix != "" && !ok {
		err = guest.Errorf(errdefs.ErrInvalidArgument, "prefix: it must be a relative path without ..")
	}
	format := archiveFormats[q.v.Get("format")]
	if err == nil && format == nil {
		err = guest.Errorf(errdefs.ErrInvalidArgument, "format is tar, tar.gz or zip")
	}
	if err == nil {
		err = s.trees.do(r.Context(), func() error {
			return s.as(q.v.Get("user"), func(fsys FS) error {
				if _, err := fsys.Stat(root, true); err != nil {
					return err
				}
				t.fsys = fsys
				w.Header().Set("Trailer", guest.SkippedTrailer)
				sendBody(w, r, func(w io.Writer) error { return t.send(root, format, w) })
				if t.skips.list.Total > 0 {
					w.Header().Set(guest.SkippedTrailer, guest.EncodeHeader(&t.skips.list))
				}
				return nil
			}, root)
		})
	}
	if err != nil {
		guest.WriteError(w, err)
	}
}

// treeOut writes a tree.
type treeOut struct {
	ctx     context.Context
	fsys    FS
	prefix  string
	exclude globs
	bounded bool
	room    int64 // bytes that files may still take, if bounded
	entries int64 // that may still come

	out   archiver
	buf   []byte
	skips skips
}

func (t *treeOut) send(root string, format func(io.Writer) archiver, w io.Writer) error {
	b := bufio.NewWriterSize(w, treeBuffer) // headers and small files go together
	t.out, t.buf = format(b), make([]byte, treeBuffer)
	return errors.Join(t.tree(root), t.out.Close(), b.Flush())
}

func (t *treeOut) tree(root string) error {
	i, err := t.fsys.Stat(root, true)
	if err != nil {
		return err
	}
	if !isDir(i) {
		_, err := t.one(root, path.Base(root), i)
		return err
	}
	if t.prefix != "" {
		if _, err := t.out.entry(strings.TrimSuffix(t.prefix, "/"), i, 0); err != nil {
			return err
		}
	}
	w := &walk{fsys: t.fsys, root: root, failed: t.skips.failed}
	w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
		if t.exclude.match(rel) {
			return false, nil
		}
		return t.one(join(root, rel), rel, i)
	}
	return w.run(t.ctx, "")
}

// one writes one entry, or notes why it does not.
func (t *treeOut) one(p, rel string, i *guestv1.FileInfo) (into bool, err error) {
	switch {
	case isSpecial(i):
		t.skips.add(rel, specialKind(i))
		return false, nil
	case t.entries <= 0:
		t.skips.add(rel, "count")
		return false, nil
	case isFile(i) && t.bounded && i.GetSize() > t.room:
		t.skips.add(rel, "size")
		return false, nil
	}
	t.entries--
	name := join(t.prefix, rel)
	if !isFile(i) || i.GetSize() == 0 { // to open an empty file costs more than all else
		_, err := t.out.entry(name, i, 0)
		return true, err
	}
	return false, t.file(p, rel, name, i)
}

// file writes a file that may change meanwhile: exactly the size that is
// announced, cut or filled with zeros.
func (t *treeOut) file(p, rel, name string, i *guestv1.FileInfo) error {
	f, err := t.fsys.Open(p, i)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errdefs.IsInvalidArgument(err) {
			return nil // gone since, or something else now
		}
		return t.skips.failed(rel, err)
	}
	defer f.Close()
	size := i.GetSize()
	t.room -= size
	w, err := t.out.entry(name, i, size)
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(writerOnly{w}, io.LimitReader(f, size), t.buf)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(writerOnly{w}, io.LimitReader(zeros{}, size-n), t.buf)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
