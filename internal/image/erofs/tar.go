package erofs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// Marks of the OCI image specification, layer.md, "Whiteouts".
const (
	whiteoutPrefix = ".wh."
	whiteoutMeta   = ".wh..wh."
	whiteoutOpaque = ".wh..wh..opq"
)

var tarTypes = map[byte]uint32{
	tar.TypeReg: TypeRegular, tar.TypeGNUSparse: TypeRegular, tar.TypeCont: TypeRegular,
	tar.TypeDir: TypeDir, tar.TypeSymlink: TypeSymlink, tar.TypeFifo: TypeFIFO,
	tar.TypeChar: TypeChar, tar.TypeBlock: TypeBlock,
}

// AddLayer applies one uncompressed layer, a tar stream, over what the image
// has. Names are taken relative to the root of the image, whatever they look
// like. Extended attributes are dropped. A stream that is no tar, that ends too
// early or that holds an impossible entry is InvalidArgument; one that is over
// the limits is ResourceExhausted; errors of r are passed on.
//
// Long runs of zeros are written as holes, whatever the tar calls them.
func (w *Writer) AddLayer(r io.Reader) error {
	w.NextLayer()
	src := &source{r: r}
	tr := tar.NewReader(src)
	for {
		h, err := tr.Next()
		if err == io.EOF { //nolint:errorlint // a wrapped one is a cut layer
			return nil
		}
		if err != nil { // it is the bytes' fault, unless src has failed
			err = fmt.Errorf("read layer: %w: %w", err, errdefs.ErrInvalidArgument)
		} else {
			err = w.addHeader(h, tr)
		}
		switch {
		case err == nil:
		case src.err != nil:
			return fmt.Errorf("read layer: %w", src.err)
		case errdefs.IsInvalidArgument(err) || errdefs.IsResourceExhausted(err):
			return err
		case errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF):
			return fmt.Errorf("read layer: %w: %w", err, errdefs.ErrInvalidArgument)
		default:
			return fmt.Errorf("apply layer: %w", err)
		}
	}
}

// source remembers the error of a reader, to tell it from what the tar package
// thinks of the bytes.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// addHeader applies one entry of a layer.
func (w *Writer) addHeader(h *tar.Header, data io.Reader) error {
	name := path.Clean("/" + h.Name)
	dir, base := path.Split(name)
	switch {
	case h.Typeflag == tar.TypeXGlobalHeader:
		return w.budget.record()
	case strings.HasPrefix(base, whiteoutPrefix) && h.Size > 0:
		return invalid(h.Name, "whiteout with data")
	case base == whiteoutOpaque:
		return w.Opaque(dir)
	case strings.HasPrefix(base, whiteoutMeta): // of AUFS, means nothing
		return w.budget.record()
	case strings.HasPrefix(base, whiteoutPrefix):
		hidden := base[len(whiteoutPrefix):]
		if hidden == "" || hidden == "." || hidden == ".." {
			return invalid(h.Name, "bad whiteout")
		}
		return w.Whiteout(dir + hidden)
	case h.Typeflag == tar.TypeLink:
		return w.Add(Entry{Path: name, Link: path.Clean("/" + h.Linkname)})
	}
	typ, ok := tarTypes[h.Typeflag]
	if !ok {
		return invalid(h.Name, fmt.Sprintf("unknown tar type %q", h.Typeflag))
	}
	for _, id := range []int64{int64(h.Uid), int64(h.Gid), h.Devmajor, h.Devminor} {
		if id < 0 || id > math.MaxUint32 {
			return invalid(h.Name, "bad owner or device number")
		}
	}
	return w.Add(Entry{
		Path: name, Mode: typ | uint32(h.Mode)&0o7777, UID: uint32(h.Uid), GID: uint32(h.Gid),
		Mtime: h.ModTime, Size: h.Size, Data: data, Target: h.Linkname,
		Major: uint32(h.Devmajor), Minor: uint32(h.Devminor),
	})
}
