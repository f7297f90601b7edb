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
)

// Pack writes src, a file or a directory, as a tar stream. The entry of src
// itself is called name. Symbolic links stay links; devices, FIFOs and sockets
// are refused with their name. Owners are left out: the receiver's user owns
// everything.
func Pack(w io.Writer, src, name string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		return packOne(tw, path, filepath.ToSlash(filepath.Join(name, rel)), d)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", src, err)
	}
	return tw.Close()
}

func packOne(tw *tar.Writer, path, name string, d fs.DirEntry) error {
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
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(tw, io.LimitReader(f, info.Size()))
	if err == nil && n < info.Size() {
		err = fmt.Errorf("%s became shorter while it was read", path)
	}
	return err
}
