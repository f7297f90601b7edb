package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The Python package, sdk/python. It is built from a clean copy of the checkout and
// installed in an empty environment; its own tests then run against a real server.
// They run once, and the tests here tell how those went that bear their ids.

// pythonRun is how the tests of the package went.
type pythonRun struct {
	cases  []pythonCase
	output string
	err    error // of pytest as a whole
}

// pythonCase is one of them, as pytest notes it.
type pythonCase struct {
	Name    string    `xml:"name,attr"`
	Failure *struct{} `xml:"failure"`
	Error   *struct{} `xml:"error"`
	Skipped *struct {
		Reason string `xml:"message,attr"`
	} `xml:"skipped"`
}

var thePython struct {
	once sync.Once
	run  *pythonRun
}

// pythonClient runs the tests of the package, unless that was done.
func pythonClient(t *testing.T) *pythonRun {
	t.Helper()
	thePython.once.Do(func() { thePython.run = runPythonClient(t) })
	if thePython.run == nil {
		t.Fatal("the tests of the Python package did not run: see the test that should have run them")
	}
	return thePython.run
}

// shownInPython fails unless tests of the package bear an id, and all of them passed.
func shownInPython(t *testing.T, id string) {
	t.Parallel()
	r := pythonClient(t)
	prefix := "test_" + strings.ToLower(strings.ReplaceAll(id, "-", "")) + "_"
	n := 0
	for _, c := range r.cases {
		if !strings.HasPrefix(c.Name, prefix) {
			continue
		}
		n++
		if c.Failure != nil || c.Error != nil || c.Skipped != nil {
			t.Errorf("%s did not pass; the output is in TestPythonClient", c.Name)
		}
	}
	if n == 0 {
		t.Errorf("no test of the Python package begins with %s", prefix)
	}
}

// TestPythonClient: the package builds and installs, its examples and the first one of
// its README run, and so do its tests.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	r := pythonClient(t)
	if r.err != nil || len(r.cases) == 0 {
		t.Errorf("%v\n%s", r.err, r.output)
	}
	for _, c := range r.cases {
		if c.Skipped != nil {
			t.Logf("%s was skipped: %s", c.Name, c.Skipped.Reason)
		}
	}
	t.Logf("%d tests of the Python package", len(r.cases))
}

// What the client rows of the cases ask for.
func TestB027_Python(t *testing.T)  { shownInPython(t, "B027") }
func TestB037_Python(t *testing.T)  { shownInPython(t, "B037") }
func TestB043_Python(t *testing.T)  { shownInPython(t, "B043") }
func TestB048_Python(t *testing.T)  { shownInPython(t, "B048") }
func TestB075_Python(t *testing.T)  { shownInPython(t, "B075") }
func TestB081_Python(t *testing.T)  { shownInPython(t, "B081") }
func TestB097_Python(t *testing.T)  { shownInPython(t, "B097") }
func TestB100_Python(t *testing.T)  { shownInPython(t, "B100") }
func TestB165_Python(t *testing.T)  { shownInPython(t, "B165") }
func TestNET18_Python(t *testing.T) { shownInPython(t, "NET-18") }

func runPythonClient(t *testing.T) *pythonRun {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	wheels := pythonWheels(t, filepath.Join(root, "sdk", "python", "pyproject.toml"))
	dir := t.TempDir()
	source := filepath.Join(dir, "checkout", "sdk", "python")
	copyCheckout(t, filepath.Join(dir, "checkout"), "sdk/python", "sdk/errors.json", "docs/openapi.json")
	python := installPython(t, wheels, source, dir)

	d := StartDaemon(t, append(indexFlags(t), "--egress-full", "--sandbox-memory", "256m")...)
	report := filepath.Join(dir, "report.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-m", "pytest", "--junitxml", report, "--durations", "10")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "AGENTBOX_URL="+d.URL, "AGENTBOX_API_KEY="+d.Key, "AGENTBOX_TEST_SOCKET="+filepath.Join(d.Dir, "agentbox.sock"), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	r := &pythonRun{output: string(out), err: err}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
	text, err := os.ReadFile(report)
	var suites struct {
		Cases []pythonCase `xml:"testsuite>testcase"`
	}
	if err = errors.Join(err, xml.Unmarshal(text, &suites)); err != nil {
		t.Fatalf("read what pytest noted: %v\n%s", err, out)
	}
	r.cases = suites.Cases
	return r
}

