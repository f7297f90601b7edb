package sandbox_test

import (
	"testing"

	"agentbox/internal/sandbox"
)

// The table says which states may follow which: everything else is refused.
func TestStateMachine(t *testing.T) {
	all := []sandbox.State{
		sandbox.Creating, sandbox.Live, sandbox.Stopping, sandbox.Stopped, sandbox.Starting, sandbox.Failed,
		sandbox.Destroying, sandbox.Destroyed, sandbox.Created, sandbox.Paused, sandbox.Suspended, "", "unknown",
	}
	may := map[sandbox.State]string{ // C reating, L ive, p stopping, P stopped, s tarting, F ailed, d estroying, D estroyed
		sandbox.Creating:   " L    F d ",
		sandbox.Live:       " p F d ",
		sandbox.Stopping:   " P L F d ",
		sandbox.Stopped:    " s F d ",
		sandbox.Starting:   " L P F d ",
		sandbox.Failed:     " d ",
		sandbox.Destroying: " D ",
	}
	letters := map[sandbox.State]byte{
		sandbox.Creating: 'C', sandbox.Live: 'L', sandbox.Stopping: 'p', sandbox.Stopped: 'P', sandbox.Starting: 's',
		sandbox.Failed: 'F', sandbox.Destroying: 'd', sandbox.Destroyed: 'D',
	}
	for _, from := range all {
		for _, to := range all {
			want := false
			for _, c := range []byte(may[from]) {
				want = want || c != ' ' && c == letters[to]
			}
			if got := from.MayBecome(to); got != want {
				t.Errorf("%q may become %q: %v", from, to, got)
			}
		}
	}
}

func TestCheckOwner(t *testing.T) {
	for _, good := range []string{"default", "a", "0", "team-a_1"} {
		if err := sandbox.CheckOwner(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "-a", "_a", "A", "a.b", "a/b", "ä", "a\n", string(make([]byte, 64))} {
		if err := sandbox.CheckOwner(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
