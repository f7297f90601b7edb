// Package erofs writes EROFS images that gVisor can read and map, and Linux too.
//
// Regular files are "flat plain": whole blocks, padded with zeros, because
// gVisor maps the image and a file whose tail lies beside an inode is killed by
// SIGBUS at its first touch. Directories and symbolic links that fit lie beside
// their inodes. There are no extended attributes (the readers have no use for
// them), no compression and no incompatible feature.
//
// A [Writer] takes entries, or whole layers as tar streams, in one pass: file
// data goes into the image as it arrives, the tree is kept in memory and
// written behind the data by [Writer.Close]; the superblock comes last. The
// same input gives the same bytes.
//
// The format: https://docs.kernel.org/filesystems/erofs.html and the kernel's
// fs/erofs/erofs_fs.h.
package erofs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// Types of files, the upper bits of Entry.Mode, as in every Unix.
const (
	TypeMask    = 0o170000
	TypeFIFO    = 0o010000
	TypeChar    = 0o020000
	TypeDir     = 0o040000
	TypeBlock   = 0o060000
	TypeRegular = 0o100000
	TypeSymlink = 0o120000
	TypeSocket  = 0o140000
)

const (
	blockBits = 12
	blockSize = 1 << blockBits
	// maxName and maxTarget are NAME_MAX and PATH_MAX - 1 of Linux.
	maxName   = 255
	maxTarget = 4095
)

// Entry is one file system object.
type Entry struct {
	// Path inside the image, relative to its root, whatever it looks like. Its
	// parents are resolved inside the image, symbolic links included, and made
	// when they are missing (0755, root, of the entry's time). The last name is
	// never followed.
	Path string
	// Mode is one of the types and the permission bits.
	Mode     uint32
	UID, GID uint32
	Mtime    time.Time // zero: 1970
	// Size and Data are of regular files. Exactly Size bytes are taken.
	Size int64
	Data io.Reader
	// Target of a symbolic link, 1 to 4095 bytes.
	Target string
	// Major and Minor of a device.
	Major, Minor uint32
	// Link makes Path another name of the file at this path, which must exist
	// and be no directory. Everything but Path is ignored.
	Link string
}

// Writer builds one image. After an error it can only be thrown away. It is not
// safe for concurrent use.
type Writer struct {
	f      *os.File
	bw     *bufio.Writer
	off    int64 // where bw's next byte lands
	root   *inode
	chunk  []byte // for file data on its way
	layer  int
	budget budget
	dead   []extent
}

// chunkSize is how much file data is moved at once: many whole blocks.
const chunkSize = 1 << 18

// extent is a part of the file that holds data which nothing refers to any more.
type extent struct{ off, length int64 }

// Stats describe a finished image.
type Stats struct {
	Inodes int   // files, directories and so on; hard links count once
	Bytes  int64 // size of the file
}

// New starts an image in f, which must be empty and stays open. f is of no use
// before Close succeeded.
func New(f *os.File, limits Limits) (*Writer, error) {
	w := &Writer{
		f: f,
		// The wrapper hides ReadFrom, which would bypass the buffer.
		bw:     bufio.NewWriterSize(struct{ io.Writer }{f}, chunkSize),
		root:   newDir(),
		chunk:  make([]byte, chunkSize),
		budget: newBudget(limits.withDefaults()),
	}
	w.root.parent = w.root
	return w, w.zeros(blockSize) // the superblock's place
}

// NextLayer makes everything that was added so far the lower layers of what
// follows.
func (w *Writer) NextLayer() { w.layer++ }

// Add puts e into the image. What e.Path named before is replaced; a directory
// over a directory keeps its children and takes e's mode, owner and time.
func (w *Writer) Add(e Entry) error {
	if err := w.budget.record(); err != nil {
		return err
	}
	d, name, err := w.at(e.Path, func() *inode {
		parent := newDir()
		parent.setTime(e.Mtime)
		return parent
	})
	if err != nil {
		return err
	}
	if e.Link != "" {
		return w.link(d, name, e)
	}
	if e.Mode > math.MaxUint16 {
		return invalid(e.Path, "bad mode")
	}
	n := &inode{mode: uint16(e.Mode), uid: e.UID, gid: e.GID}
	n.setTime(e.Mtime)
	if n.isDir() {
		return w.directory(d, name, n)
	}
	if name == "" {
		return invalid(e.Path, "the root must be a directory")
	}
	switch e.Mode & TypeMask {
	case TypeRegular:
		if err := w.data(n, e); err != nil {
			return err
		}
	case TypeSymlink:
		if n.target = e.Target; e.Target == "" || len(e.Target) > maxTarget || strings.IndexByte(e.Target, 0) >= 0 {
			return invalid(e.Path, "bad link target")
		}
		n.size = int64(len(e.Target))
	case TypeChar, TypeBlock:
		// new_encode_dev of the kernel's include/linux/kdev_t.h.
		n.addr = e.Minor&0xff | e.Major<<8 | e.Minor&^0xff<<12
	case TypeFIFO, TypeSocket:
	default:
		return invalid(e.Path, "unknown type of file")
	}
	return w.insert(d, name, n)
}

