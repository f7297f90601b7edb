package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// servers are the two kinds of servers that documented lines are for.
var servers = map[string][]string{"keys": nil, "no keys": {"--no-auth"}}

// TestReadmeServer does what the README says about the server, line by line, once
// it runs.
func TestReadmeServer(t *testing.T) {
	t.Parallel()
	lines := documentedLines(t, "README.md", "The server")
	if len(lines) < 10 {
		t.Fatalf("the README has %d commands only", len(lines))
	}
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			script := []string{"shopt -s expand_aliases"}
			for _, line := range lines {
				if strings.HasPrefix(line, "make run") { // it runs
					continue
				}
				line = strings.NewReplacer("bin/agentbox", "AGENTBOX_DATA_DIR="+d.Dir+" "+Binary(t), "abx_…", d.Key, "http://127.0.0.1:8700", d.URL,
					"curl -sS", "curl -sS --fail-with-body", "-o data.tar.gz", "-o "+filepath.Join(d.Dir, "data.tar.gz")).Replace(line)
				script = append(script, "echo '>' "+strings.Fields(line)[0], line)
			}
			out := shell(t, script, "")
			for _, want := range []string{`"output":"hello\n"`, `"output":"42\n"`, "event: exit", "# agentbox", "web"} {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %s:\n%s", want, out)
				}
			}
		})
	}
}

// TestClientsCalls does what docs/CLIENTS.md says, as it stands there; a server
// with keys gets one from curl's own configuration.
func TestClientsCalls(t *testing.T) {
	t.Parallel()
	lines := documentedLines(t, "docs/CLIENTS.md", "AgentSandbox")
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			calls := 0
			var script []string
			for _, line := range lines {
				calls += strings.Count(line, "curl ")
				script = append(script, strings.Replace(line, "http://127.0.0.1:8700", d.URL, 1))
			}
			if calls != 5 {
				t.Errorf("%d calls, want the five", calls)
			}
			readme, err := os.ReadFile("../../README.md")
			if err != nil {
				t.Fatal(err)
			}
			out := shell(t, script, curlHome(t, d))
			m := regexp.MustCompile(`^\{"exec_id":"[0-9a-f]+","exit_code":0,"output":"hi\\n",.*\n200 (\d+) bytes\n204\n$`).FindStringSubmatch(out)
			if m == nil || m[1] != strconv.Itoa(len(readme)) {
				t.Errorf("it says\n%s", out)
			}
		})
	}
}

// TestAPICalls does what docs/API.md says, as TestClientsCalls does.
func TestAPICalls(t *testing.T) {
	t.Parallel()
	lines := documentedLines(t, "docs/API.md", "Calls")
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			var script []string
			for _, line := range lines {
				script = append(script, strings.NewReplacer("http://127.0.0.1:8700", d.URL, "curl -sS", "curl -sS --fail-with-body").Replace(line))
			}
			out := shell(t, script, curlHome(t, d))
			for _, want := range []string{`"output":"a b\\n\$HOME\\n"`, `"exit_code":3,"output":"/`, `"output":"AAAA"`, `"output":"part\\n".*"timed_out":true`, `data: \{"offset":0,"data":"err\\n"\}`, `"mode":"0?600"`, `(?m)^204$`} {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("nothing says %s:\n%s", want, out)
				}
			}
		})
	}
}

// TestMigration does what docs/MIGRATION.md says, by the command line and by curl.
func TestMigration(t *testing.T) {
	t.Parallel()
	lines := append(documentedLines(t, "docs/MIGRATION.md", "Coming from Docker"), documentedLines(t, "docs/MIGRATION.md", "Coming from a cloud sandbox")...)
	if len(lines) < 50 {
		t.Fatalf("the document has %d lines only", len(lines))
	}
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			bin := t.TempDir()
			if err := os.Symlink(Binary(t), filepath.Join(bin, "agentbox")); err != nil {
				t.Fatal(err)
			}
			script := []string{"export PATH=" + bin + ":$PATH AGENTBOX_DATA_DIR=" + d.Dir + " AGENTBOX_URL=" + d.URL + " AGENTBOX_API_KEY=" + d.Key}
			for _, line := range lines {
				if strings.Contains(line, "agentbox run ") { // in the image that all machines have
					line = strings.Replace(line, " -- ", " "+Image+" -- ", 1)
				}
				script = append(script, strings.Replace(line, "curl -sS", "curl -sS --fail-with-body", 1))
			}
			out := shell(t, script, "")
			for _, want := range []string{"hello you\n", "a\nb\n", "\nhello\nroot\n/tmp\nhi\n", "MIGRATION.md\n", "Serving HTTP on", "\nkept\n", `"output":"42\n"`, "event: exit", "# agentbox\n", `42 in docs`} {
				if !strings.Contains(out, want) {
					t.Errorf("nothing says %q:\n%s", want, out)
				}
			}
		})
	}
}

