package manager_test

import (
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/manager"
)

// A cursor comes from a client: it is read or refused, and what was read means
// the same when it is written again.
func FuzzCursor(f *testing.F) {
	f.Add("MTc2NDMxNDAwMDAwMDAwMDAwMDphYmM")
	f.Add("LTk5OTk5OTk5OTk5OTk5OTk5OTk5OTpw")
	f.Add("!")
	f.Fuzz(func(t *testing.T, s string) {
		again, err := manager.Reencode(s)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if twice, err := manager.Reencode(again); err != nil || s != "" && twice != again {
			t.Fatalf("%q became %q and %q, %v", s, again, twice, err)
		}
	})
}
