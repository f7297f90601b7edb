package e2e

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestSmallFiles prints what 10,000 small files cost in one archive call, in and
// out, beside tar in the same sandbox. The files must be right; the time is for
// the reader.
func TestSmallFiles(t *testing.T) {
	const files = 10_000
	box := NewBox(t, sandbox.Limits{})
	s := box.Session()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	body := strings.Repeat("x", 1000)
	for i := range files {
		name := fmt.Sprintf("dir%02d/file%04d", i/100, i)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	timed := func(what string, f func()) time.Duration {
		began := time.Now()
		f()
		took := time.Since(began)
		t.Logf("%-24s %v", what, took.Round(time.Millisecond))
		return took
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.WriteFile(t.Context(), "/workspace/a.tar", bytes.NewReader(b.Bytes()), client.WriteOptions{}))
	plainIn := timed("tar xf in the sandbox", func() { box.Want("", "mkdir -p /workspace/plain && tar xf /workspace/a.tar -C /workspace/plain") })
	callIn := timed("PutArchive", func() {
		ok(s.PutArchive(t.Context(), "/workspace/call", bytes.NewReader(b.Bytes()), client.UnpackOptions{Parents: true}))
	})
	box.Want("", "diff -r /workspace/plain /workspace/call")
	plainOut := timed("tar cf in the sandbox", func() { box.Want("", "tar cf /workspace/b.tar -C /workspace/plain .") })
	var n int64
	callOut := timed("GetArchive", func() {
		r, err := s.GetArchive(t.Context(), "/workspace/plain", client.ArchiveOptions{})
		ok(err)
		defer r.Close()
		n, err = io.Copy(io.Discard, r)
		ok(err)
	})
	if n < files*1500 {
		t.Errorf("%d bytes came out", n)
	}
	t.Logf("%d files: in %.2f × tar, out %.2f × tar", files, float64(callIn)/float64(plainIn), float64(callOut)/float64(plainOut))
}
