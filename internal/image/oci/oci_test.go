package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

func TestSettings(t *testing.T) {
	config := func(fields string) string {
		return `{"os":"linux","architecture":"arm64","variant":"v8","config":{` + fields + `},"rootfs":{"type":"layers","diff_ids":[]}}`
	}
	img, err := parseConfig([]byte(config(`"User":"a:b","WorkingDir":"x/../y/","Env":["A=1","nothing","=x","B="],"Cmd":["c",""],"StopSignal":"SIGRTMIN+3","ExposedPorts":{"9/udp":{},"8000-8010":{}}`)))
	if err != nil {
		t.Fatal(err)
	}
	s := img.Settings
	if s.User != "a:b" || s.Workdir != "/y" || !slices.Equal(s.Env, []string{"A=1", "B="}) || !slices.Equal(s.Cmd, []string{"c", ""}) ||
		s.StopSignal != "SIGRTMIN+3" || !slices.Equal(s.ExposedPorts, []string{"8000-8010", "9/udp"}) || img.Platform != "linux/arm64/v8" {
		t.Errorf("read %+v", img)
	}
	long := strings.Repeat("x", 2<<20)
	for _, fields := range []string{
		`"User":"a\nb"`, `"User":"a\u0000"`, `"User":"` + strings.Repeat("u", 300) + `"`, `"User":"../x"`, `"WorkingDir":"/a\u0000"`, `"WorkingDir":"/` + long + `"`,
		`"Env":["A=\u0000"]`, `"Env":["A=` + long + `"]`, `"Cmd":["\u0000"]`, `"Entrypoint":["` + long + `"]`, `"Cmd":[""` + strings.Repeat(`,""`, 5000) + `]`,
		`"ExposedPorts":{"x":{}}`, `"ExposedPorts":{"99999999/tcp":{}}`, `"StopSignal":"sig term"`, `"StopSignal":"-9"`, `"Env":"A=1"`,
	} {
		if _, err := parseConfig([]byte(config(fields))); !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) || len(err.Error()) > 1000 {
			t.Errorf("%.60s: %.2000v", fields, err)
		}
	}
}

func TestRefs(t *testing.T) {
	for given, want := range map[string]string{
		"alpine": "alpine:latest", "library/alpine": "alpine:latest", "team/tool:v1": "team/tool:v1", "localhost:5000/a": "localhost:5000/a:latest",
		"registry.example/a/b:v": "registry.example/a/b:v", "a@" + digestOf(nil): "a@" + digestOf(nil), "a:v@" + digestOf(nil): "a@" + digestOf(nil),
	} {
		if ref, err := ParseRef(given); err != nil || ref.String() != want {
			t.Errorf("%q is %v, %v, want %q", given, ref, err, want)
		}
	}
	for _, bad := range []string{"", "A", "a b", "a/../b", "../a", "a:", "a@sha256:1", "/etc/passwd", "-a", "a//b", "http://a/b", strings.Repeat("a", 300)} {
		if ref, err := ParseRef(bad); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q is %v, %v", bad, ref, err)
		}
	}
}

func TestHostileManifests(t *testing.T) {
	layer := func(fields string) string {
		return `{"schemaVersion":2,"config":{"digest":"` + digestOf(nil) + `","size":1},"layers":[{"digest":"` + digestOf(nil) + `",` + fields + `}]}`
	}
	for what, text := range map[string]string{
		"nothing": "", "no JSON": "hello", "schema 1": `{"schemaVersion":1,"fsLayers":[]}`, "schema 3": `{"schemaVersion":3}`,
		"negative size": layer(`"size":-1`), "huge layer": layer(`"size":1000000000000000`), "foreign layer": layer(`"size":1,"mediaType":"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"`),
		"chart":       `{"schemaVersion":2,"config":{"mediaType":"application/vnd.example.chart","digest":"` + digestOf(nil) + `","size":1},"layers":[]}`,
		"md5":         `{"schemaVersion":2,"config":{"digest":"md5:d41d8cd98f00b204e9800998ecf8427e","size":1},"layers":[]}`,
		"path":        `{"schemaVersion":2,"config":{"digest":"sha256:../../../../etc/passwd","size":1},"layers":[]}`,
		"no digest":   `{"schemaVersion":2,"config":{"size":1},"layers":[]}`,
		"huge config": `{"schemaVersion":2,"config":{"digest":"` + digestOf(nil) + `","size":1000000000},"layers":[]}`,
		"1000 layers": `{"schemaVersion":2,"config":{"digest":"` + digestOf(nil) + `","size":1},"layers":[` + strings.Repeat(`{},`, 999) + `{}]}`,
		"long":        `{"schemaVersion":2,` + strings.Repeat(" ", MaxManifest) + `}`,
	} {
		if _, err := parseManifest([]byte(text)); !errdefs.IsInvalidArgument(err) && !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Members of an archive are found in the archive alone.
func TestHostileArchives(t *testing.T) {
	for what, members := range map[string][]string{
		"nothing":        {},
		"layer outside":  {"c.json", goodConfig, "manifest.json", `[{"Config":"c.json","RepoTags":["a:1"],"Layers":["../../../../etc/passwd"]}]`},
		"config outside": {"manifest.json", `[{"Config":"/etc/passwd","RepoTags":["a:1"],"Layers":[]}]`},
		"layers missing": {"c.json", goodConfig, "manifest.json", `[{"Config":"c.json","RepoTags":["a:1"],"Layers":[]}]`},
		"no JSON":        {"manifest.json", "hello"},
		"blob missing":   {"index.json", `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digestOf(nil) + `","size":1}]}`},
		"other blob":     {"index.json", `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digestOf(nil) + `","size":1}]}`, blobPath(digestOf(nil)), "x"},
		"many images":    {"manifest.json", "[" + strings.Repeat("{},", 2000) + "{}]"},
	} {
		b := archiveOf(t, members...)
		a, err := OpenTar(strings.NewReader(string(b)), int64(len(b)))
		if err == nil {
			_, err = a.Images("linux/amd64")
		}
		if !classed(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A layout in a directory is not left, and nothing in it makes us wait.
func TestHostileLayouts(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, make := range []func(string) error{
		func(p string) error { return os.Symlink(secret, p) },
		func(p string) error { return os.Symlink("../../../../../.."+secret, p) },
		func(p string) error { return syscall.Mkfifo(p, 0o600) },
		func(p string) error { return os.Mkdir(p, 0o700) },
		func(p string) error { return os.Symlink("index.json", p) },
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir := t.TempDir()
			if err := make(filepath.Join(dir, "index.json")); err != nil {
				t.Fatal(err)
			}
			a, err := OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if got, err := a.Images("linux/amd64"); err == nil {
				t.Errorf("read %+v", got)
			}
		})
	}
}
