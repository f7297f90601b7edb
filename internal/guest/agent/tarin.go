package agent

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// MaxTarEntries is the most entries that one upload may have: above real trees
// (a large node_modules has 200,000), below what makes a sandbox useless.
const MaxTarEntries = 500_000

// tarIn unpacks an archive that nobody vouches for. Nothing is made outside
// root: names with "..", absolute names, and names that lead through a link are
// refused, whatever is there already. The entries belong to the user who
// unpacks; privilege bits are dropped.
type tarIn struct {
	fsys                 FS
	ctx                  context.Context
	root                 string
	maxBytes, maxEntries int64 // 0: none, MaxTarEntries
	buf                  []byte

	bytes, entries int64
	checked        string   // directory, below root, that is known to be one
	dirs           []tarDir // they get their times at the end
}

type tarDir struct {
	path  string
	mtime time.Time
}

// maxTimes bounds how many directories get their times.
const maxTimes = 20_000

// Extract unpacks an archive below root as tarIn does; maxBytes 0 is no limit.
func Extract(ctx context.Context, fsys FS, root string, r io.Reader, maxBytes, maxEntries int64) error {
	t := &tarIn{ctx: ctx, fsys: fsys, root: root, maxBytes: maxBytes, maxEntries: maxEntries, buf: make([]byte, treeBuffer)}
	return t.extract(r)
}

func (t *tarIn) extract(r io.Reader) error {
	i, err := t.fsys.Stat(t.root, true)
	if err != nil {
		return err
	}
	if !isDir(i) {
		return guest.Errorf(errdefs.ErrInvalidArgument, "unpack into %s: not a directory", t.root)
	}
	if t.maxEntries == 0 {
		t.maxEntries = MaxTarEntries
	}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return t.finish(r)
		}
		if err != nil {
			return guest.Errorf(errdefs.ErrInvalidArgument, "read the archive after %d entries: %v", t.entries, err)
		}
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if err := t.entry(h, in); err != nil {
			return err
		}
	}
}

// finish reads what follows the end of the archive, so that the upload ends in
// order, and sets the times of directories, which later entries changed.
func (t *tarIn) finish(rest io.Reader) error {
	for _, d := range slices.Backward(t.dirs) {
		if err := t.fsys.Chtimes(d.path, d.mtime); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	_, err := io.CopyBuffer(io.Discard, rest, t.buf)
	return err
}

// refuse names the entry that an error is about.
func refuse(h *tar.Header, err error) error {
	e := guest.Errorf(errdefs.ErrInvalidArgument, "entry %q: %v", h.Name, err)
	var g *guest.Error
	if errors.As(e, &g) {
		g.Path = h.Name
	}
	if m, _ := guest.EncodeError(err); m.GetErrno() != 0 { // the kernel said so
		m.Message, m.Path = g.Message, []byte(h.Name)
		return guest.DecodeError(m)
	}
	return e
}

func refused(h *tar.Header, why string) error { return refuse(h, errors.New(why)) }

func (t *tarIn) entry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if t.entries++; t.entries > t.maxEntries {
		return refused(h, "the archive has too many entries")
	}
	elements, ok := clean(h.Name)
	if !ok {
		return refused(h, "the name leads outside of the target")
	}
	if len(elements) == 0 {
		if h.Typeflag != tar.TypeDir {
			return refused(h, "only a directory can be the target itself")
		}
		return nil
	}
	dir, err := t.parents(h, elements[:len(elements)-1])
	if err != nil {
		return err
	}
	p := path.Join(dir, elements[len(elements)-1])
	switch h.Typeflag {
	case tar.TypeDir:
		err = t.dir(h, p)
	case tar.TypeReg:
		err = t.file(h, p, body)
	case tar.TypeSymlink:
		err = t.link(h, p, func() error { return t.fsys.Symlink(h.Linkname, p) })
	case tar.TypeLink:
		err = t.hardLink(h, p)
	default:
		return refused(h, "only files, directories and links can be unpacked")
	}
	if err != nil {
		return refuse(h, err)
	}
	return nil
}

// parents makes the directories that lead to an entry; each must be a real one.
func (t *tarIn) parents(h *tar.Header, elements []string) (string, error) {
	rel := strings.Join(elements, "/")
	if rel == t.checked {
		return path.Join(t.root, rel), nil
	}
	p := t.root
	for _, e := range elements {
		p = path.Join(p, e)
		i, err := t.fsys.Stat(p, false)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = t.fsys.Mkdir(p, 0o755)
		case err == nil && isLink(i):
			return "", refused(h, "the name leads through a link")
		case err == nil && !isDir(i):
			return "", refused(h, "the name leads through something that is not a directory")
		}
		if err != nil {
			return "", refuse(h, err)
		}
	}
	t.checked = rel
	return p, nil
}

func (t *tarIn) dir(h *tar.Header, p string) error {
	i, err := t.fsys.Stat(p, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = t.fsys.Mkdir(p, 0o755)
	case err == nil && !isDir(i):
		return errors.New("something that is not a directory is there already")
	}
	if err != nil {
		return err
	}
	if len(t.dirs) < maxTimes {
		t.dirs = append(t.dirs, tarDir{p, h.ModTime})
	}
	// Its owner must be able to fill it.
	return t.fsys.Chmod(p, uint32(h.Mode)&permsMask|0o700)
}

func (t *tarIn) file(h *tar.Header, p string, body io.Reader) error {
	if t.bytes += h.Size; t.maxBytes > 0 && t.bytes > t.maxBytes {
		return errors.New("the archive holds too many bytes")
	}
	if err := t.clear(p); err != nil {
		return err
	}
	f, err := t.fsys.Create(p, uint32(h.Mode)&permsMask, Exclusive)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(writerOnly{f}, body, t.buf)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = t.fsys.Remove(p)
		return err
	}
	if err := t.fsys.Chmod(p, uint32(h.Mode)&permsMask); err != nil {
		return err
	}
	return t.fsys.Chtimes(p, h.ModTime)
}

// clear removes a file or link that an entry replaces.
func (t *tarIn) clear(p string) error {
	i, err := t.fsys.Stat(p, false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case isDir(i):
		return errors.New("a directory is there already")
	}
	t.checked = ""
	return t.fsys.Remove(p)
}

func (t *tarIn) link(h *tar.Header, p string, make func() error) error {
	if h.Linkname == "" || strings.IndexByte(h.Linkname, 0) >= 0 {
		return errors.New("the link leads nowhere")
	}
	if err := t.clear(p); err != nil {
		return err
	}
	return make()
}

// hardLink links to another entry: below root, through no link, a regular file.
func (t *tarIn) hardLink(h *tar.Header, p string) error {
	elements, ok := clean(h.Linkname)
	if !ok || len(elements) == 0 {
		return errors.New("the hard link leads outside of the target")
	}
	old := t.root
	var i *guestv1.FileInfo
	for n, e := range elements {
		old = path.Join(old, e)
		var err error
		if i, err = t.fsys.Stat(old, false); err != nil {
			return err
		}
		if n < len(elements)-1 && !isDir(i) {
			return errors.New("the hard link leads through something that is not a directory")
		}
	}
	if !isFile(i) {
		return errors.New("the hard link leads to something that is not a file")
	}
	return t.link(h, p, func() error { return t.fsys.Link(old, p) })
}
