package image

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// emptied are directories whose content belongs to a running system, not to an
// image.
var emptied = []string{"dev/", "proc/", "sys/", "run/", "tmp/"}

// normalize copies a root tar from r to w without what differs between two
// builds of the same packages: times after epoch, names of owners, and the
// content of directories that are mounted over.
func normalize(w io.Writer, r io.Reader, epoch time.Time) error {
	tr, tw := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read root file system: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if isEmptied(name) {
			continue
		}
		if h.Typeflag == tar.TypeDir {
			name += "/"
		}
		n := &tar.Header{
			Typeflag: h.Typeflag, Name: "./" + strings.TrimPrefix(name, "/"), Linkname: h.Linkname, Size: h.Size, Mode: h.Mode,
			Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime.Truncate(time.Second), Devmajor: h.Devmajor, Devminor: h.Devminor,
			Format: tar.FormatPAX,
		}
		if n.ModTime.After(epoch) {
			n.ModTime = epoch
		}
		if err := tw.WriteHeader(n); err != nil {
			return fmt.Errorf("write root file system: %w", err)
		}
		if _, err := io.Copy(tw, tr); err != nil {
			return fmt.Errorf("copy %q of the root file system: %w", h.Name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("write root file system: %w", err)
	}
	// The writer must see that everything was read.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read root file system: %w", err)
	}
	return nil
}

func isEmptied(name string) bool {
	for _, dir := range emptied {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}
