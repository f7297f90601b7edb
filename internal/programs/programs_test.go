package programs_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"agentbox/internal/programs"
)

func TestLayOut(t *testing.T) {
	engine, guest := filepath.Join(t.TempDir(), "e"), filepath.Join(t.TempDir(), "g")
	for path, content := range map[string]string{engine: "the engine", guest: "the agent"} {
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("AGENTBOX_ENGINE", engine)
	t.Setenv("AGENTBOX_GUEST", guest)
	data := t.TempDir()
	var wg sync.WaitGroup
	for range 8 { // at once, as terminals do
		wg.Go(func() {
			path, err := programs.Engine(data)
			if err != nil {
				t.Error(err)
				return
			}
			for _, name := range []string{path, filepath.Join(filepath.Dir(path), "gvisor-bin", "gvisor_sentry")} {
				if b, err := os.ReadFile(name); err != nil || string(b) != "the engine" {
					t.Errorf("%s: %q, %v", name, b, err)
				}
			}
		})
	}
	wg.Wait()
	if left, _ := filepath.Glob(filepath.Join(data, "engine", ".new-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	_, one, err := programs.Guest(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(guest, []byte("a newer agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	path, two, err := programs.Guest(data)
	if err != nil || one == two {
		t.Fatalf("builds %q and %q, %v: want two", one, two, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "a newer agent" {
		t.Errorf("the newer agent's file has %q", b)
	}
}

func TestMissingProgramSaysWhatToDo(t *testing.T) {
	t.Setenv("AGENTBOX_ENGINE", "")
	if _, err := programs.Engine(t.TempDir()); err == nil {
		t.Fatal("found an engine beside the test binary")
	}
}
