package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// layered makes an image for linux/amd64 with go-containerregistry, which is not
// what reads it.
func layered(t *testing.T, cfg v1.Config, how compression.Compression, tars ...[]byte) v1.Image {
	t.Helper()
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: "amd64", Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
	mediaType := types.OCILayer
	if how == compression.ZStd {
		mediaType = types.OCILayerZStd
	}
	for _, b := range tars {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
			tarball.WithCompression(how), tarball.WithMediaType(mediaType))
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

// twoLayers is an image whose upper layer hides some of the lower one.
func twoLayers(t *testing.T, how compression.Compression) v1.Image {
	cfg := v1.Config{
		User: "1234:5", WorkingDir: "/not/there", Env: []string{"A=1", "B=x=y"}, Entrypoint: []string{"/bin/prog"}, Cmd: []string{"-v"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}, "53/udp": {}}, StopSignal: "SIGQUIT",
	}
	return layered(t, cfg, how,
		rootTar(t, [2]string{"bin/prog", "one"}, [2]string{"gone", "x"}, [2]string{"d/old", "x"}),
		rootTar(t, [2]string{".wh.gone", ""}, [2]string{"d/.wh..wh..opq", ""}, [2]string{"d/new", "two"}))
}

// checkTwoLayers holds an image against twoLayers.
func checkTwoLayers(t *testing.T, img image.Image) {
	t.Helper()
	nodes := read(t, img)
	for path, want := range map[string]string{"/bin/prog": "one", "/d/new": "two"} {
		if got := string(nodes[path].Data); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/gone", "/d/old", "/.wh.gone", "/d/.wh..wh..opq"} {
		if _, ok := nodes[path]; ok {
			t.Errorf("%s is there", path)
		}
	}
	if n, ok := nodes["/not/there"]; !ok || n.Mode&0o777 != 0o755 {
		t.Errorf("the working directory is %+v, %v", n, ok)
	}
	if m := nodes["/workspace"].Mode & 0o7777; m != 0o1777 {
		t.Errorf("/workspace has mode %o: the image's user can't write", m)
	}
	c := img.Config
	if c.User != "1234:5" || c.Workdir != "/not/there" || !slices.Equal(c.Env, []string{"A=1", "B=x=y"}) || c.StopSignal != "SIGQUIT" ||
		!slices.Equal(c.Entrypoint, []string{"/bin/prog"}) || !slices.Equal(c.Cmd, []string{"-v"}) || !slices.Equal(c.ExposedPorts, []string{"53/udp", "80/tcp"}) {
		t.Errorf("config is %+v", c)
	}
	if len(img.Layers) != 2 || img.Platform != "linux/amd64" {
		t.Errorf("image is %+v", img)
	}
}

