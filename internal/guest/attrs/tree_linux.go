package attrs

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Read notes in out what the tar lost of the tree below root that it was made
// of. An entry that is not in the tree, such as that of a deleted file, is left
// out.
func Read(tree io.Reader, root string, out io.Writer) error {
	t, err := openTree(root)
	if err != nil {
		return err
	}
	defer t.close()
	w := newWriter(out)
	// Buffered, because each read of the host's file is dear in a sandbox.
	for in := tar.NewReader(bufio.NewReaderSize(tree, bufferSize)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the tree's tar: %w", err)
		}
		if h.Typeflag == tar.TypeLink {
			continue // another name of a file that was there already
		}
		r, err := t.look(path.Clean(h.Name))
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at %q: %w", h.Name, err)
		}
		if r.nsec != 0 || len(r.xattrs) > 0 {
			w.write(r)
		}
	}
	if err := w.close(); err != nil {
		return fmt.Errorf("write the note of attributes: %w", err)
	}
	return nil
}

// Apply sets in the tree below root what Read noted.
func Apply(in io.Reader, root string) error {
	t, err := openTree(root)
	if err != nil {
		return err
	}
	defer t.close()
	for r := newReader(in); ; {
		rec, err := r.read()
		if errors.Is(err, errEnd) {
			return nil
		}
		if err == nil {
			err = t.set(rec)
		}
		if err != nil {
			return fmt.Errorf("set attributes: %w", err)
		}
	}
}

// tree is a directory, and the files below it as paths that system calls take.
type tree struct {
	root string // ends in "/"
	dev  uint64 // of its directories
	far  int    // directory on the way to the last path that was too long, or -1
	buf  []byte
}

func openTree(root string) (*tree, error) {
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, fmt.Errorf("open the tree: %w", err)
	}
	return &tree{root: strings.TrimSuffix(root, "/") + "/", dev: st.Dev, far: -1, buf: make([]byte, maxValue)}, nil
}

func (t *tree) close() {
	if t.far >= 0 {
		unix.Close(t.far)
		t.far = -1
	}
}

// maxStep leaves room for what name puts before a path.
const maxStep = unix.PathMax - 1024

// name is what names a file for a system call that takes a path: through a
// descriptor of a directory on the way when the path is too long. It holds
// until the next call.
func (t *tree) name(p string) (string, error) {
	t.close()
	if len(p) <= maxStep {
		return t.root + p, nil
	}
	at := t.root
	for len(p) > maxStep {
		cut := strings.LastIndexByte(p[:maxStep], '/')
		if cut < 0 {
			return "", unix.ENAMETOOLONG
		}
		fd, err := unix.Open(at+p[:cut], unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		t.close()
		t.far, at, p = fd, fmt.Sprintf("/proc/self/fd/%d/", fd), p[cut+1:]
	}
	return at + p, nil
}

// look reads what may be lost of one file.
func (t *tree) look(p string) (record, error) {
	name, err := t.name(p)
	if err != nil {
		return record{}, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return record{}, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Dev != t.dev {
		return record{}, nil // something is mounted there
	}
	r := record{path: p}
	r.sec, r.nsec = normal(st.Mtim.Sec, st.Mtim.Nsec)
	n, err := unix.Llistxattr(name, t.buf)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return r, nil
	}
	if err != nil {
		return record{}, err
	}
	for key := range bytes.SplitSeq(bytes.Clone(t.buf[:n]), []byte{0}) {
		if len(key) == 0 {
			continue
		}
		n, err := unix.Lgetxattr(name, string(key), t.buf)
		if err != nil {
			return record{}, fmt.Errorf("attribute %q: %w", key, err)
		}
		if !inTar(string(key), t.buf[:n]) {
			r.xattrs = append(r.xattrs, xattr{string(key), bytes.Clone(t.buf[:n])})
		}
	}
	return r, nil
}

// normal makes of a file's time one that can be set. gVisor rounds the seconds
// of times before 1970 towards zero and tells the rest as a negative number of
// 32 bits.
func normal(sec, nsec int64) (int64, int64) {
	if n := int64(int32(nsec)); n < 0 {
		return sec - 1, maxNsec + n
	}
	return sec, nsec
}

// inTar reports whether gVisor puts an attribute into its tar. It keeps access
// lists in another form.
func inTar(name string, value []byte) bool {
	if strings.HasPrefix(name, "system.posix_acl_") {
		return true
	}
	return utf8.ValidString(name) && utf8.Valid(value) && len(value) > 0 && !strings.Contains(name, "=")
}

func (t *tree) set(r record) error {
	name, err := t.name(r.path)
	if err != nil {
		return fmt.Errorf("%q: %w", r.path, err)
	}
	for _, x := range r.xattrs {
		if err := unix.Lsetxattr(name, x.name, x.value, 0); err != nil {
			return fmt.Errorf("attribute %q of %q: %w", x.name, r.path, err)
		}
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: r.sec, Nsec: r.nsec}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("time of %q: %w", r.path, err)
	}
	return nil
}
