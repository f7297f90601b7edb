package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The TypeScript package, sdk/typescript. A clean copy of it is built, once for what is
// in it; its tests then run against real servers, with Chromium, and as a packed package
// in an empty project. They run once, and the tests here tell how those went that bear
// their ids.

// typescriptRun is how the tests of the package went.
type typescriptRun struct {
	cases  []typescriptCase
	output string
	err    error // of all together
}

// typescriptCase is one of them; skipped has the reason.
type typescriptCase struct {
	name    string
	passed  bool
	skipped string
}

var theTypeScript struct {
	once sync.Once
	run  *typescriptRun
}

// typescriptClient runs the tests of the package, unless that was done.
func typescriptClient(t *testing.T) *typescriptRun {
	t.Helper()
	theTypeScript.once.Do(func() { theTypeScript.run = runTypeScriptClient(t) })
	if theTypeScript.run == nil {
		t.Fatal("the tests of the TypeScript package did not run: see the test that should have run them")
	}
	return theTypeScript.run
}

// shownInTypeScript fails unless tests of the package bear an id, and all of them passed.
func shownInTypeScript(t *testing.T, id string) {
	t.Parallel()
	n := 0
	for _, c := range typescriptClient(t).cases {
		if !strings.HasPrefix(c.name, id+" ") {
			continue
		}
		n++
		if !c.passed || c.skipped != "" {
			t.Errorf("%q did not pass %s; the output is in TestTypeScriptClient", c.name, c.skipped)
		}
	}
	if n == 0 {
		t.Errorf("no test of the TypeScript package begins with %s", id)
	}
}

// TestTypeScriptClient: the package is built, packed and installed; its types are good
// for ES modules, CommonJS and bundlers; its examples, those of its README and its tests
// run, in Node and in a browser.
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	r := typescriptClient(t)
	if r.err != nil {
		t.Errorf("%v\n%s", r.err, r.output)
	} else if r.output != "" {
		t.Log(r.output)
	}
	for _, c := range r.cases {
		if c.skipped != "" {
			t.Logf("%s was skipped: %s", c.name, c.skipped)
		}
	}
	t.Logf("%d tests of the TypeScript package", len(r.cases))
}

func TestC1_TypeScript(t *testing.T)    { shownInTypeScript(t, "C1") }
func TestC2_TypeScript(t *testing.T)    { shownInTypeScript(t, "C2") }
func TestC5_TypeScript(t *testing.T)    { shownInTypeScript(t, "C5") }
func TestC6_TypeScript(t *testing.T)    { shownInTypeScript(t, "C6") }
func TestC7_TypeScript(t *testing.T)    { shownInTypeScript(t, "C7") }
func TestC8_TypeScript(t *testing.T)    { shownInTypeScript(t, "C8") }
func TestB027_TypeScript(t *testing.T)  { shownInTypeScript(t, "B027") }
func TestB037_TypeScript(t *testing.T)  { shownInTypeScript(t, "B037") }
func TestB043_TypeScript(t *testing.T)  { shownInTypeScript(t, "B043") }
func TestB075_TypeScript(t *testing.T)  { shownInTypeScript(t, "B075") }
func TestB081_TypeScript(t *testing.T)  { shownInTypeScript(t, "B081") }
func TestB097_TypeScript(t *testing.T)  { shownInTypeScript(t, "B097") }
func TestB100_TypeScript(t *testing.T)  { shownInTypeScript(t, "B100") }
func TestNET18_TypeScript(t *testing.T) { shownInTypeScript(t, "NET-18") }

// TestX13: the TypeScript client as it is, over gRPC-Web, and the example over gRPC.
func TestX13(t *testing.T) {
	for _, id := range []string{"C1", "C2"} {
		t.Run(id, func(t *testing.T) { shownInTypeScript(t, id) })
	}
}

func TestB048_TypeScript(t *testing.T) {
	if !Soak() {
		t.Skip("it takes a minute and a half: scripts/soak.sh runs it")
	}
	shownInTypeScript(t, "B048")
}

