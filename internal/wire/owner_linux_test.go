package wire

import (
	"os"
	"path/filepath"
	"testing"
)

// A data directory has one mark, drawn again only if it was lost.
func TestDaemonOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owner")
	mark := func() string {
		t.Helper()
		owner, err := daemonOwner(path)
		if err != nil || owner == "" {
			t.Fatalf("got %q, %v", owner, err)
		}
		return owner
	}
	first := mark()
	if again := mark(); again != first {
		t.Errorf("got %s, was %s", again, first)
	}
	for _, lost := range []string{"", "\n"} { // as a crash of the host leaves it
		if err := os.WriteFile(path, []byte(lost), 0o600); err != nil {
			t.Fatal(err)
		}
		if next := mark(); next == first || mark() != next {
			t.Errorf("with %q: got %s", lost, next)
		}
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}
