package transfer

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func oneEntry(t *testing.T, h tar.Header, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	h.Size = int64(len(body))
	if err := w.WriteHeader(&h); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The name in the archive is the guest's: it means nothing.
func TestUnpackFile(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "f")
	in := oneEntry(t, tar.Header{Name: "../../evil", Typeflag: tar.TypeReg, Mode: 0o4755}, "new")
	if err := UnpackFile(bytes.NewReader(in), to, 0); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	i, _ := os.Stat(to)
	if err != nil || string(got) != "new" || i.Mode() != 0o755 {
		t.Errorf("got %q, %v, %v", got, i.Mode(), err)
	}
	link := oneEntry(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, "")
	for name, bad := range map[string][]byte{"cut": in[:513], "link": link, "nothing": nil, "no tar": bytes.Repeat([]byte("x"), 2000)} {
		if err := UnpackFile(bytes.NewReader(bad), to, 0); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if err := UnpackFile(bytes.NewReader(in), to, 2); !errors.Is(err, ErrBounds) {
		t.Errorf("three bytes where two may be: %v", err)
	}
	if got, _ := os.ReadFile(to); string(got) != "new" {
		t.Errorf("a failed copy changed the file to %q", got)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("left behind: %v", all)
	}
}
