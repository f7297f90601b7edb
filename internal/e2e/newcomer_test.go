package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFreshDataDir: sandboxes have volumes in a directory that the server made, and
// nobody else can read or list what is private there.
func TestFreshDataDir(t *testing.T) {
	t.Parallel()
	dir := DataDir(t)
	shared, err := os.Readlink(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if o := Run(t, dir, "", "serve", "--listen", "127.0.0.1:0", "--socket", filepath.Join(dir, "agentbox.sock"), "--sandbox-image", "/none"); o.Code == 0 {
		t.Fatalf("a server without an image: %+v", o)
	}
	if err := os.RemoveAll(filepath.Join(dir, "images")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(shared, filepath.Join(dir, "images")); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, Dir: dir, logs: &lockedBuffer{}}
	d.forTest(t)
	d.Do(d.Key, "POST", "/volumes", `{"name":"v"}`, nil)
	sb := d.box(`{"volumes":[{"name":"v","path":"/data"}]}`)
	if got := d.sh(sb.ID, "echo kept >/data/f; cat /data/f"); got.Output != "kept\n" {
		t.Errorf("a file of a volume: %+v", got)
	}
	seen := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		seen++
		switch top, _, _ := strings.Cut(name, "/"); {
		case top == "engine" || top == "guest" || e.Type() == fs.ModeSymlink: // programs, and where the images are
		case info.Mode().Perm()&0o006 != 0:
			t.Errorf("others can read or change %s: %v", name, info.Mode())
		case e.IsDir() && name != "." && info.Mode().Perm()&0o001 == 0:
			return fs.SkipDir // nobody comes to what is in it
		}
		return nil
	})
	if err != nil || seen < 8 {
		t.Errorf("looked at %d files, %v", seen, err)
	}
}

// TestServeSaysWhatGoesOn: who ends the server hears that sandboxes go on, and how
// to end them with it.
func TestServeSaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	d.box(`{}`)
	d.box(`{}`)
	if said := d.LastWords(); !strings.HasPrefix(said, "2 sandboxes go on") || !strings.Contains(said, "--ephemeral") {
		t.Errorf("it ends with %q", said)
	}
}

// TestCopyAmbiguous: a name that a sandbox of agentbox run and one of the server
// have is none to copy by; their ids are.
func TestCopyAmbiguous(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	sb := d.box(`{"name":"twice"}`)
	run := exec.Command(Binary(t), "--data-dir", d.Dir, "run", "--name", "twice", Image, "--", "sh", "-c", "echo here >/workspace/f; echo up; sleep 600")
	out, err := run.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = run.Process.Signal(os.Interrupt)
		_ = run.Wait() // its status is another test's
	}()
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatalf("it did not start: %v", err)
	}
	d.sh(sb.ID, "echo there >/workspace/f")
	cp := func(from string) (string, string) {
		cmd := exec.Command(Binary(t), "--data-dir", d.Dir, "cp", from+":/workspace/f", "-")
		cmd.Env = append(os.Environ(), "AGENTBOX_DATA_DIR="+d.Dir)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		text, _ := cmd.Output()
		return string(text), stderr.String()
	}
	_, said := cp("twice")
	ids := regexp.MustCompile(`of agentbox run \((\w+)\) and one of the server \((\w+)\)`).FindStringSubmatch(said)
	if ids == nil || ids[2] != sb.ID {
		t.Fatalf("cp says %s", said)
	}
	for i, want := range []string{"here\n", "there\n"} {
		if text, said := cp(ids[i+1]); !strings.Contains(text, want) {
			t.Errorf("by its id: %q %s", text, said)
		}
	}
}

