package erofs

import (
	"encoding/binary"
	"slices"
)

const (
	inodeSize  = 64 // an extended inode; compact ones have no time of their own
	nidBits    = 5  // inode numbers count units of 32 bytes
	firstNID   = 2  // 0 would be inode number 0, which readdir of glibc skips
	direntSize = 12
)

// planner gives the inodes their places in the metadata area.
type planner struct {
	order     []*inode
	size      uint64 // bytes planned
	bigBlocks int64  // blocks of the bodies that lie outside the metadata area
}

// plan places d and all below it. The root must come first: its number has only
// 16 bits in the superblock.
func (p *planner) plan(d *inode) {
	d.names = make([]string, 0, len(d.children)+2)
	d.names = append(d.names, ".", "..")
	d.nlink = 2
	for name, c := range d.children {
		d.names = append(d.names, name)
		if c.isDir() {
			d.nlink++
		}
	}
	slices.Sort(d.names) // bytewise: "!" comes before "."
	d.size = direntsSize(d.names)
	p.place(d)
	for _, name := range d.names {
		c := d.children[name].inode
		switch {
		case c == nil || c.nid != 0: // ".", "..", a hard link that has its place
		case c.isDir():
			p.plan(c)
		default:
			p.place(c)
		}
	}
}

// place puts i behind what is planned. An inode and its inline body never cross
// a block.
func (p *planner) place(i *inode) {
	n := uint64(inodeSize)
	switch {
	case !i.hasBody():
	case i.size <= blockSize-inodeSize:
		// Never a whole number of blocks, which gVisor refuses inline.
		i.inline = true
		n += uint64(i.size)
	default:
		p.bigBlocks += (i.size + blockSize - 1) >> blockBits
	}
	if p.size == 0 {
		p.size = firstNID << nidBits
	}
	if p.size%blockSize+n > blockSize {
		p.size = (p.size + blockSize - 1) &^ (blockSize - 1)
	}
	i.nid = p.size >> nidBits
	p.size += (n + 1<<nidBits - 1) &^ (1<<nidBits - 1)
	p.order = append(p.order, i)
	i.ino = uint32(len(p.order))
}

// fit returns how many of names go into one block of a directory and how many
// bytes they take.
func fit(names []string) (n, used int) {
	for n < len(names) && used+direntSize+len(names[n]) <= blockSize {
		used += direntSize + len(names[n])
		n++
	}
	return n, used
}

// direntsSize is the size of a directory: whole blocks, but the last ends
// exactly behind its last name.
func direntsSize(names []string) int64 {
	for size := int64(0); ; size += blockSize {
		n, used := fit(names)
		if names = names[n:]; len(names) == 0 {
			return size + int64(used)
		}
	}
}

// appendBody appends the data of a directory or symbolic link to b.
func (i *inode) appendBody(b []byte) []byte {
	if i.isSymlink() {
		return append(b, i.target...)
	}
	for names := i.names; len(names) > 0; {
		n, used := fit(names)
		b = i.appendDirents(b, names[:n])
		if names = names[n:]; len(names) > 0 {
			b = append(b, zeroBlock[:blockSize-used]...)
		}
	}
	return b
}

// fileTypes are the dirent types by the upper four bits of the mode.
var fileTypes = [16]byte{TypeRegular >> 12: 1, TypeDir >> 12: 2, TypeChar >> 12: 3, TypeBlock >> 12: 4, TypeFIFO >> 12: 5, TypeSocket >> 12: 6, TypeSymlink >> 12: 7}

// appendDirents appends one block of the directory: the entries, then their
// names. The first name's offset tells readers how many entries there are.
func (i *inode) appendDirents(b []byte, names []string) []byte {
	le := binary.LittleEndian
	off := len(names) * direntSize
	for _, name := range names {
		c := i.children[name].inode
		switch name {
		case ".":
			c = i
		case "..":
			c = i.parent
		}
		b = le.AppendUint64(b, c.nid)
		b = le.AppendUint16(b, uint16(off))
		b = append(b, fileTypes[c.mode>>12], 0)
		off += len(name)
	}
	for _, name := range names {
		b = append(b, name...)
	}
	return b
}

// bigBodies writes the directories and links that do not fit beside their
// inodes and notes their addresses.
func (w *Writer) bigBodies(order []*inode) error {
	var buf []byte
	for _, i := range order {
		if i.inline || !i.hasBody() {
			continue
		}
		i.addr = uint32(w.off >> blockBits)
		buf = i.appendBody(buf[:0])
		if err := w.write(buf); err != nil {
			return err
		}
		if err := w.pad(); err != nil {
			return err
		}
	}
	return nil
}

// inodes writes the metadata area, which begins at base.
func (w *Writer) inodes(base int64, order []*inode) error {
	var buf []byte
	for _, i := range order {
		for gap := base + int64(i.nid)<<nidBits - w.off; gap > 0; gap = base + int64(i.nid)<<nidBits - w.off {
			if err := w.zeros(int(min(gap, blockSize))); err != nil {
				return err
			}
		}
		buf = i.appendInode(buf[:0])
		if i.inline {
			buf = i.appendBody(buf)
		}
		if err := w.write(buf); err != nil {
			return err
		}
	}
	return nil
}

// appendInode appends struct erofs_inode_extended.
func (i *inode) appendInode(b []byte) []byte {
	le := binary.LittleEndian
	format := uint16(1) // extended, data layout 0: flat plain
	if i.inline {
		format |= 2 << 1 // data layout 2: flat inline
	}
	b = le.AppendUint16(b, format)
	b = le.AppendUint16(b, 0) // no extended attributes
	b = le.AppendUint16(b, i.mode)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint64(b, uint64(i.size))
	b = le.AppendUint32(b, i.addr)
	b = le.AppendUint32(b, i.ino)
	b = le.AppendUint32(b, i.uid)
	b = le.AppendUint32(b, i.gid)
	b = le.AppendUint64(b, uint64(i.mtime))
	b = le.AppendUint32(b, i.mtimeNs)
	b = le.AppendUint32(b, i.nlink)
	return append(b, zeroBlock[:16]...)
}
