package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

// sourceWriter takes a tar, hashes and compresses it into a temporary file.
type sourceWriter struct {
	f   *os.File // locked
	z   *zstd.Encoder
	sum hash.Hash
	old *os.File // the same tar, which was there before, locked shared
	// want is the digest that the tar must have; empty: any.
	want string
}

func (s *Store) newSource(ctx context.Context) (*sourceWriter, error) {
	f, err := s.tempFile(ctx)
	if err != nil {
		return nil, err
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderConcurrency(2))
	if err != nil {
		return nil, fmt.Errorf("compress image: %w", err)
	}
	return &sourceWriter{f: f, z: z, sum: sha256.New()}, nil
}

// Write implements io.Writer.
func (w *sourceWriter) Write(p []byte) (int, error) {
	w.sum.Write(p) // never fails
	return w.z.Write(p)
}

// finish publishes the tar under its digest. Until close nobody removes it.
func (w *sourceWriter) finish(ctx context.Context, s *Store) (digest string, err error) {
	if err := w.z.Close(); err != nil {
		return "", fmt.Errorf("compress image: %w", err)
	}
	if err := w.f.Sync(); err != nil {
		return "", fmt.Errorf("write image: %w", err)
	}
	digest = digestPrefix + hex.EncodeToString(w.sum.Sum(nil))
	if w.want != "" && digest != w.want {
		return "", fmt.Errorf("layer has digest %s, want %s: %w", digest, w.want, errdefs.ErrDataLoss)
	}
	// While it is held, nobody takes the file between its locks for unused.
	l, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer l.Close()
	if w.old, err = openShared(ctx, s.sourcePath(digest)); err == nil {
		whole := s.readSource(ctx, digest, nil)
		if whole == nil {
			return digest, nil
		}
		if !errdefs.IsDataLoss(whole) {
			return "", whole
		}
	}
	if _, err := tryLock(w.f, unix.LOCK_SH); err != nil {
		return "", err
	}
	return digest, publish(w.f.Name(), s.sourcePath(digest))
}

// close ends the writer, whether it finished or not.
func (w *sourceWriter) close() error {
	_ = w.z.Close() // frees its memory; what it wrote does not matter any more
	if w.old != nil {
		w.old.Close()
	}
	return discard(w.f)
}

// readSource calls read with a tar and checks that it is the one of that
// digest. read need not read to the end of it, and may be nil.
func (s *Store) readSource(ctx context.Context, digest string, read func(io.Reader) error) error {
	f, err := os.Open(s.sourcePath(digest))
	if err != nil {
		return fmt.Errorf("open image source: %w: %w", err, errdefs.ErrDataLoss)
	}
	defer f.Close()
	z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(2))
	if err != nil {
		return fmt.Errorf("decompress image: %w", err)
	}
	defer z.Close()
	return readWhole(contextReader{ctx, storedReader{z}}, digest, read)
}

// storedReader reads what the store itself wrote, so bytes that make no sense
// are lost ones.
type storedReader struct{ r io.Reader }

// Read implements io.Reader.
func (s storedReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // a wrapped one is lost data
		err = fmt.Errorf("decompress image: %w: %w", err, errdefs.ErrDataLoss)
	}
	return n, err
}

// contextReader fails when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
