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

// tarIn unpacks an archive that nobody vouches for. Nothing is made outside the
// tree: names with "..", absolute names, and names that lead through a link are
// refused, whatever is there already. The entries belong to the user who
// unpacks; privilege bits are dropped.
type tarIn struct {
	fsys Tree
	ctx  context.Context
	o    ExtractOptions
	buf  []byte

	bytes, entries int64
	checked        string   // directory that is known to be one
	dirs           []tarDir // they get their times at the end
}

type tarDir struct {
	path  string
	mtime time.Time
}

// maxTimes bounds how many directories get their times.
const maxTimes = 20_000

func (t *tarIn) extract(r io.Reader) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		switch {
		case err == io.EOF:
			return t.finish(r)
		case errors.Is(err, errTooLarge):
			return err
		case err != nil:
			return guest.Errorf(errdefs.ErrInvalidArgument, "read the archive after %d entries: %v", t.entries, err)
		case t.ctx.Err() != nil:
			return t.ctx.Err()
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

// refuse names the entry that an error is about. Whatever is wrong with it is the
// archive's fault, unless it is a limit or the kernel said so.
func refuse(h *tar.Header, err error) error {
	m, _ := guest.EncodeError(err)
	if m.GetErrno() == 0 && !errdefs.IsResourceExhausted(err) {
		m, _ = guest.EncodeError(errdefs.ErrInvalidArgument)
	}
	e := guest.Errorf(errdefs.ErrInvalidArgument, "entry %q: %v", h.Name, err)
	m.Message, m.Path = strings.ToValidUTF8(e.Error(), "\uFFFD"), []byte(h.Name)
	return guest.DecodeError(m)
}

func refused(h *tar.Header, why string) error { return refuse(h, errors.New(why)) }

func (t *tarIn) entry(h *tar.Header, body io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if t.entries++; t.entries > t.o.MaxEntries {
		return refuse(h, errTooMany)
	}
	elements, ok := clean(h.Name)
	switch {
	case !ok:
		return refused(h, "the name leads outside of the target")
	case len(elements) > maxLevels || len(h.Name) > maxPath:
		return refused(h, "the name is too long")
	case t.o.Strip > 0 && len(elements) <= t.o.Strip:
		return nil
	}
	elements = elements[t.o.Strip:]
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
		if isSparse(h) {
			return refused(h, "sparse entries are not unpacked")
		}
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

// isSparse tells whether a header stands for more bytes than the archive holds:
// some hundred bytes could fill any disk.
func isSparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// parents makes the directories that lead to an entry; each must be a real one.
func (t *tarIn) parents(h *tar.Header, elements []string) (string, error) {
	rel := strings.Join(elements, "/")
	if rel == t.checked {
		return rel, nil
	}
	p := ""
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
	if t.bytes += h.Size; t.o.MaxBytes > 0 && t.bytes > t.o.MaxBytes {
		return errTooLarge
	}
	f, err := t.fsys.Create(p, uint32(h.Mode)&permsMask, Exclusive)
	if errors.Is(err, fs.ErrExist) {
		if err = t.clear(p); err == nil {
			f, err = t.fsys.Create(p, uint32(h.Mode)&permsMask, Exclusive)
		}
	}
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(writerOnly{f}, body, t.buf)
	if mode := uint32(h.Mode) & permsMask; err == nil && mode&Umask != 0 {
		err = f.Chmod(mode) // which the umask narrowed
	}
	if err == nil {
		err = f.Chtimes(h.ModTime)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = t.fsys.Remove(p)
	}
	return err
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

// hardLink links to another entry of the tree: through no link, a regular file.
func (t *tarIn) hardLink(h *tar.Header, p string) error {
	elements, ok := clean(h.Linkname)
	if !ok || len(elements) <= t.o.Strip {
		return errors.New("the hard link leads outside of the target")
	}
	elements = elements[t.o.Strip:]
	old := ""
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
