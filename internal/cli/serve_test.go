package cli

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestToJournal: the journal is the stream that systemd named, not whatever a
// process has as its output that a unit started.
func TestToJournal(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(w.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{
		fmt.Sprintf("%d:%d", st.Dev, st.Ino): true, fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false, "8:12345": false, "": false,
	} {
		t.Setenv(journalVariable, value)
		if got := toJournal(w); got != want {
			t.Errorf("%s=%q: %v, want %v", journalVariable, value, got, want)
		}
		if toJournal(&bytes.Buffer{}) {
			t.Errorf("%s=%q: what is no file is the journal", journalVariable, value)
		}
	}
}
