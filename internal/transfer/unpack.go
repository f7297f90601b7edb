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
	"strconv"
	"strings"
)

// Bounds limit what Unpack takes.
type Bounds struct {
	Bytes   int64 // of file content. 0: DefaultBytes
	Entries int   // 0: DefaultEntries
}

// Defaults of Bounds: an outputs directory is documents and data sets, not a
// disk image.
const (
	DefaultBytes   int64 = 10 << 30
	DefaultEntries       = 100_000
)

// ErrBounds is wrapped by the error of an Unpack that met a bound. What was
// unpacked until then stays.
var ErrBounds = errors.New("more than may be collected")

// What is told of entries that are left out, however many there are and however
// long their names, so that a guest can't fill the host's memory or terminal.
const (
	maxSkipped = 100
	maxShown   = 256 // bytes of a name
)

// Unpack writes the regular files and directories of the tar stream r below
// dir, which is made if needed. Everything else (links, devices, names that
// lead elsewhere) is left out and returned in skipped, as printable text of
// bounded size. No name in the stream can touch anything outside dir, and modes
// keep only their permission bits.
func Unpack(r io.Reader, dir string, b Bounds) (skipped []string, err error) {
	if b.Bytes == 0 {
		b.Bytes = DefaultBytes
	}
	if b.Entries == 0 {
		b.Entries = DefaultEntries
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("make the output directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the output directory: %w", err)
	}
	defer root.Close()
	u := unpacker{root: root, left: b.Bytes}
	tr := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := tr.Next()
		if err == io.EOF {
			return u.told(), nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return u.told(), fmt.Errorf("read the sandbox's archive: %w", err)
		}
		if n >= b.Entries {
			return u.told(), fmt.Errorf("%w: %d files and directories", ErrBounds, b.Entries)
		}
		if err := u.take(h, tr); err != nil {
			return u.told(), err
		}
	}
}

type unpacker struct {
	root    *os.Root
	left    int64
	skipped []string
	untold  int // left out beyond maxSkipped
}

func (u *unpacker) skip(h *tar.Header, why string) {
	if len(u.skipped) == maxSkipped {
		u.untold++
		return
	}
	u.skipped = append(u.skipped, shown(h.Name)+": "+why)
}

// shown is a guest's name for a person to read.
func shown(name string) string {
	if len(name) > maxShown {
		return strconv.Quote(name[:maxShown]) + "…"
	}
	return strconv.Quote(name)
}

// reason is an error without the names in it.
func reason(err error) string {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return strconv.Quote(err.Error())
}

// told is what was left out.
func (u *unpacker) told() []string {
	if u.untold == 0 {
		return u.skipped
	}
	return append(u.skipped, fmt.Sprintf("and %d more", u.untold))
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
		u.skip(h, "the name leads out of the directory")
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			u.skip(h, reason(err))
		}
		return nil
	case tar.TypeReg:
		return u.file(h, name, data)
	default:
		u.skip(h, kind(h)+"; only regular files and directories are collected")
		return nil
	}
}

func (u *unpacker) file(h *tar.Header, name string, data io.Reader) error {
	if h.Size > u.left {
		return fmt.Errorf("%w: %s would pass the limit of the collected bytes", ErrBounds, shown(h.Name))
	}
	u.left -= h.Size
	if err := u.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		u.skip(h, reason(err))
		return nil
	}
	// A new file each time: an entry must not write through an earlier one.
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.skip(h, reason(err))
		return nil
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, h.FileInfo().Mode().Perm()|0o600)
	if err != nil {
		u.skip(h, reason(err))
		return nil
	}
	_, err = io.Copy(f, data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", shown(name), err)
	}
	return nil
}