// Has reports whether path names something, links to it followed but for the
// last.
func (w *Writer) Has(path string) bool {
	d, name, err := w.at(path, nil)
	if err != nil {
		return false
	}
	_, ok := d.children[name]
	return ok || name == ""
}

// link makes name in d another name of the inode at e.Link.
func (w *Writer) link(d *inode, name string, e Entry) error {
	td, tname, err := w.at(e.Link, nil)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("link %s: %w", quote(e.Path), err)
	}
	var t child
	if err == nil {
		t = td.children[tname]
	}
	if t.inode == nil || t.isDir() || name == "" {
		return invalid(e.Path, "hard link to "+quote(e.Link)+", which is no file of the image")
	}
	if old, ok := d.children[name]; ok && old.inode == t.inode {
		d.children[name] = child{old.inode, w.layer}
		return nil
	}
	if t.nlink == math.MaxUint32 {
		return invalid(e.Path, "too many hard links")
	}
	return w.insert(d, name, t.inode)
}

// directory adds the directory n, or lets one that exists take n's attributes.
func (w *Writer) directory(d *inode, name string, n *inode) error {
	old := d.children[name].inode
	if name == "" {
		old = w.root
	}
	if old == nil || !old.isDir() {
		n.children = map[string]child{}
		return w.insert(d, name, n)
	}
	old.mode, old.uid, old.gid, old.mtime, old.mtimeNs = n.mode, n.uid, n.gid, n.mtime, n.mtimeNs
	if name != "" {
		d.children[name] = child{old, w.layer}
	}
	return nil
}

// data writes the content of the regular file e and notes its place in n.
func (w *Writer) data(n *inode, e Entry) error {
	if e.Size < 0 {
		return invalid(e.Path, "negative size")
	}
	if e.Size == 0 {
		return nil // address 0, no block
	}
	if e.Size > w.budget.limits.MaxBytes-w.off {
		return w.tooBig()
	}
	start := w.off
	for left := e.Size; left > 0; {
		got, err := io.ReadFull(e.Data, w.chunk[:min(left, int64(len(w.chunk)))])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, errdefs.ErrInvalidArgument)
		}
		if err == nil {
			err = w.fill(w.chunk[:got])
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", quote(e.Path), err)
		}
		left -= int64(got)
	}
	n.addr, n.size = uint32(start>>blockBits), e.Size
	return w.pad()
}

// fill writes a chunk of file data. One of zeros alone becomes a hole, so that a
// sparse file of a few bytes does not fill the disk. Chunks but the last of a
// file are whole blocks, so padding stays with the data that it pads.
func (w *Writer) fill(chunk []byte) error {
	if len(chunk) < len(w.chunk) || !allZero(chunk) {
		return w.write(chunk)
	}
	if err := w.bw.Flush(); err != nil {
		return err
	}
	w.off += int64(len(chunk))
	_, err := w.f.Seek(w.off, io.SeekStart)
	return err
}

func allZero(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), blockSize)
		if !bytes.Equal(p[:n], zeroBlock[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}

func (w *Writer) tooBig() error {
	return fmt.Errorf("image is bigger than %d bytes: %w", w.budget.limits.MaxBytes, errdefs.ErrResourceExhausted)
}

var zeroBlock [blockSize]byte

func (w *Writer) write(p []byte) error {
	n, err := w.bw.Write(p)
	w.off += int64(n)
	return err
}

// zeros writes n zero bytes, at most a block.
func (w *Writer) zeros(n int) error { return w.write(zeroBlock[:n]) }

// pad fills the current block.
func (w *Writer) pad() error { return w.zeros(int(-w.off & (blockSize - 1))) }

// Close writes the tree and the superblock, whose time of creation is built.
// The file stays open and is not synced.
func (w *Writer) Close(built time.Time) (Stats, error) {
	p := planner{}
	p.plan(w.root)
	end := w.off + p.bigBlocks<<blockBits + int64(p.size)
	if end > w.budget.limits.MaxBytes {
		return Stats{}, w.tooBig()
	}
	// Block numbers have 32 bits.
	if end>>blockBits >= math.MaxUint32 {
		return Stats{}, w.tooBig()
	}
	if err := w.bigBodies(p.order); err != nil {
		return Stats{}, fmt.Errorf("write directories: %w", err)
	}
	base := w.off
	if err := w.inodes(base, p.order); err != nil {
		return Stats{}, fmt.Errorf("write inodes: %w", err)
	}
	if err := errors.Join(w.pad(), w.bw.Flush()); err != nil {
		return Stats{}, fmt.Errorf("write inodes: %w", err)
	}
	sb := superblock{
		rootNID: uint16(w.root.nid), inodes: uint64(len(p.order)), built: built,
		blocks: uint32(w.off >> blockBits), metaBlock: uint32(base >> blockBits),
	}
	if _, err := w.f.WriteAt(sb.encode(), superblockOffset); err != nil {
		return Stats{}, fmt.Errorf("write superblock: %w", err)
	}
	for _, e := range w.dead {
		punchHole(w.f, e) // the bytes are nobody's: keeping them is no error
	}
	return Stats{Inodes: len(p.order), Bytes: w.off}, nil
}
