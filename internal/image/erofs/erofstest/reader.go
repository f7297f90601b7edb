// Package erofstest reads EROFS images in tests. It shares no code with the
// writer, walks the bytes by itself and is stricter than any file system: what
// breaks a rule of the format, or of gVisor's reader, is an error.
package erofstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"
	"slices"
)

// Node is what stands under one name.
type Node struct {
	NID      uint64
	Mode     uint16 // type and permissions
	UID, GID uint32
	Nlink    uint32
	Mtime    int64
	MtimeNs  uint32
	Addr     uint32 // first block, or the device number
	Size     int64
	Data     []byte // content, link target or directory
}

// Read walks an image and returns its names, as absolute paths.
func Read(img []byte) (map[string]Node, error) {
	r := &reader{img: img, nodes: map[string]Node{}, parents: map[uint64]uint64{}}
	if len(img)%4096 != 0 || len(img) < 4096 {
		return nil, fmt.Errorf("%d bytes are no whole blocks", len(img))
	}
	sb := slices.Clone(img[1024:4096])
	le := binary.LittleEndian
	sum := le.Uint32(sb[4:])
	copy(sb[4:8], make([]byte, 4))
	raw := ^crc32.Update(0, crc32.MakeTable(crc32.Castagnoli), sb)
	switch {
	case le.Uint32(sb) != 0xe0f5e1e2:
		return nil, fmt.Errorf("bad magic")
	case sum != raw:
		return nil, fmt.Errorf("bad checksum")
	case sb[12] != 12 || le.Uint32(sb[80:]) != 0:
		return nil, fmt.Errorf("block size or incompatible features")
	case int(le.Uint32(sb[36:]))*4096 != len(img):
		return nil, fmt.Errorf("%d blocks, %d bytes", le.Uint32(sb[36:]), len(img))
	}
	r.meta = int64(le.Uint32(sb[40:])) * 4096
	root := uint64(le.Uint16(sb[14:]))
	if err := r.walk("/", root, root); err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	links := map[uint64]uint32{}
	for _, n := range r.nodes {
		inodes[n.NID] = true
		links[n.NID]++
	}
	for p, n := range r.nodes {
		if n.Mode>>12 != 4 && n.Nlink != links[n.NID] {
			return nil, fmt.Errorf("%q has %d links and says %d", p, links[n.NID], n.Nlink)
		}
	}
	if got := le.Uint64(sb[16:]); got != uint64(len(inodes)) {
		return nil, fmt.Errorf("superblock counts %d inodes, there are %d", got, len(inodes))
	}
	return r.nodes, nil
}

type reader struct {
	img     []byte
	meta    int64
	nodes   map[string]Node
	parents map[uint64]uint64
}

// inode reads the inode nid and its data.
func (r *reader) inode(nid uint64) (Node, error) {
	le := binary.LittleEndian
	off := r.meta + int64(nid)*32
	if nid == 0 || off+64 > int64(len(r.img)) {
		return Node{}, fmt.Errorf("inode %d outside", nid)
	}
	b := r.img[off:]
	n := Node{
		NID: nid, Mode: le.Uint16(b[4:]), Size: int64(le.Uint64(b[8:])), Addr: le.Uint32(b[16:]),
		UID: le.Uint32(b[24:]), GID: le.Uint32(b[28:]), Mtime: int64(le.Uint64(b[32:])), MtimeNs: le.Uint32(b[40:]), Nlink: le.Uint32(b[44:]),
	}
	format, typ := le.Uint16(b), n.Mode>>12
	if format&1 == 0 || le.Uint16(b[2:]) != 0 {
		return Node{}, fmt.Errorf("inode %d: not extended or with attributes", nid)
	}
	switch layout := format >> 1; {
	case typ != 010 && typ != 004 && typ != 012:
		if n.Size != 0 || layout != 0 {
			return Node{}, fmt.Errorf("inode %d: special file with data", nid)
		}
	case layout == 2 && typ != 010:
		if off%4096+64+n.Size > 4096 || n.Size%4096 == 0 {
			return Node{}, fmt.Errorf("inode %d: bad inline size %d", nid, n.Size)
		}
		n.Data = b[64 : 64+n.Size]
	case layout == 0:
		start, end := int64(n.Addr)*4096, int64(n.Addr)*4096+(n.Size+4095)/4096*4096
		if end > int64(len(r.img)) || n.Size > 0 && start < 4096 || n.Size == 0 && n.Addr != 0 {
			return Node{}, fmt.Errorf("inode %d: data outside", nid)
		}
		n.Data = r.img[start : start+n.Size]
		if len(bytes.Trim(r.img[start+n.Size:end], "\x00")) != 0 {
			return Node{}, fmt.Errorf("inode %d: tail is not zero", nid)
		}
	default:
		return Node{}, fmt.Errorf("inode %d: layout %d of type %o", nid, layout, typ)
	}
	return n, nil
}