// pythonWheels is a directory with what the package, its tests and its build need, and
// with an environment that builds it. It is made once for each pyproject.toml.
func pythonWheels(t *testing.T, project string) string {
	t.Helper()
	text, err := os.ReadFile(project)
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command("python3", "-c", "import sys, ensurepip; print(sys.version)").CombinedOutput()
	Need(t, err == nil, fmt.Sprintf("Python with venv: %v %s", err, version))
	base, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append(text, version...))
	name := "python-" + hex.EncodeToString(sum[:6])
	made := filepath.Join(base, "agentbox-test", name)
	defer alone(t, made+".lock")() // other tests make it, too
	if _, err := os.Stat(filepath.Join(made, "complete")); err == nil {
		return made
	}
	// Programs of an environment have its path in them: it is made where it stays.
	if err := os.RemoveAll(made); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(made, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "", "python3", "-m", "venv", filepath.Join(made, "build"))
	pip := filepath.Join(made, "build", "bin", "pip")
	out, err := exec.CommandContext(t.Context(), pip, "--disable-pip-version-check", "install", "--quiet", "hatchling").CombinedOutput()
	if err == nil {
		out, err = exec.CommandContext(t.Context(), pip, "--disable-pip-version-check", "wheel", "--quiet", "--no-build-isolation",
			"--wheel-dir", filepath.Join(made, "wheels"), filepath.Dir(project)+"[grpc,test]").CombinedOutput()
	}
	Need(t, err == nil, fmt.Sprintf("the package index: %v %s", err, out))
	own, err := filepath.Glob(filepath.Join(made, "wheels", "agentbox-*.whl"))
	if err != nil || len(own) != 1 {
		t.Fatalf("the wheel of the package itself: %q, %v", own, err)
	}
	if err := errors.Join(os.Remove(own[0]), os.WriteFile(filepath.Join(made, "complete"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return made
}

// alone waits for its turn among all who name the same file, in other processes, too.
func alone(t *testing.T, path string) (done func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

// installPython builds the package and installs it in an empty environment, without
// the network. It returns the environment's interpreter.
func installPython(t *testing.T, wheels, source, dir string) string {
	t.Helper()
	pip := []string{filepath.Join(wheels, "build", "bin", "pip"), "--disable-pip-version-check", "--quiet"}
	dist, venv := filepath.Join(dir, "dist"), filepath.Join(dir, "venv")
	command(t, source, append(pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", dist, source)...)
	built, err := filepath.Glob(filepath.Join(dist, "agentbox-*.whl"))
	if err != nil || len(built) != 1 {
		t.Fatalf("built %q, %v", built, err)
	}
	command(t, "", "python3", "-m", "venv", "--without-pip", venv)
	python := filepath.Join(venv, "bin", "python")
	command(t, "", append(pip, "--python", python, "install", "--no-index", "--no-compile", "--find-links", filepath.Join(wheels, "wheels"), built[0]+"[grpc,test]")...)
	return python
}

// copyCheckout copies what git has or would take of some paths.
func copyCheckout(t *testing.T, to string, paths ...string) {
	t.Helper()
	for _, f := range checkoutFiles(t, paths...) {
		f.write(t, filepath.Join(to, f.name))
	}
}

// indexFlags let sandboxes reach the package index of this machine, which may be a
// mirror with an address that is not public and a certificate of somebody's own.
func indexFlags(t *testing.T) (flags []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var ranges []string
	for _, host := range []string{"pypi.org", "files.pythonhosted.org"} {
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			t.Logf("this machine does not know %s: %v", host, err)
			continue
		}
		for _, addr := range found {
			addr = addr.Unmap()
			ranges = append(ranges, netip.PrefixFrom(addr, addr.BitLen()).String())
		}
	}
	if len(ranges) > 0 {
		flags = []string{"--egress-allow-ranges", strings.Join(ranges, ",")}
	}
	return append(flags, "--egress-ca-bundle", "system")
}

// command runs a program that must succeed, and returns all that it wrote.
func command(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}
