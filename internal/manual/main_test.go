package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrite: every command that people see has its page, and every shell its completion.
// The same source and date give the same bytes.
func TestWrite(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	t.Setenv("AGENTBOX_DATA_DIR", "/of/the/builder") // is no default of a user's
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := write(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"man1/agentbox.1": "A computer for your agent", "man1/agentbox-exec.1": "Run a command in a sandbox of the server", "man1/agentbox-volume-create.1": `"Nov 2023"`,
		"agentbox.bash": "__start_agentbox", "_agentbox": "#compdef agentbox", "agentbox.fish": "complete -c agentbox",
	} {
		first, err := os.ReadFile(filepath.Join(dirs[0], name))
		if err != nil || !strings.Contains(string(first), want) {
			t.Errorf("%s does not say %q: %v", name, want, err)
		}
		if second, err := os.ReadFile(filepath.Join(dirs[1], name)); err != nil || string(first) != string(second) {
			t.Errorf("%s is not the same twice: %v", name, err)
		}
		if strings.Contains(string(first), "/of/the/builder") {
			t.Errorf("%s has a path of the machine that made it", name)
		}
	}
}