// walk reads the directory p and all below it.
func (r *reader) walk(p string, nid, parent uint64) error {
	n, err := r.inode(nid)
	if err != nil {
		return fmt.Errorf("%q: %w", p, err)
	}
	if _, twice := r.parents[nid]; twice || n.Mode>>12 != 4 {
		return fmt.Errorf("%q: no directory, or in the tree twice", p)
	}
	r.parents[nid] = parent
	r.nodes[p] = n
	types := map[uint16]byte{010: 1, 004: 2, 002: 3, 006: 4, 001: 5, 014: 6, 012: 7}
	last, subdirs, dots := "", uint32(0), 0
	for block := 0; block < len(n.Data); block += 4096 {
		entries, err := dirents(n.Data[block:min(block+4096, len(n.Data))])
		if err != nil {
			return fmt.Errorf("%q: %w", p, err)
		}
		for _, e := range entries {
			if e.name <= last {
				return fmt.Errorf("%q: %q after %q", p, e.name, last)
			}
			last = e.name
			if e.name == "." || e.name == ".." {
				if dots++; e.typ != 2 || e.nid != map[string]uint64{".": nid, "..": parent}[e.name] {
					return fmt.Errorf("%q: wrong %q", p, e.name)
				}
				continue
			}
			c, err := r.inode(e.nid)
			if err != nil {
				return fmt.Errorf("%q: %w", path.Join(p, e.name), err)
			}
			if e.typ != types[c.Mode>>12] {
				return fmt.Errorf("%q/%q: type %d of mode %o", p, e.name, e.typ, c.Mode)
			}
			if e.typ != 2 {
				r.nodes[join(p, e.name)] = c
				continue
			}
			subdirs++
			if err := r.walk(join(p, e.name), e.nid, nid); err != nil {
				return err
			}
		}
	}
	if dots != 2 || n.Nlink != subdirs+2 {
		return fmt.Errorf("%q: %d dots, %d links with %d subdirectories", p, dots, n.Nlink, subdirs)
	}
	return nil
}

func join(dir, name string) string {
	if dir == "/" {
		return dir + name
	}
	return dir + "/" + name
}

type dirent struct {
	nid  uint64
	typ  byte
	name string
}

// dirents reads one block of a directory.
func dirents(b []byte) ([]dirent, error) {
	le := binary.LittleEndian
	if len(b) < 12 {
		return nil, fmt.Errorf("directory block of %d bytes", len(b))
	}
	first := int(le.Uint16(b[8:]))
	if first == 0 || first%12 != 0 || first > len(b) {
		return nil, fmt.Errorf("names begin at %d", first)
	}
	var all []dirent
	for i := 0; i < first; i += 12 {
		from, to := int(le.Uint16(b[i+8:])), len(b)
		if i+12 < first {
			to = int(le.Uint16(b[i+20:]))
		}
		if from > to || to > len(b) {
			return nil, fmt.Errorf("name from %d to %d", from, to)
		}
		name := b[from:to]
		if i+12 == first {
			name, _, _ = bytes.Cut(name, []byte{0})
		}
		if len(name) == 0 || len(name) > 255 || bytes.ContainsAny(name, "\x00/") {
			return nil, fmt.Errorf("bad name %q", name)
		}
		all = append(all, dirent{le.Uint64(b[i:]), b[i+10], string(name)})
	}
	return all, nil
}
