// Package transfer moves trees between the host and a sandbox as tar streams.
// Pack reads the operator's files; Unpack writes what a hostile guest sent.
package transfer

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Pack writes src, a file or a directory, as a tar stream. The entry of src
// itself is called name. Symbolic links stay links, and so do hard links of one
// file in the tree; devices, FIFOs and sockets are refused with their name. Owners are left out: the receiver's user owns
// everything.
func Pack(w io.Writer, src, name string) error {
	p := packer{tar: tar.NewWriter(w), first: map[inode]string{}}
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		return p.pack(path, filepath.ToSlash(filepath.Join(name, rel)), d)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", src, err)
	}
	return p.tar.Close()
}

type packer struct {
	tar   *tar.Writer
	first map[inode]string // entries of files with several names
}

// inode is what several names of one file have in common.
type inode struct{ dev, ino uint64 }

// linked is the file's inode, if it has several names.
func linked(i fs.FileInfo) (inode, bool) {
	s, ok := i.Sys().(*syscall.Stat_t)
	if !ok || !i.Mode().IsRegular() || s.Nlink < 2 {
		return inode{}, false
	}
	return inode{uint64(s.Dev), s.Ino}, true //nolint:unconvert // signed on darwin
}

func (p *packer) pack(path, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	var target string
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is neither a file, a directory nor a link", path)
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name = name
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
	if of, ok := linked(info); ok {
		if first := p.first[of]; first != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		} else {
			p.first[of] = name
		}
	}
	if err := p.tar.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(p.tar, io.LimitReader(f, info.Size()))
	if err == nil && n < info.Size() {
		err = fmt.Errorf("%s became shorter while it was read", path)
	}
	return err
}
