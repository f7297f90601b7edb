package transfer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Options say what Unpack takes.
type Options struct {
	Bytes   int64 // of file content, at most. 0: DefaultBytes
	Entries int   // at most, and as many directories altogether. 0: DefaultEntries
	// Links keeps symbolic links that lead to a place in the directory, there or
	// not. Without it, as for others, they are left out.
	Links bool
}

// Defaults of Options: an outputs directory is documents and data sets, not a
// disk image.
const (
	DefaultBytes   int64 = 10 << 30
	DefaultEntries       = 100_000
)

// ErrBounds is wrapped by the error of an Unpack that met a bound. What was
// unpacked until then stays.
var ErrBounds = errors.New("more than may be collected")

// maxLinkBytes bounds the names and targets of links, which are held to the end.
const maxLinkBytes = 64 << 20

// Unpack writes the regular files and directories of the tar stream r below
// dir, which is made if needed, and links if that is asked for. Everything else
// (hard links, devices, names that lead elsewhere) is left out and returned in
// skipped, as printable text of bounded size. No name in the stream can touch
// anything outside dir, and modes keep only their permission bits.
func Unpack(r io.Reader, dir string, o Options) (skipped []string, err error) {
	if o.Bytes == 0 {
		o.Bytes = DefaultBytes
	}
	if o.Entries == 0 {
		o.Entries = DefaultEntries
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("make the output directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the output directory: %w", err)
	}
	defer root.Close()
	u := unpacker{root: root, left: o.Bytes, dirs: o.Entries, keepLinks: o.Links}
	tr := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			u.makeLinks()
			return u.skips.List(), nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return u.skips.List(), fmt.Errorf("read the sandbox's archive: %w", err)
		}
		if n >= o.Entries {
			return u.skips.List(), fmt.Errorf("%w: %d files and directories", ErrBounds, o.Entries)
		}
		if err := u.take(h, tr); err != nil {
			return u.skips.List(), err
		}
	}
}

type unpacker struct {
	root      *os.Root
	left      int64
	dirs      int    // that may still be made on the way to entries
	last      string // directory that is known to be there
	checked   string // directory to which no link leads
	skips     Skips
	keepLinks bool
	links     []link
	linkBytes int
}

// kind names what is no file and no directory.
func kind(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeSymlink, tar.TypeLink:
		return "a link"
	case tar.TypeFifo:
		return "a FIFO"
	case tar.TypeChar, tar.TypeBlock:
		return "a device"
	}
	return "a special file"
}

// take handles one entry. Only an error of the host's own ends the whole.
func (u *unpacker) take(h *tar.Header, data io.Reader) error {
	name := path.Clean(strings.TrimPrefix(h.Name, "./"))
	if name == "." && h.Typeflag == tar.TypeDir {
		return nil
	}
	if !filepath.IsLocal(name) || strings.IndexByte(name, 0) >= 0 {
		u.skips.Add(h.Name, "the name leads out of the directory")
		return nil
	}
	switch {
	case strings.Count(name, "/") >= maxLevels:
		u.skips.Add(h.Name, fmt.Sprintf("it lies more than %d directories deep", maxLevels))
		return nil
	case sparse(h):
		u.skips.Add(h.Name, "a sparse entry, which stands for more than is sent")
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return u.skip(h, u.mkdirs(name))
	case tar.TypeReg:
		return u.file(h, name, data)
	case tar.TypeSymlink:
		if u.keepLinks {
			u.link(h, name)
			return nil
		}
		fallthrough
	default:
		u.skips.Add(h.Name, kind(h)+"; only regular files and directories are collected")
		return nil
	}
}

func (u *unpacker) file(h *tar.Header, name string, data io.Reader) error {
	if h.Size > u.left {
		return fmt.Errorf("%w: %s would pass the limit of the collected bytes", ErrBounds, shown(h.Name))
	}
	u.left -= h.Size
	if err := u.mkdirs(path.Dir(name)); err != nil {
		return u.skip(h, err)
	}
	// A new file each time: an entry must not write through an earlier one.
	if err := u.remove(name); err != nil {
		return u.skip(h, err)
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, h.FileInfo().Mode().Perm()|0o600)
	if err != nil {
		return u.skip(h, err)
	}
	_, err = io.Copy(f, data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", shown(name), err)
	}
	return nil
}

// skip notes that an entry could not be made, unless err is a bound.
func (u *unpacker) skip(h *tar.Header, err error) error {
	if err == nil || errors.Is(err, ErrBounds) {
		return err
	}
	u.skips.Add(h.Name, Reason(err))
	return nil
}

// remove makes room for an entry.
func (u *unpacker) remove(name string) error {
	u.last = ""
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// maxLevels is how deep a name may lead: deeper than any project, and far from
// what makes a tree hard to remove again. One name of an archive could hold
// 500,000.
const maxLevels = 256

// mkdirs makes a directory and those above it, as long as there may be more.
func (u *unpacker) mkdirs(name string) error {
	if name == u.last || name == "." {
		return nil
	}
	if i, err := u.root.Stat(name); err == nil && i.IsDir() {
		u.last = name
		return nil
	}
	if err := u.mkdirs(path.Dir(name)); err != nil {
		return err
	}
	if u.dirs--; u.dirs < 0 {
		return fmt.Errorf("%w: there are too many directories", ErrBounds)
	}
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	u.last = name
	return nil
}

// sparse tells whether some hundred bytes of the archive may stand for any number
// of a file's.
func sparse(h *tar.Header) bool {
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}
