package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// envRecipes is Python's interpreter in an environment that has the agent frameworks,
// set by scripts/recipes.sh.
const envRecipes = "AGENTBOX_RECIPES"

// TestRecipes: agents of each framework do their work in a sandbox, for a model that
// plays a script. Without the frameworks TestPythonClient runs the one that needs none.
func TestRecipes(t *testing.T) {
	python := os.Getenv(envRecipes)
	if python == "" {
		t.Skip("the agent frameworks are not installed: scripts/recipes.sh does that and runs this test")
	}
	d := StartDaemon(t, "--sandbox-memory", "256m")
	cmd := exec.CommandContext(t.Context(), python, "-m", "pytest", "-v", "tests/recipes")
	cmd.Dir = filepath.Join("..", "..", "sdk", "python")
	cmd.Env = append(os.Environ(), "AGENTBOX_URL="+d.URL, "AGENTBOX_API_KEY="+d.Key, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "3 passed") || strings.Contains(string(out), "skipped") {
		t.Errorf("the recipes: %v\n%s", err, out)
	}
}
