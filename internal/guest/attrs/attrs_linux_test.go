package attrs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tarOf makes a tar of names as gVisor does: each with "./", and no contents.
func tarOf(t *testing.T, names ...string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		ok(t, w.WriteHeader(&tar.Header{Name: "./" + name, Typeflag: tar.TypeFifo}))
	}
	ok(t, w.Close())
	return &b
}

// state is what the tests compare: the time, and the attributes that the file
// system takes.
func state(t *testing.T, name string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.Fatal(err)
	}
	s := time.Unix(st.Mtim.Sec, st.Mtim.Nsec).UTC().Format(time.RFC3339Nano)
	var buf [4096]byte
	n, _ := unix.Llistxattr(name, buf[:]) // an error: it has none
	for key := range strings.SplitSeq(strings.TrimSuffix(string(buf[:max(n, 0)]), "\x00"), "\x00") {
		if strings.HasPrefix(key, "user.") {
			var v [4096]byte
			n, err := unix.Lgetxattr(name, key, v[:])
			if err != nil {
				t.Fatal(err)
			}
			s += " " + key + "=" + string(v[:n])
		}
	}
	return s
}

// What a tar loses comes back: after the times were rounded and the attributes
// dropped, as gVisor does it, the tree is as before.
func TestReadApply(t *testing.T) {
	root := t.TempDir()
	at := time.Unix(1_700_000_000, 123_456_789)
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("d", 200)+"/", 30), "/")
	names := []string{"plain", "dir", "dir/\xff\n name", "link", long}
	for _, n := range names {
		full := filepath.Join(root, n)
		switch n {
		case "dir":
			ok(t, os.Mkdir(full, 0o700))
		case "link":
			ok(t, os.Symlink("nowhere", full))
		case long:
			makeDeep(t, root, n)
			continue
		default:
			ok(t, os.WriteFile(full, nil, 0o600))
		}
	}
	tr, err := openTree(root)
	ok(t, err)
	defer tr.close()
	attributes := unix.Setxattr(filepath.Join(root, "plain"), "user.empty", nil, 0) == nil
	if !attributes {
		t.Log("this file system takes no attributes of users: only times are compared")
	}
	for _, n := range names {
		r := record{path: n, sec: at.Unix(), nsec: int64(at.Nanosecond())}
		if attributes && n == "plain" {
			r.xattrs = []xattr{{"user.a=b", []byte("x")}, {"user.binary", []byte("\xff\x00\xfe")}, {"user.kept", []byte("text")}}
		}
		ok(t, tr.set(r))
	}
	want := state(t, filepath.Join(root, "plain"))

	var note bytes.Buffer
	ok(t, Read(tarOf(t, append(names, "gone", "dir/gone/too")...), root, &note))
	if bytes.Contains(note.Bytes(), []byte("user.kept")) {
		t.Error("an attribute that the tar keeps was noted")
	}
	for _, n := range names {
		ok(t, tr.set(record{path: n, sec: at.Unix()}))
	}
	if attributes {
		for _, key := range []string{"user.empty", "user.a=b", "user.binary"} {
			ok(t, unix.Lremovexattr(filepath.Join(root, "plain"), key))
		}
	}
	whole := note.Bytes()
	ok(t, Apply(bytes.NewReader(whole), root))
	for _, n := range names {
		r, err := tr.look(n)
		ok(t, err)
		if r.sec != at.Unix() || r.nsec != int64(at.Nanosecond()) {
			t.Errorf("%.20q has the time %d.%09d", n, r.sec, r.nsec)
		}
	}
	if got := state(t, filepath.Join(root, "plain")); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for n := range len(whole) {
		if err := Apply(bytes.NewReader(whole[:n]), root); !errors.Is(err, errDamaged) {
			t.Fatalf("a note cut at %d of %d bytes: %v", n, len(whole), err)
		}
	}
}

func TestTimesBefore1970(t *testing.T) {
	for _, c := range []struct{ sec, nsec, wantSec, wantNsec int64 }{
		{5, 999_999_999, 5, 999_999_999}, {0, 0, 0, 0}, {-5, 0, -5, 0}, {-5, 1, -5, 1},
		{0, 1<<32 - 500_000_000, -1, 500_000_000}, {-86400, 1<<32 - 1, -86401, 999_999_999},
	} {
		if sec, nsec := normal(c.sec, c.nsec); sec != c.wantSec || nsec != c.wantNsec {
			t.Errorf("%d.%d is %d.%d, want %d.%d", c.sec, c.nsec, sec, nsec, c.wantSec, c.wantNsec)
		}
	}
}

// makeDeep makes directories below each other whose path no system call takes.
func makeDeep(t *testing.T, root, path string) {
	t.Helper()
	fd, err := unix.Open(root, unix.O_PATH|unix.O_CLOEXEC, 0)
	ok(t, err)
	for name := range strings.SplitSeq(path, "/") {
		ok(t, unix.Mkdirat(fd, name, 0o700))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		ok(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// FuzzReader feeds notes of any bytes to the reader: it ends, and what it reads
// can be written and read again.
func FuzzReader(f *testing.F) {
	var b bytes.Buffer
	w := newWriter(&b)
	w.write(record{"a/b", -1, 5, []xattr{{"user.x", []byte{0, 255}}}})
	if err := w.close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, in []byte) {
		var again bytes.Buffer
		w := newWriter(&again)
		var read []record
		r := newReader(bytes.NewReader(in))
		for {
			rec, err := r.read()
			if err != nil {
				break
			}
			w.write(rec)
			read = append(read, rec)
		}
		ok(t, w.close())
		r = newReader(&again)
		for _, want := range read {
			got, err := r.read()
			ok(t, err)
			if got.path != want.path || got.sec != want.sec || got.nsec != want.nsec || len(got.xattrs) != len(want.xattrs) {
				t.Fatalf("wrote %+v, read %+v", want, got)
			}
		}
	})
}
