package agentbox_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	agentbox "agentbox/sdk/go"
)

// TestArchiveIsWhole: an archive that ends before its end is none, though the answer looks
// whole.
func TestArchiveIsWhole(t *testing.T) {
	var whole bytes.Buffer
	if err := tar.NewWriter(&whole).Close(); err != nil {
		t.Fatal(err)
	}
	c := play(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/box"):
			_, _ = io.WriteString(w, `{"id":"box"}`)
			return
		case r.URL.Query().Get("path") == "whole":
			w.Header().Set("Trailer", "X-Skipped")
			defer w.Header().Set("X-Skipped", "3")
		}
		_, _ = w.Write(whole.Bytes())
	})
	b, err := c.Get(within(t), "box")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := b.Files.ReadArchive(within(t), "whole", io.Discard, agentbox.ArchiveOptions{}); err != nil || n != 3 {
		t.Errorf("a whole one: %d, %v", n, err)
	}
	if _, err := b.Files.ReadArchive(within(t), "cut", io.Discard, agentbox.ArchiveOptions{}); !errors.Is(err, agentbox.ErrUnavailable) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("one without its end: %v", err)
	}
}
