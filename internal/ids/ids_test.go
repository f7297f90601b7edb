package ids_test

import (
	"strings"
	"testing"

	"agentbox/internal/ids"
)

func TestUID(t *testing.T) {
	a, b := ids.UID(), ids.UID()
	if a == b || !ids.IsUID(a) || !strings.HasPrefix(a, ids.Short(a)) || len(ids.Short(a)) != ids.ShortLen {
		t.Errorf("uids %q and %q, short %q", a, b, ids.Short(a))
	}
	for _, bad := range []string{"", a[:63], a + "0", strings.ToUpper(a[:63]) + "G", "../" + a[3:], strings.Repeat("g", 64)} {
		if ids.IsUID(bad) {
			t.Errorf("IsUID(%q)", bad)
		}
	}
}