// runTypeScriptClient builds the package and runs its tests against a server without
// keys, one with, and one that lets no page in.
func runTypeScriptClient(t *testing.T) *typescriptRun {
	t.Helper()
	for _, program := range []string{"node", "npm", "chromium"} {
		_, err := exec.LookPath(program)
		Need(t, err == nil, program+": scripts/setup.sh --test installs it")
	}
	tree := typescriptTree(t)
	// The pages are served later, from an address of their own: others take ports of the usual one.
	origin := "http://127.84.83.1:" + freePort(t)
	open := StartDaemon(t, "--no-auth", "--allow-origin", origin)
	keyed := StartDaemon(t, "--allow-origin", origin)
	closed := StartDaemon(t, "--no-auth")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	source := filepath.Join(tree, "sdk", "typescript")
	tests, err := filepath.Glob(filepath.Join(source, "test", "*.test.mjs"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("the tests of the package: %q, %v", tests, err)
	}
	env := append(os.Environ(), "AGENTBOX_URL=", "AGENTBOX_API_KEY=",
		"AGENTBOX_TEST_OPEN_URL="+open.URL, "AGENTBOX_TEST_KEYED_URL="+keyed.URL, "AGENTBOX_TEST_KEY="+keyed.Key, "AGENTBOX_TEST_CLOSED_URL="+closed.URL,
		"AGENTBOX_TEST_ORIGIN="+origin, "AGENTBOX_TEST_PROJECT="+filepath.Join(tree, "project"))
	if Soak() {
		env = append(env, "AGENTBOX_TEST_LONG=1")
	}
	// Side by side: node's own runner takes one after the other on two cores.
	runs := make([]typescriptRun, len(tests))
	var all sync.WaitGroup
	for i, file := range tests {
		all.Go(func() {
			cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=tap", file)
			cmd.Dir, cmd.Env = source, env
			out, err := cmd.CombinedOutput()
			runs[i] = typescriptRun{tapCases(string(out)), string(out), err}
		})
	}
	all.Wait()
	r := &typescriptRun{}
	for _, one := range runs {
		r.cases = append(r.cases, one.cases...)
		r.err = errors.Join(r.err, one.err)
		if one.err != nil || testing.Verbose() {
			r.output += one.output
		}
	}
	return r
}

// tapLine is a test's line in the Test Anything Protocol.
var tapLine = regexp.MustCompile(`(?m)^ *(not )?ok \d+ - (.*?)(?: # SKIP ?(.*))?$`)

func tapCases(out string) (cases []typescriptCase) {
	for _, m := range tapLine.FindAllStringSubmatch(out, -1) {
		cases = append(cases, typescriptCase{name: m[2], passed: m[1] == "", skipped: m[3]})
	}
	return cases
}

// typescriptTree is a checkout with the package in it, built. It is made once for what
// is in it, and what it depends on once for each lock file.
func typescriptTree(t *testing.T) string {
	t.Helper()
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	base = filepath.Join(base, "agentbox-test")
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Fatalf("ask node for its version: %v", err)
	}
	files := checkoutFiles(t, "sdk/typescript", "sdk/errors.json", "docs/openapi.json", "LICENSE")
	sum := sha256.New()
	for _, f := range files {
		fmt.Fprintf(sum, "%s\x00%d\x00%s", f.name, len(f.text), f.text)
		if f.name == "sdk/typescript/package-lock.json" {
			version = append(version, f.text...)
		}
	}
	locked := sha256.Sum256(version)
	modules := filepath.Join(base, "typescript-modules-"+hex.EncodeToString(locked[:6]))
	sum.Write(locked[:])
	tree := filepath.Join(base, "typescript-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	once(t, modules, func(dir string) {
		for _, f := range files {
			if name := filepath.Base(f.name); name == "package.json" || name == "package-lock.json" || name == ".npmrc" {
				f.write(t, filepath.Join(dir, name))
			}
		}
		out, err := in(t, dir, "npm", "ci", "--prefer-offline", "--ignore-scripts")
		Need(t, err == nil, fmt.Sprintf("the packages that npm gets: %v %s", err, out))
	})
	once(t, tree, func(dir string) {
		for _, f := range files {
			f.write(t, filepath.Join(dir, f.name))
		}
		source := filepath.Join(dir, "sdk", "typescript")
		if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(source, "node_modules")); err != nil {
			t.Fatal(err)
		}
		if out, err := in(t, source, "npm", "run", "build"); err != nil {
			t.Fatalf("build the package: %v\n%s", err, out)
		}
	})
	return tree
}

// once makes a directory unless it is there. It appears when it is whole.
func once(t *testing.T, path string, fill func(dir string)) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "making-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) // if it was not moved
	fill(dir)
	if err := os.Rename(dir, path); err != nil && !errors.Is(err, os.ErrExist) { // somebody else was faster
		t.Fatal(err)
	}
}

// in runs a program in a directory.
func in(t *testing.T, dir string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// checkoutFile is a file of the repository, by its name from the top.
type checkoutFile struct {
	name string
	text []byte
}

func (f checkoutFile) write(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, f.text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// checkoutFiles are what git has, or would take, of some paths.
func checkoutFiles(t *testing.T, paths ...string) (files []checkoutFile) {
	t.Helper()
	root := filepath.Join("..", "..")
	out, err := exec.Command("git", append([]string{"-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, paths...)...).Output()
	if err != nil {
		t.Fatalf("list the files of the checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and git was not told yet
		}
		if err != nil {
			t.Fatalf("read the checkout: %v", err)
		}
		files = append(files, checkoutFile{name, text})
	}
	return files
}
