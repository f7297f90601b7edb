package cgroup

import (
	"os"
	"strings"
	"testing"
)

// TestUnitNamesOurLeaf: the delegated unit starts the daemon where it would move
// to, or it could not be started again beside sandboxes that outlived it.
func TestUnitNamesOurLeaf(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/agentbox.user.service")
	if err != nil {
		t.Skip("there is no tree around this test: ", err) // scripts/cgroup2.sh runs it elsewhere
	}
	for _, line := range []string{"Delegate=yes", "DelegateSubgroup=" + leaf, "KillMode=process"} {
		if !strings.Contains(string(unit), "\n"+line+"\n") {
			t.Errorf("the unit does not say %s", line)
		}
	}
}