// TestSummaryOfTests: of a package that panics the reader is shown the reason, what
// failed, and no thousand lines of stacks; packages behind it are read as ever.
func TestSummaryOfTests(t *testing.T) {
	stack := strings.Repeat("goroutine 7 [running]:\n\tx.go:1 +0x1\n=== RUN   TestOther\n", 500)
	in := "=== RUN   TestA\n    a_test.go:1: odd\n--- FAIL: TestA (0.00s)\n=== RUN   TestB\n--- FAIL: TestB (0.01s)\npanic: boom\n\n" + stack +
		"--- FAIL: TestC (0.00s)\nexit status 2\nFAIL\tx/one\t0.1s\n=== RUN   TestD\n    d_test.go:1: fine\n--- PASS: TestD (0.00s)\nPASS\nok  \tx/two\t0.1s\n" +
		"=== RUN   TestE\n==================\nWARNING: DATA RACE\nRead at 0x1\n==================\n    e.go:1: race detected\n--- FAIL: TestE (0.00s)\n=== RUN   TestF\n    f_test.go:1: fine\n--- PASS: TestF (0.00s)\nFAIL\nFAIL\tx/three\t0.1s\n"
	cmd := exec.Command("awk", "-f", "../../scripts/tests.awk")
	cmd.Stdin = strings.NewReader(in)
	b, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	out := string(b)
	for _, want := range []string{"a_test.go:1: odd\n--- FAIL: TestA", "--- FAIL: TestB", "panic: boom", "goroutine 7", "--- FAIL: TestC", "FAIL\tx/one", "ok  \tx/two", "DATA RACE\nRead at 0x1\n", "race detected\n--- FAIL: TestE", "FAIL\tx/three"} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q", want)
		}
	}
	if lines := strings.Count(out, "\n"); lines > 100 || strings.Contains(out, "=== RUN") || strings.Contains(out, "fine") {
		t.Errorf("%d lines:\n%.3000s", lines, out)
	}
}

// TestReadmeInOrder does what a reader does who tries one section of the README after
// the other with one server: no line is in the way of a later one.
func TestReadmeInOrder(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	site := t.TempDir()
	if err := os.WriteFile(filepath.Join(site, "index.html"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := "AGENTBOX_DATA_DIR=" + d.Dir + " " + Binary(t)
	change := strings.NewReplacer("bin/agentbox", binary, "abx_…", d.Key, "http://127.0.0.1:8700", d.URL, "/run/agentbox/agentbox.sock", d.Dir+"/agentbox.sock",
		"curl -sS", "curl -sS --fail-with-body", "-o data.tar.gz", "-o "+filepath.Join(site, "data.tar.gz"), "./site/.", site+"/.", "-p 8080:8000 --", Image+" --")
	script := []string{"shopt -s expand_aliases", "trap 'kill $(jobs -p) || true; wait' EXIT"}
	copied := 0
	lines := readmeStart(t)
	for _, section := range []string{"The server", "Network", "Volumes"} {
		lines = append(lines, documentedLines(t, "README.md", section)...)
	}
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "  # ")
		switch {
		case strings.HasPrefix(line, "bin/agentbox run --name "): // in a terminal of its own
			line += " &"
		case strings.HasPrefix(line, "bin/agentbox cp ./site"): // it may not be up yet
			copied++
			line = "for i in $(seq 300); do [[ $(bin/agentbox ps) == *site* ]] && break; sleep 0.2; done; " + line
		case strings.HasPrefix(line, "make "), strings.HasPrefix(line, "echo hi | bin/agentbox run"), strings.HasPrefix(line, "bin/agentbox run"), strings.HasPrefix(line, "bin/agentbox doctor"):
			continue // other tests have these
		}
		script = append(script, "echo '>' "+strings.Fields(line)[0], change.Replace(line))
	}
	if copied != 1 || len(script) < 60 {
		t.Errorf("the README has other lines: %d\n%s", len(script), strings.Join(script, "\n"))
	}
	if out := shell(t, script, ""); !strings.Contains(out, "kept") || !strings.Contains(out, "network: allowlist\n") || !strings.Contains(out, `"output":"42\n"`) {
		t.Errorf("it says\n%s", out)
	}
}

// readmeStart are the lines before the first heading.
func readmeStart(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	start, _, _ := strings.Cut(string(text), "\n## ")
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(start, -1) {
		lines = append(lines, m[1])
	}
	return lines
}
