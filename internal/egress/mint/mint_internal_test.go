package mint

import (
	"bytes"
	"testing"
	"time"

	"agentbox/internal/egress"
)

// TestClockIsSetBack: a certificate that is not good yet by the new time is made
// anew.
func TestClockIsSetBack(t *testing.T) {
	m := New(bytes.Repeat([]byte{1}, 32))
	s := egress.NewSession(egress.SessionOptions{Sandbox: "s"})
	defer s.Close()
	now := time.Now()
	for _, at := range []time.Time{now, now.Add(time.Minute), now.Add(-2 * skew), now.Add(2 * validity)} {
		m.now = func() time.Time { return at }
		c, err := m.Certificate(s, "a.example")
		if err != nil {
			t.Fatal(err)
		}
		if at.Before(c.Leaf.NotBefore) || at.After(c.Leaf.NotAfter) {
			t.Errorf("at %v it is good from %v to %v", at, c.Leaf.NotBefore, c.Leaf.NotAfter)
		}
	}
}
