package erofs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/containerd/errdefs"
)

// Of struct erofs_super_block.
const (
	superblockOffset = 1024
	magic            = 0xe0f5e1e2
	featureChecksum  = 1
	featureMtime     = 2 // inodes hold times of modification
)

type superblock struct {
	rootNID   uint16
	inodes    uint64
	built     time.Time
	blocks    uint32
	metaBlock uint32
}

// encode returns the superblock with the rest of its block.
func (s superblock) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, blockSize-superblockOffset)
	le.PutUint32(b[0:], magic)
	le.PutUint32(b[8:], featureChecksum|featureMtime)
	b[12] = blockBits
	le.PutUint16(b[14:], s.rootNID)
	le.PutUint64(b[16:], s.inodes)
	le.PutUint64(b[24:], uint64(s.built.Unix()))
	le.PutUint32(b[32:], uint32(s.built.Nanosecond()))
	le.PutUint32(b[36:], s.blocks)
	le.PutUint32(b[40:], s.metaBlock)
	le.PutUint32(b[4:], checksum(b))
	return b
}

// checksum is crc32c over the block from the superblock on, the checksum field
// being zero, without the final inversion that the package does.
func checksum(b []byte) uint32 {
	return ^crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
}

// Check reports whether the size bytes at r look like a whole image: a
// superblock with a right checksum and as many blocks as it says. It finds
// files that were cut off or never finished, not changed ones. What it finds is
// a DataLoss error.
func Check(r io.ReaderAt, size int64) error {
	b := make([]byte, blockSize-superblockOffset)
	if _, err := r.ReadAt(b, superblockOffset); err != nil {
		return fmt.Errorf("read superblock: %w: %w", err, errdefs.ErrDataLoss)
	}
	le := binary.LittleEndian
	sum := le.Uint32(b[4:])
	le.PutUint32(b[4:], 0)
	switch {
	case le.Uint32(b) != magic:
		return fmt.Errorf("no EROFS image: %w", errdefs.ErrDataLoss)
	case sum != checksum(b):
		return fmt.Errorf("superblock has a wrong checksum: %w", errdefs.ErrDataLoss)
	case int64(le.Uint32(b[36:]))<<blockBits != size:
		return fmt.Errorf("image has %d bytes and should have %d: %w", size, int64(le.Uint32(b[36:]))<<blockBits, errdefs.ErrDataLoss)
	}
	return nil
}
