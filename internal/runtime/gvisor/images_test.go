package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"agentbox/internal/ids"
	"agentbox/internal/runtime/gvisor"
)

// What is recorded is found without opening the back end; what is not a whole
// sandbox needs nothing.
func TestImagesOf(t *testing.T) {
	dir := t.TempDir()
	if all, err := gvisor.ImagesOf(dir); err != nil || len(all) != 0 {
		t.Errorf("of nothing: %v, %v", all, err)
	}
	put := func(name, text string) {
		t.Helper()
		box := filepath.Join(dir, "sandboxes", name)
		if err := os.MkdirAll(box, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(box, "record.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, half := ids.UID(), ids.UID()
	put(a, fmt.Sprintf(`{"ID":%q,"ImagePath":"/images/a.erofs"}`, a))
	put(half, `{"ID":`)
	b := ids.UID()
	put(b, fmt.Sprintf(`{"ID":%q,"ImagePath":"/before/images/b.erofs","Base":"/before"}`, b)) // the data directory was moved
	put("other", `{"ID":"other","ImagePath":"/images/b.erofs"}`)
	want := []string{"/images/a.erofs", filepath.Join(filepath.Dir(dir), "images", "b.erofs")}
	all, err := gvisor.ImagesOf(dir)
	if slices.Sort(all); err != nil || !slices.Equal(all, want) {
		t.Errorf("got %v, %v; want %v", all, err, want)
	}
}
