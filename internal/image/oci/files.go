package oci

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/containerd/errdefs"
)

// files are the members of an archive of images.
type files interface {
	// open opens a member. NotFound when there is none of that name.
	open(name string) (member, error)
}

// member is an open member of an archive.
type member struct {
	io.ReadCloser
	size int64
}

const (
	// maxMembers bounds the members of an archive of images: one with a thousand
	// images of a hundred layers has fewer.
	maxMembers = 200_000
	// maxLinks is how many links lead from one member to another.
	maxLinks = 8
)

// tarFiles are members of a tar that can be read at any place.
type tarFiles struct {
	r     io.ReaderAt
	parts map[string]part
}

// part is where a member is, or another member's name.
type part struct {
	off, size int64
	link      string
}

// indexTar finds the members of a tar. The first one of a name counts no more
// when another follows, as when a tar is unpacked.
func indexTar(r io.ReaderAt, size int64) (tarFiles, error) {
	section := io.NewSectionReader(r, 0, size)
	tr := tar.NewReader(section)
	f := tarFiles{r: r, parts: map[string]part{}}
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return f, nil
		}
		if err != nil {
			return tarFiles{}, fmt.Errorf("this is no image archive, or it is damaged: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		if len(f.parts) >= maxMembers {
			return tarFiles{}, fmt.Errorf("image archive has more than %d members: %w", maxMembers, errdefs.ErrResourceExhausted)
		}
		name := path.Clean("/" + h.Name)
		switch h.Typeflag {
		case tar.TypeReg:
			off, err := section.Seek(0, io.SeekCurrent)
			if err != nil {
				return tarFiles{}, fmt.Errorf("read image archive: %w", err)
			}
			if h.Size < 0 || h.Size > size-off {
				return tarFiles{}, fmt.Errorf("image archive ends in the middle of %.100q: %w", h.Name, errdefs.ErrInvalidArgument)
			}
			f.parts[name] = part{off: off, size: h.Size}
		case tar.TypeSymlink: // old versions of Docker link equal layers
			f.parts[name] = part{link: path.Join(path.Dir(name), h.Linkname)}
		case tar.TypeLink:
			f.parts[name] = part{link: path.Clean("/" + h.Linkname)}
		}
	}
}

func (f tarFiles) open(name string) (member, error) {
	at := path.Clean("/" + name)
	for range maxLinks {
		p, ok := f.parts[at]
		switch {
		case !ok:
			return member{}, missingMember(name)
		case p.link == "":
			return member{io.NopCloser(io.NewSectionReader(f.r, p.off, p.size)), p.size}, nil
		}
		at = p.link
	}
	return member{}, fmt.Errorf("image archive: %.200q is a link to a link: %w", name, errdefs.ErrInvalidArgument)
}

func missingMember(name string) error {
	return fmt.Errorf("image archive has no %.200q: %w", name, errdefs.ErrNotFound)
}

// dirFiles are regular files below a directory; nothing leads out of it.
type dirFiles struct{ root *os.Root }

func (f dirFiles) open(name string) (member, error) {
	name = path.Clean("/" + name)[1:]
	// Looked at first, because opening a FIFO would wait.
	st, err := f.root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return member{}, missingMember(name)
	}
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%.200q is no file: %w", name, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return member{}, fmt.Errorf("read image layout: %w", err)
	}
	file, err := f.root.Open(name)
	if err != nil {
		return member{}, fmt.Errorf("read image layout: %w", err)
	}
	return member{file, st.Size()}, nil
}

// readAll reads a small member whole.
func readAll(f files, name string, limit int) ([]byte, error) {
	m, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if m.size > int64(limit) {
		return nil, fmt.Errorf("image archive: %.200q is longer than %d bytes: %w", name, limit, errdefs.ErrResourceExhausted)
	}
	text, err := io.ReadAll(io.LimitReader(m, int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("read %.200q of the image archive: %w", name, err)
	}
	return text, nil
}
