package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeServer does what the README says about the server, line by line, from
// the export of the key on.
func TestReadmeServer(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## The server\n")
	section, _, _ = strings.Cut(section, "\n## ")
	d := StartDaemon(t)
	script := []string{"set -euo pipefail; shopt -s expand_aliases"}
	for _, m := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(section, -1) {
		switch line := strings.ReplaceAll(m[1], "bin/agentbox", Binary(t)); {
		case strings.HasSuffix(line, " serve"): // it runs
		case strings.HasPrefix(line, "export "):
			script = append(script, "export AGENTBOX_URL="+d.URL+" AGENTBOX_API_KEY="+d.Key)
		default:
			script = append(script, "echo '>' "+strings.Fields(line)[0], strings.Replace(line, "call ", "call --fail-with-body ", 1))
		}
	}
	if len(script) < 10 {
		t.Fatalf("the README has %d commands only", len(script))
	}
	cmd := exec.Command("bash")
	cmd.Dir = "../.."
	cmd.Stdin = strings.NewReader(strings.Join(script, "\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{`"output":"42\n"`, `data: {"offset":4,"data":"3\n"}`, "# agentbox", "web"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("nothing says %s:\n%s", want, out)
		}
	}
}
