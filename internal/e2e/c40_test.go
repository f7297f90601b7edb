package e2e

import (
	"archive/zip"
	"bytes"
	"io"
	"testing"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// TestB259: the images with Python install its packages, with pip as it is and in
// an environment of its own. The small one is always there.
func TestB259(t *testing.T) {
	for _, image := range []string{Image, "default"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			needImage(t, image)
			installsPackages(t, NewBoxOf(t, image))
		})
	}
}

func installsPackages(t *testing.T, box *Box) {
	err := box.Session().WriteFile(t.Context(), "/workspace/x-1.0-py3-none-any.whl", wheel(t), client.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	box.Want("1\n", "python3 -m venv /tmp/v && /tmp/v/bin/python -c 'print(1)'")
	for name, line := range map[string]string{
		"pip":                   "pip install --no-index /workspace/x-1.0-py3-none-any.whl && python3 -c 'import x; print(x.y)'",
		"pip in an environment": "/tmp/v/bin/pip install --no-index /workspace/x-1.0-py3-none-any.whl && /tmp/v/bin/python -c 'import x; print(x.y)'",
	} {
		if r := box.Sh(line); r.Outcome != sandbox.Exited || r.ExitCode != 0 || !bytes.HasSuffix(r.Stdout, []byte("\n42\n")) {
			t.Errorf("%s: %s", name, Describe(r))
		}
	}
}

// wheel is a Python package x with the attribute y = 42.
func wheel(t *testing.T) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{"x.py", "y = 42\n"},
		{"x-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: x\nVersion: 1.0\n"},
		{"x-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"x-1.0.dist-info/RECORD", "x.py,,\nx-1.0.dist-info/METADATA,,\nx-1.0.dist-info/WHEEL,,\nx-1.0.dist-info/RECORD,,\n"},
	} {
		e, err := w.Create(f[0])
		if err == nil {
			_, err = io.WriteString(e, f[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestB262: ps and the tools that everybody counts on are in the images; the
// default one has more of them.
func TestB262(t *testing.T) {
	const everywhere = "top free pgrep tar gzip find grep sed awk bash git curl"
	for image, tools := range map[string]string{Image: everywhere, "default": everywhere + " less unzip xz jq rg nano file"} {
		t.Run(image, func(t *testing.T) {
			t.Parallel()
			needImage(t, image)
			r := NewBoxOf(t, image).Sh("ps aux | head -1 && ps -ef | head -1 && which " + tools)
			if r.Outcome != sandbox.Exited || r.ExitCode != 0 || len(r.Stderr) > 0 {
				t.Error(Describe(r))
			}
		})
	}
}
