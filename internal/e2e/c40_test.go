package e2e

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inDefault runs a shell line in the image "default", which takes minutes to
// build and so need not be there.
func inDefault(t *testing.T, flags []string, line string) Out {
	t.Helper()
	Binary(t)
	dir := SharedDir(t)
	if out := Run(t, dir, "", "images", "inspect", "default"); out.Code != 0 {
		t.Skip("the image default is not built: agentbox images build default")
	}
	args := append([]string{"run"}, flags...)
	return Run(t, dir, "", append(args, "default", "--", "sh", "-c", line)...)
}

// wheel makes the smallest package that pip installs.
func wheel(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for name, content := range map[string]string{
		"x.py": "answer = 42\n", "x-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: x\nVersion: 1.0\n",
		"x-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "x-1.0.dist-info/RECORD": "",
	} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestB259: pip installs, and virtual environments can be made, in the default
// image.
func TestB259(t *testing.T) {
	whl := filepath.Join(t.TempDir(), "x-1.0-py3-none-any.whl")
	wheel(t, whl)
	out := inDefault(t, []string{"--copy", whl + ":/workspace/", "--memory", "1g"},
		"pip install --no-index /workspace/x-1.0-py3-none-any.whl && python3 -c 'import x; print(x.answer)' && python3 -m venv /tmp/v && /tmp/v/bin/python -c 'print(1)'")
	if out.Code != 0 || !strings.HasSuffix(out.Stdout, "42\n1\n") {
		t.Errorf("%+v", out)
	}
}

// TestB262: the tools that an agent reaches for are in the default image.
func TestB262(t *testing.T) {
	out := inDefault(t, nil, "ps aux | head -1 && ps -ef | head -1 && which top less tar gzip unzip xz find grep sed awk jq bash")
	if out.Code != 0 || strings.Count(out.Stdout, "\n") != 14 {
		t.Errorf("%+v", out)
	}
}
