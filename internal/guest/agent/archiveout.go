package agent

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"path"
	"strings"
	"syscall"

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
				if err := t.open(fsys, root); err != nil {
					return err
				}
				defer t.close()
				w.Header().Set("Trailer", guest.SkippedTrailer)
				sendBody(w, r, func(w io.Writer) error { return t.send(path.Base(root), format, w) })
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
	below   Tree // nil when a single file is sent
	single  File
	prefix  string
	exclude globs
	bounded bool
	room    int64 // bytes that files may still take, if bounded
	entries int64 // that may still come

	out   archiver
	buf   []byte
	skips skips
}

// open resolves the path, once.
func (t *treeOut) open(fsys FS, p string) (err error) {
	t.below, err = fsys.Tree(p, true)
	if errors.Is(err, syscall.ENOTDIR) {
		t.single, err = fsys.Open(p, nil)
	}
	return err
}

func (t *treeOut) close() {
	if t.below != nil {
		_ = t.below.Close()
	} else {
		_ = t.single.Close()
	}
}

func (t *treeOut) send(name string, format func(io.Writer) archiver, w io.Writer) error {
	b := bufio.NewWriterSize(w, treeBuffer) // headers and small files go together
	t.out, t.buf = format(b), make([]byte, treeBuffer)
	all := t.tree
	if t.below == nil {
		all = func() error { return t.alone(name) }
	}
	return errors.Join(all(), t.out.Close(), b.Flush())
}

// alone writes a single file.
func (t *treeOut) alone(name string) error {
	i, err := t.single.Stat()
	if err == nil {
		_, err = t.one(name, i, func() (File, error) { return t.single, nil })
	}
	return err
}

func (t *treeOut) tree() error {
	i, err := t.below.Stat("", false)
	if err != nil {
		return err
	}
	if t.prefix != "" {
		if _, err := t.out.entry(strings.TrimSuffix(t.prefix, "/"), i, 0); err != nil {
			return err
		}
	}
	w := &walk{fsys: t.below, failed: t.skips.failed}
	w.enter = func(rel string, i *guestv1.FileInfo) (bool, error) {
		switch {
		case t.exclude.match(t.ctx, rel):
			return false, nil
		case strings.Count(t.prefix+rel, "/") >= maxLevels: // with all names above it, each would take more than the one before
			t.skips.add(rel, "depth")
			return false, nil
		}
		return t.one(rel, i, func() (File, error) { return t.below.Open(rel, i) })
	}
	return w.run(t.ctx, "")
}

// one writes one entry, or notes why it does not.
func (t *treeOut) one(rel string, i *guestv1.FileInfo, open func() (File, error)) (into bool, err error) {
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
	return false, t.file(rel, name, i, open)
}

// file writes a file that may change meanwhile: exactly the size that is
// announced, cut or filled with zeros.
func (t *treeOut) file(rel, name string, i *guestv1.FileInfo, open func() (File, error)) error {
	f, err := open()
	if err != nil {
		if isGone(err) || errdefs.IsInvalidArgument(err) {
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
