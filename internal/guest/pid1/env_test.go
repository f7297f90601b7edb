//go:build linux

package pid1

import (
	"testing"

	"agentbox/internal/guest/agent"
)

// Programs that a user installs come first for that user, and never for root.
func TestSearchPath(t *testing.T) {
	for _, c := range []struct {
		id   identity
		env  []string
		want string
	}{
		{id: identity{uid: 1000, home: "/home/user"}, want: "/home/user/.local/bin:" + systemPath},
		{id: identity{uid: 0, home: "/root"}, want: systemPath},
		{id: identity{uid: 0, home: "/home/user"}, want: systemPath},
		{id: identity{uid: 0, home: "/root"}, env: []string{"PATH=/x"}, want: "/x"},
	} {
		if got := valueOf(environment(agent.ProcessSpec{Env: c.env}, c.id, nil), "PATH"); got != c.want {
			t.Errorf("user %d has the path %q, not %q", c.id.uid, got, c.want)
		}
	}
}
