//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The built agent can say which one it is: a sandbox keeps its agent when
// agentbox is replaced.
func TestBuildIsNamed(t *testing.T) {
	path := os.Getenv("AGENTBOX_GUEST")
	if path == "" {
		path = filepath.Join("..", "..", "bin", "agentbox-guest")
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") != "" || os.Getenv("AGENTBOX_TEST_STRICT") != "" {
			t.Fatal(err)
		}
		t.Skipf("no agent was built: %v", err)
	}
	out, err := exec.Command(path, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^[0-9a-f]{12}\n$`).Match(out) {
		t.Errorf("the agent calls itself %q", out)
	}
}
