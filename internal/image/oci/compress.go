package oci

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compression of a stream, told by its first bytes whatever a manifest says.
type Compression string

// The compressions that layers have.
const (
	Uncompressed Compression = ""
	Gzip         Compression = "gzip"
	Zstd         Compression = "zstd"
)

// maxWindow is what a zstd stream may make us keep, in bytes: the most that the
// zstd program takes without being asked to.
const maxWindow = 128 << 20

// Detect tells the compression of a stream that begins with head.
func Detect(head []byte) Compression {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}): // RFC 1952
		return Gzip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}): // RFC 8878
		return Zstd
	default:
		return Uncompressed
	}
}

// Decompress reads a stream that may be compressed. Bytes that can't be
// decompressed are InvalidArgument; errors of r are passed on.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	src := &failing{r: r}
	in := bufio.NewReaderSize(src, 1<<16)
	head, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var z io.Reader
	var end func()
	switch Detect(head) {
	case Gzip:
		g, err := gzip.NewReader(in)
		if err != nil {
			return nil, src.explain(err)
		}
		z, end = g, func() { _ = g.Close() }
	case Zstd:
		d, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, src.explain(err)
		}
		z, end = d, d.Close
	default:
		return io.NopCloser(in), nil
	}
	return &decompressed{z, src, end}, nil
}

type decompressed struct {
	z   io.Reader
	src *failing
	end func()
}

// Read implements io.Reader.
func (d *decompressed) Read(p []byte) (int, error) {
	n, err := d.z.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // a wrapped one is no end
		err = d.src.explain(err)
	}
	return n, err
}

// Close implements io.Closer. It does not close the source.
func (d *decompressed) Close() error {
	d.end()
	return nil
}

// failing remembers why its reader failed, to tell that from bytes that make no
// sense.
type failing struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (f *failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

func (f *failing) explain(err error) error {
	if f.err != nil {
		return f.err
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return fmt.Errorf("decompress: %w: %w", err, errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("decompress: %w: %w", err, errdefs.ErrInvalidArgument)
}
