package image

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// fullError is that the disk of the store has no room: before anything is
// written, or in the middle, when others took it. It is ResourceExhausted and
// ENOSPC.
type fullError struct {
	dir        string
	need, free int64 // bytes, when nothing was tried
	cause      error // what could not be written
}

// Error implements error.
func (e *fullError) Error() string {
	const mb, help = 1e6, ": make room (agentbox images prune), or use another disk (--data-dir)"
	if e.cause != nil { // what is free by now says nothing: what was written is being removed
		return fmt.Sprintf("%v: the disk of %s filled up%s", e.cause, e.dir, help)
	}
	return fmt.Sprintf("the disk has no room: about %.1f MB are needed, %.1f MB are free in %s%s", float64(e.need)/mb, float64(e.free)/mb, e.dir, help)
}

// Unwrap implements errors.
func (e *fullError) Unwrap() []error {
	return []error{errdefs.ErrResourceExhausted, unix.ENOSPC, e.cause}
}

// isFull reports that a write failed for want of room.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// free is how many bytes may be written to the store's disk.
func (s *Store) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.dir, &st); err != nil {
		return 0, fmt.Errorf("look for free disk space: %w", err)
	}
	// The block's size has another type on other systems.
	return int64(min(st.Bavail, math.MaxInt64/uint64(st.Bsize))) * int64(st.Bsize), nil //nolint:unconvert
}

// room is an error when need bytes are more than the disk has.
func (s *Store) room(need int64) error {
	free, err := s.free()
	if err != nil || need <= free {
		return err
	}
	return &fullError{dir: s.dir, need: need, free: free}
}

// explainFull makes the error of a full disk say what helps.
func (s *Store) explainFull(err error) error {
	var told *fullError
	if !isFull(err) || errors.As(err, &told) {
		return err
	}
	return &fullError{dir: s.dir, cause: err}
}

// allocated is what a file takes of the disk; 0 when it is not there.
func allocated(path string) int64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512 // unit of st_blocks
}

// rootSize is about what the EROFS file of an image takes: what one for another
// agent does, else no less than the layers, which are compressed. It is 0 when
// the file is there.
func (s *Store) rootSize(r record) int64 {
	if allocated(s.erofsPath(r)) > 0 {
		return 0
	}
	others, _ := filepath.Glob(filepath.Join(s.dir, erofsDir, r.key()+"-*"+erofsExt)) // the pattern is good
	for _, path := range others {
		if size := allocated(path); size > 0 {
			return size
		}
	}
	if !r.isLayered() {
		return allocated(s.sourcePath(r.Digest))
	}
	var size int64
	for _, l := range r.Layers {
		size += l.Size
	}
	return size
}

// layersSize is about what the layers of an image take that are not there yet.
// compressing says that uncompressed ones will be compressed: who knows to how
// much, so they count nothing.
func (s *Store) layersSize(layers []oci.Layer, compressing bool) int64 {
	var size int64
	seen := map[string]bool{}
	for _, l := range layers {
		_, err := os.Stat(s.blobPath(l.Digest))
		if err == nil || seen[l.Digest] || compressing && l.Digest == l.DiffID {
			continue
		}
		seen[l.Digest] = true
		size += max(0, l.Size-allocated(filepath.Join(s.dir, partialDir, digestHex(l.Digest))))
	}
	return size
}

// Room implements oci.Layers.
func (in *intake) Room(img oci.Image) error {
	return in.s.room(in.s.layersSize(img.Layers, false) + in.s.rootSize(newRecord(img, FromRegistry)))
}
