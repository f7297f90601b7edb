//go:build linux

package volume

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"agentbox/internal/transfer"
)

// What was a file when it was looked at may be anything when it is opened.
func TestReplacedBeforeItIsOpened(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), []byte("harmless"), 0o644))
	must(t, os.WriteFile(at("other"), []byte("other"), 0o644))
	must(t, os.Symlink("other", at("link")))
	must(t, unix.Mkfifo(at("fifo"), 0o666)) // nobody will ever write to it
	must(t, os.Mkdir(at("dir"), 0o755))
	d, err := os.Open(dir)
	must(t, err)
	defer d.Close()
	st, err := statAt(d, "file")
	must(t, err)
	for _, now := range []string{"other", "link", "fifo", "dir", "nothing"} {
		var b bytes.Buffer
		out := &recorder{w: &b}
		p := packer{ctx: t.Context(), out: out, tw: tar.NewWriter(out), bounds: transfer.Bounds{}.OrDefault(), seen: map[inode]string{}}
		if err := p.file(d, now, &tar.Header{Name: now}, st); err != nil {
			t.Errorf("%s: %v", now, err)
		}
		if b.Len() != 0 || len(p.skips.List()) != 1 {
			t.Errorf("%s: %d bytes were written, left out: %q", now, b.Len(), p.skips.List())
		}
	}
}