// tarOf packs a directory.
func tarOf(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// layoutOf writes images into an image layout, named as given.
func layoutOf(t *testing.T, images map[string]mutate.Appendable) string {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		opt := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": name})
		switch i := images[name].(type) {
		case v1.Image:
			err = p.AppendImage(i, opt)
		case v1.ImageIndex:
			err = p.AppendIndex(i, opt)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func dockerArchive(t *testing.T, images map[string]v1.Image) []byte {
	t.Helper()
	refs := map[name.Reference]v1.Image{}
	for n, i := range images {
		ref, err := name.ParseReference(n)
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = i
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(refs, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestLoadEveryForm(t *testing.T) {
	zip := func(b []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		w.Write(b)
		w.Close()
		return out.Bytes()
	}
	for _, how := range []compression.Compression{compression.None, compression.GZip, compression.ZStd} {
		t.Run(string(how), func(t *testing.T) {
			img := twoLayers(t, how)
			docker := dockerArchive(t, map[string]v1.Image{"example.test/team/a:v1": img})
			dir := layoutOf(t, map[string]mutate.Appendable{"example.test/team/a:v1": img})
			for form, load := range map[string]func(*image.Store) ([]image.Image, error){
				"docker": func(s *image.Store) ([]image.Image, error) {
					return s.Load(t.Context(), bytes.NewReader(docker), image.LoadOptions{})
				},
				"docker, gzip": func(s *image.Store) ([]image.Image, error) {
					return s.Load(t.Context(), bytes.NewReader(zip(docker)), image.LoadOptions{})
				},
				"directory": func(s *image.Store) ([]image.Image, error) { return s.LoadDir(t.Context(), dir, image.LoadOptions{}) },
				"layout": func(s *image.Store) ([]image.Image, error) {
					return s.Load(t.Context(), bytes.NewReader(tarOf(t, dir)), image.LoadOptions{})
				},
			} {
				t.Run(form, func(t *testing.T) {
					at := t.TempDir()
					s := open(t, at, agent(t, "1"))
					got, err := load(s)
					if err != nil || len(got) != 1 || got[0].Name != "example.test/team/a:v1" || got[0].Source != image.FromArchive {
						t.Fatalf("loaded %+v, %v", got, err)
					}
					checkTwoLayers(t, got[0])
					// A new agent needs the archive no more.
					again, err := open(t, at, agent(t, "2")).Resolve(t.Context(), "example.test/team/a:v1")
					if err != nil {
						t.Fatal(err)
					}
					checkTwoLayers(t, again)
					if err := s.Remove("example.test/team/a:v1"); err != nil {
						t.Fatal(err)
					}
					if left := files(t, at); len(left) > 0 {
						t.Errorf("removing left %v", left)
					}
				})
			}
		})
	}
}

// The file of an archive that is one is read where it is.
func TestLoadFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(path, dockerArchive(t, map[string]v1.Image{"a": twoLayers(t, compression.GZip)}), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := open(t, t.TempDir(), agent(t, "1")).Load(t.Context(), f, image.LoadOptions{Name: "mine"})
	if err != nil || len(got) != 1 || got[0].Name != "mine" {
		t.Fatalf("loaded %+v, %v", got, err)
	}
	checkTwoLayers(t, got[0])
}

func TestSeveralImagesShareLayers(t *testing.T) {
	base := rootTar(t, [2]string{"base", strings.Repeat("random enough", 1000)})
	a := layered(t, v1.Config{Cmd: []string{"a"}}, compression.GZip, base, rootTar(t, [2]string{"a", "a"}))
	b := layered(t, v1.Config{Cmd: []string{"b"}}, compression.GZip, base, rootTar(t, [2]string{"b", "b"}))
	same := layered(t, v1.Config{Cmd: []string{"same"}}, compression.GZip, base, rootTar(t, [2]string{"b", "b"}))
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	got, err := s.Load(t.Context(), bytes.NewReader(dockerArchive(t, map[string]v1.Image{"a": a, "b:x": b, "c": same})), image.LoadOptions{})
	if err != nil || len(got) != 3 {
		t.Fatalf("loaded %+v, %v", got, err)
	}
	// Three manifests, three configurations, three layers; two root file systems.
	blobs, _ := os.ReadDir(filepath.Join(dir, "blobs"))
	roots, _ := os.ReadDir(filepath.Join(dir, "erofs"))
	if len(blobs) != 9 || len(roots) != 2 {
		t.Errorf("%d blobs and %d root file systems, want 9 and 2", len(blobs), len(roots))
	}
	if _, err := s.Load(t.Context(), bytes.NewReader(dockerArchive(t, map[string]v1.Image{"a": a, "b": b})), image.LoadOptions{Name: "one"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("one name for two images: %v", err)
	}
	for _, name := range []string{"b:x", "a:latest"} { // "a" alone means a:latest, too
		if err := s.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if img, err := s.Resolve(t.Context(), "c"); err != nil || string(read(t, img)["/b"].Data) != "b" {
		t.Errorf("what c needs went with b: %v", err)
	}
	if blobs, _ := os.ReadDir(filepath.Join(dir, "blobs")); len(blobs) != 4 {
		t.Errorf("%d blobs are left, want 4", len(blobs))
	}
}

func TestPlatforms(t *testing.T) {
	arm := twoLayers(t, compression.GZip)
	cf, err := arm.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf.Architecture, cf.Variant = "arm64", "v8"
	if arm, err = mutate.ConfigFile(arm, cf); err != nil {
		t.Fatal(err)
	}
	idx := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: arm, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}}},
		mutate.IndexAddendum{Add: twoLayers(t, compression.GZip), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	s := open(t, t.TempDir(), agent(t, "1"))
	for dir, what := range map[string]string{
		layoutOf(t, map[string]mutate.Appendable{"both": idx}): "index", layoutOf(t, map[string]mutate.Appendable{"arm": arm}): "image",
	} {
		_, err := s.LoadDir(t.Context(), dir, image.LoadOptions{Platform: "linux/s390x"})
		if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "linux/arm64/v8") {
			t.Errorf("%s: no such platform: %v", what, err)
		}
		got, err := s.LoadDir(t.Context(), dir, image.LoadOptions{Platform: "linux/arm64"})
		if err != nil || len(got) != 1 || got[0].Platform != "linux/arm64/v8" {
			t.Errorf("%s: loaded %+v, %v", what, got, err)
		}
	}
	if _, err := s.LoadDir(t.Context(), t.TempDir(), image.LoadOptions{Platform: "amd64"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("bad platform: %v", err)
	}
}

// What is saved is the image that was loaded, to the byte.
func TestSaveAndLoad(t *testing.T) {
	s := open(t, t.TempDir(), agent(t, "1"))
	dir := layoutOf(t, map[string]mutate.Appendable{"a:1": twoLayers(t, compression.ZStd)})
	first, err := s.LoadDir(t.Context(), dir, image.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	importTar(t, s, "mine", rootTar(t, [2]string{"f", "made here"}))
	var out bytes.Buffer
	if err := s.Save(t.Context(), &out, "a:1", "mine"); err != nil {
		t.Fatal(err)
	}
	other := open(t, t.TempDir(), agent(t, "1"))
	got, err := other.Load(t.Context(), &out, image.LoadOptions{})
	if err != nil || len(got) != 2 || got[0].Name != "a:1" || got[0].Digest != first[0].Digest || got[1].Name != "mine:latest" {
		t.Fatalf("loaded %+v, %v", got, err)
	}
	checkTwoLayers(t, got[0])
	if c := got[1].Config; c.User != "user" || c.Workdir != "/workspace" || string(read(t, got[1])["/f"].Data) != "made here" {
		t.Errorf("an image that was made here came back as %+v", got[1])
	}
	if err := s.Save(t.Context(), io.Discard, "none"); !errdefs.IsNotFound(err) {
		t.Errorf("saving what is not there: %v", err)
	}
}

// skopeo is the second tool: it reads what is saved, checks it, and writes forms
// that are loaded again.
func TestSkopeoAgrees(t *testing.T) {
	skopeo, err := exec.LookPath("skopeo")
	if err != nil {
		t.Skip("skopeo is not installed (package skopeo)")
	}
	s := open(t, t.TempDir(), agent(t, "1"))
	if _, err := s.LoadDir(t.Context(), layoutOf(t, map[string]mutate.Appendable{"a:1": twoLayers(t, compression.GZip)}), image.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	saved := filepath.Join(tmp, "saved.tar")
	f, err := os.Create(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Save(t.Context(), f, "a:1"), f.Close()); err != nil {
		t.Fatal(err)
	}
	for i, to := range []string{"docker-archive:%:a:1", "oci-archive:%:a:1", "oci:%:a:1"} {
		t.Run(to, func(t *testing.T) {
			for j, from := range []string{"oci-archive:" + saved, "docker-archive:" + saved} {
				out := filepath.Join(tmp, string(rune('a'+i))+string(rune('a'+j)))
				cmd := exec.Command(skopeo, "copy", "--insecure-policy", from, strings.Replace(to, "%", out, 1))
				cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
				if text, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("skopeo: %v\n%s", err, text)
				}
				got, err := loadPath(t, s, out)
				if err != nil || len(got) != 1 || got[0].Name != "a:1" {
					t.Fatalf("loaded %+v, %v", got, err)
				}
				checkTwoLayers(t, got[0])
			}
		})
	}
}

func loadPath(t *testing.T, s *image.Store, path string) ([]image.Image, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Mode().Type() == fs.ModeDir {
		return s.LoadDir(t.Context(), path, image.LoadOptions{})
	}
	return s.Load(t.Context(), f, image.LoadOptions{})
}