// documentedLines are the lines after a $ in a section of a document.
func documentedLines(t *testing.T, file, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(section, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// curlHome is a directory with a configuration of curl that sends a server's key, if it
// has one.
func curlHome(t *testing.T, d *Daemon) string {
	t.Helper()
	dir := t.TempDir()
	if d.Key != "" {
		rc := "header = \"Authorization: Bearer " + d.Key + "\"\n"
		if err := os.WriteFile(filepath.Join(dir, ".curlrc"), []byte(rc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shell runs lines, all of which must work, at the top of the tree.
func shell(t *testing.T, lines []string, curlHome string) string {
	t.Helper()
	cmd := exec.Command("bash")
	cmd.Dir = "../.."
	if curlHome != "" {
		cmd.Env = append(os.Environ(), "CURL_HOME="+curlHome)
	}
	cmd.Stdin = strings.NewReader("set -euo pipefail\n" + strings.Join(lines, "\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// TestReadmeFirst does what the README begins with: from a server that runs to the
// first command over REST.
func TestReadmeFirst(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	begin, _, _ := strings.Cut(string(text), "\nWithout any server:")
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			script := "set -euo pipefail\n"
			for _, m := range regexp.MustCompile(`(?m)^\$ ((?:bin/agentbox|curl) .*)$`).FindAllStringSubmatch(begin, -1) {
				line := strings.ReplaceAll(m[1], "bin/agentbox", Binary(t))
				script += strings.ReplaceAll(line, "/run/agentbox/agentbox.sock", d.Dir+"/agentbox.sock") + "\n"
			}
			cmd := exec.Command("bash", "-c", script)
			cmd.Env = append(os.Environ(), "AGENTBOX_DATA_DIR="+d.Dir, "AGENTBOX_PROFILE=local")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), `"output":"42\n"`) {
				t.Errorf("%s%s, %v", script, out, err)
			}
		})
	}
}

// TestDocumentsCalls: every call of curl in a document is one that a test here does, or
// is among the lines of text that say it in passing, which it does itself.
func TestDocumentsCalls(t *testing.T) {
	t.Parallel()
	inText := map[string]bool{}
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../README.md", "../../SECURITY.md", "../../CONTRIBUTING.md", "../../ARCHITECTURE.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`((?:curl|call) [^`]+)`").FindAllStringSubmatch(string(text), -1) {
			inText[m[1]] = true
		}
		if slices.Contains([]string{"README.md", "API.md", "CLIENTS.md", "MIGRATION.md", "SANDBOXES.md"}, filepath.Base(file)) {
			continue // which have tests of their own for what stands on lines of its own
		}
		for _, m := range regexp.MustCompile(`(?m)^\$ (.*\bcurl .*)$`).FindAllStringSubmatch(string(text), -1) {
			inText[m[1]] = true
		}
	}
	if len(inText) < 3 {
		t.Errorf("the documents have the calls %v", inText)
	}
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			for line := range inText {
				if strings.Contains(line, "127.0.0.1:2024") { // for programs in a sandbox
					c := d.Admin()
					if said := c.Sh(c.Create(`{"process_api":true}`).ID, line); !strings.Contains(said, `"exit_code":3`) {
						t.Errorf("%s says in a sandbox: %s", line, said)
					}
					continue
				}
				line = strings.NewReplacer("http://127.0.0.1:8700", d.URL, "/run/agentbox/agentbox.sock", d.Dir+"/agentbox.sock",
					"curl ", "curl -sS --fail-with-body ", "call ", "curl -sS --fail-with-body -H \"Authorization: Bearer $AGENTBOX_API_KEY\" ", "docs.html", d.Dir+"/docs.html").Replace(line)
				shell(t, []string{"export AGENTBOX_URL=" + d.URL + " AGENTBOX_API_KEY=" + d.Key, line}, "")
			}
		})
	}
}
