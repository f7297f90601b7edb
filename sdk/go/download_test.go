package agentbox_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	agentbox "agentbox/sdk/go"
)

// TestDownloadsAtOnce: two downloads to one name don't meet, the file has the permissions of
// the user's new files, and one that breaks leaves nothing.
func TestDownloadsAtOnce(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	c := play(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/box") {
			_, _ = io.WriteString(w, `{"id":"box"}`)
			return
		}
		whole := strings.Repeat(string(rune('a'+n)), 1<<20)
		w.Header().Set("Content-Length", "2097152")
		_, _ = io.WriteString(w, whole)
		if r.URL.Query().Get("path") == "torn" {
			return
		}
		both.Done()
		both.Wait()
		_, _ = io.WriteString(w, whole)
	})
	b, err := c.Get(within(t), "box")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	local := filepath.Join(dir, "local")
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if err := b.Files.Download(within(t), "f", local, agentbox.ReadOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(local)
	if err != nil || len(got) != 2<<20 || strings.Trim(string(got), string(got[:1])) != "" {
		t.Errorf("the file has %d bytes, of both: %v", len(got), err)
	}
	if err := b.Files.Download(within(t), "torn", local, agentbox.ReadOptions{}); err == nil {
		t.Error("half a file is one")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
	plain, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	want, _ := plain.Stat()
	if is, err := os.Stat(local); err != nil || is.Mode() != want.Mode() {
		t.Errorf("it has the mode %v, and others %v: %v", is.Mode(), want.Mode(), err)
	}
}
