package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func (s *Store) blobPath(digest string) string {
	return filepath.Join(s.dir, blobsDir, digestHex(digest))
}

// intake holds what one operation put into the store, or found there, so that
// nobody takes it for unused before a record names it.
type intake struct {
	s       *Store
	mu      sync.Mutex
	release []func() error
	// full is set when the disk is: parts of blobs are not kept then.
	full atomic.Bool
}

func (s *Store) newIntake() *intake { return &intake{s: s} }

func (in *intake) hold(release func() error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.release = append(in.release, release)
}

// close lets go of everything.
func (in *intake) close() error {
	var err error
	for _, f := range in.release {
		err = errors.Join(err, f())
	}
	return err
}

// blobWriter fills a blob. What an earlier attempt left is the beginning.
type blobWriter struct {
	in     *intake
	f      *os.File // in the directory of partial blobs, locked
	digest string
	sum    hash.Hash
	size   int64
}

// Begin implements oci.Layers.
func (in *intake) Begin(ctx context.Context, digest string) (oci.Blob, error) {
	for {
		if there, err := in.holdBlob(ctx, digest); there || err != nil {
			return nil, err
		}
		f, err := openLock(ctx, filepath.Join(in.s.dir, partialDir, digestHex(digest)), func(*os.File) {})
		if err != nil {
			return nil, err
		}
		if same, err := isAt(f, f.Name()); err != nil || !same { // another process finished it
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("open partial blob: %w", err)
			}
			continue
		}
		b := &blobWriter{in: in, f: f, digest: digest, sum: sha256.New()}
		if b.size, err = io.Copy(b.sum, contextReader{ctx, f}); err != nil {
			f.Close()
			return nil, fmt.Errorf("read partial blob: %w", err)
		}
		return b, nil
	}
}

// holdBlob holds a blob that is there and whole.
func (in *intake) holdBlob(ctx context.Context, digest string) (bool, error) {
	f, err := openShared(ctx, in.s.blobPath(digest))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open blob: %w", err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, contextReader{ctx, f}); err != nil {
		f.Close()
		return false, fmt.Errorf("read blob: %w", err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != digestHex(digest) {
		return false, f.Close() // damaged: a new one takes its place
	}
	in.hold(f.Close)
	return true, nil
}

// Size implements oci.Blob.
func (b *blobWriter) Size() int64 { return b.size }

// Write implements io.Writer.
func (b *blobWriter) Write(p []byte) (int, error) {
	n, err := b.f.Write(p)
	b.sum.Write(p[:n])
	b.size += int64(n)
	if isFull(err) {
		b.in.full.Store(true)
	}
	return n, err
}

// Reset implements oci.Blob.
func (b *blobWriter) Reset() error {
	b.sum.Reset()
	b.size = 0
	if _, err := b.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return b.f.Truncate(0)
}

// Commit implements oci.Blob.
func (b *blobWriter) Commit(ctx context.Context) error {
	if got := digestPrefix + hex.EncodeToString(b.sum.Sum(nil)); got != b.digest {
		return errors.Join(fmt.Errorf("layer has digest %s, want %s: %w", got, b.digest, errdefs.ErrDataLoss), b.Reset(), b.Close())
	}
	err := errors.Join(b.f.Sync(), b.f.Chmod(0o400))
	if err == nil {
		err = b.publish(ctx)
	}
	if err != nil {
		if isFull(err) {
			b.in.full.Store(true)
		}
		return errors.Join(fmt.Errorf("keep layer %s: %w", b.digest, err), b.Close())
	}
	b.in.hold(b.f.Close)
	return nil
}

func (b *blobWriter) publish(ctx context.Context) error {
	// While it is held, nobody takes the file between its locks for unused.
	l, err := b.in.s.lock(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := tryLock(b.f, unix.LOCK_SH); err != nil {
		return err
	}
	return publish(b.f.Name(), b.in.s.blobPath(b.digest))
}

// Close implements oci.Blob. A file without a byte is of no use to anybody; one
// that fills the disk keeps others from working.
func (b *blobWriter) Close() error {
	var err error
	if b.size == 0 || b.in.full.Load() {
		err = os.Remove(b.f.Name())
	}
	return errors.Join(err, b.f.Close())
}

// put stores a small blob.
func (in *intake) put(ctx context.Context, digest string, content io.Reader) error {
	b, err := in.Begin(ctx, digest)
	if b == nil || err != nil {
		return err
	}
	if err := b.Reset(); err != nil {
		return errors.Join(err, b.Close())
	}
	if _, err := io.Copy(b, contextReader{ctx, content}); err != nil {
		return errors.Join(fmt.Errorf("store layer %s: %w", digest, err), b.Reset(), b.Close())
	}
	return b.Commit(ctx)
}

// putTar stores an uncompressed layer, compressed.
func (in *intake) putTar(ctx context.Context, digest string, content io.Reader) (err error) {
	if f, err := openShared(ctx, in.s.sourcePath(digest)); err == nil {
		if in.s.readSource(ctx, digest, nil) == nil {
			in.hold(f.Close)
			return nil
		}
		f.Close()
	}
	src, err := in.s.newSource(ctx)
	if err != nil {
		return err
	}
	in.hold(src.close)
	if _, err := io.Copy(src, contextReader{ctx, content}); err != nil {
		return fmt.Errorf("store layer %s: %w", digest, err)
	}
	src.want = digest
	_, err = src.finish(ctx, in.s)
	return err
}
