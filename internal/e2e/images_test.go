package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ownDir is a data directory with nothing in it.
func ownDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ab") // short: paths of sockets below it are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// inside builds the static program of testdata/inside.
func inside(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "inside")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, "./testdata/inside")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tree makes a tar of regular files, which all may be executed.
func tree(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func imageOf(t *testing.T, cfg v1.Config, layer []byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	return appendLayer(t, img, layer)
}

func appendLayer(t *testing.T, img v1.Image, layer []byte) v1.Image {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, l); err != nil {
		t.Fatal(err)
	}
	return img
}

// serve starts a registry on this machine that has the images.
func serve(t *testing.T, images map[string]v1.Image) (host string) {
	t.Helper()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(s.Close)
	host = strings.TrimPrefix(s.URL, "http://")
	for n, img := range images {
		ref, err := name.ParseReference(host + "/" + n)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(ref, img); err != nil {
			t.Fatal(err)
		}
	}
	return host
}

// An image with one static program and nothing else, not even a directory.
func TestScratchImageRuns(t *testing.T) {
	Binary(t)
	layer := tree(t, map[string][]byte{"prog": inside(t)})
	host := serve(t, map[string]v1.Image{
		"scratch": imageOf(t, v1.Config{}, layer),
		"full": imageOf(t, v1.Config{
			User: "1234:567", WorkingDir: "/made/up", Env: []string{"A=from the image", "PATH=/"}, Entrypoint: []string{"prog", "entry"}, Cmd: []string{"cmd"},
		}, layer),
	})
	dir := ownDir(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{host + "/scratch", "--", "/prog", "x y"}, `args ["/prog" "x y"]` + "\nuser 0:0\ndir / <nil>\nA \n"},
		{[]string{host + "/full"}, `args ["prog" "entry" "cmd"]` + "\nuser 1234:567\ndir /made/up <nil>\nA from the image\n"},
		{[]string{host + "/full", "--", "/prog", "mine"}, `args ["/prog" "mine"]` + "\nuser 1234:567\ndir /made/up <nil>\nA from the image\n"},
		{[]string{"--use-entrypoint", "-e", "A=b", "-w", "/tmp", "-u", "0", host + "/full", "--", "mine"}, `args ["prog" "entry" "mine"]` + "\nuser 0:0\ndir /tmp <nil>\nA b\n"},
	} {
		out := Run(t, dir, "", append([]string{"run"}, c.args...)...)
		if out.Code != 0 || out.Stdout != c.want {
			t.Errorf("run %q: status %d\n%s%s\nwant\n%s", c.args, out.Code, out.Stdout, out.Stderr, c.want)
		}
	}
	for _, c := range [][]string{{"run", host + "/scratch"}, {"run", "--pull", "never", host + "/other", "--", "/prog"}, {"run", host + "/other", "--", "/prog"}} {
		if out := Run(t, dir, "", c...); out.Code != 125 || !strings.Contains(out.Stderr, "agentbox: ") {
			t.Errorf("%q: %+v", c, out)
		}
	}
	// What has been pushed since runs when it is asked for.
	ref, err := name.ParseReference(host + "/scratch")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, imageOf(t, v1.Config{Cmd: []string{"/prog", "new"}}, layer)); err != nil {
		t.Fatal(err)
	}
	if out := Run(t, dir, "", "run", "--pull", "always", host+"/scratch"); out.Code != 0 || !strings.Contains(out.Stdout, `["/prog" "new"]`) {
		t.Errorf("pulled again: %+v", out)
	}
	if out := Run(t, dir, "", "run", host+"/scratch", "--", "sh"); out.Code != 127 {
		t.Errorf("a program that is not there: %+v", out)
	}
}

// A program can follow a pull: a line of JSON for each step, the image last.
func TestPullTellsPrograms(t *testing.T) {
	Binary(t)
	layer := tree(t, map[string][]byte{"prog": inside(t)})
	img := imageOf(t, v1.Config{}, layer)
	host := serve(t, map[string]v1.Image{"a": img})
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	out := Run(t, ownDir(t), "", "images", "pull", "--json", host+"/a")
	var whole bool
	var last struct {
		Event *struct {
			Phase, Layer string
			Done, Total  int64
		}
		Image *struct{ Name, Digest, Source string }
	}
	for _, line := range strings.Split(strings.TrimSpace(out.Stdout), "\n") {
		last.Event, last.Image = nil, nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e := last.Event; e != nil && e.Layer == m.Layers[0].Digest.String() && e.Total == m.Layers[0].Size && e.Done == e.Total {
			whole = true
		}
	}
	if out.Code != 0 || !whole || last.Image == nil || last.Image.Name != host+"/a:latest" || last.Image.Source != "registry" {
		t.Errorf("status %d:\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}

// SIGTERM reaches the program as the signal that its image asks for.
func TestStopSignalOfTheImage(t *testing.T) {
	bin := Binary(t)
	host := serve(t, map[string]v1.Image{
		"stop": imageOf(t, v1.Config{Entrypoint: []string{"/prog", "wait"}, StopSignal: "SIGQUIT"}, tree(t, map[string][]byte{"prog": inside(t)})),
	})
	dir := ownDir(t)
	if out := Run(t, dir, "", "images", "pull", host+"/stop"); out.Code != 0 {
		t.Fatalf("%+v", out)
	}
	cmd := exec.Command(bin, "--data-dir", dir, "run", host+"/stop")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("waiting\n"))
	if _, err := io.ReadFull(pipe, first); err != nil {
		t.Errorf("the program did not start: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	rest, _ := io.ReadAll(pipe)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 || string(rest) != "asked to stop\n" {
		t.Errorf("ended with %v, %q", err, rest)
	}
}
