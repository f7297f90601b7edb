package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// classed reports an error that says whose fault it is.
func classed(err error) bool {
	return errdefs.IsInvalidArgument(err) || errdefs.IsResourceExhausted(err) || errdefs.IsNotFound(err) || errdefs.IsDataLoss(err)
}

const goodConfig = `{"os":"linux","architecture":"amd64","config":{"User":"1:2","Env":["A=b"],"WorkingDir":"/w","ExposedPorts":{"80/tcp":{}},"StopSignal":"SIGINT"},` +
	`"rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}}`

// checkImage holds what a parser let pass against what others rely on.
func checkImage(t *testing.T, img Image) {
	s := img.Settings
	if s.Workdir != "" && (s.Workdir[0] != '/' || strings.Contains(s.Workdir, "/../")) {
		t.Errorf("working directory %q", s.Workdir)
	}
	for _, list := range [][]string{{s.User, s.Workdir, s.StopSignal}, s.Env, s.Entrypoint, s.Cmd, s.ExposedPorts} {
		for _, v := range list {
			if strings.IndexByte(v, 0) >= 0 {
				t.Errorf("%q holds a NUL", v)
			}
		}
	}
	for _, e := range s.Env {
		if strings.IndexByte(e, '=') < 1 {
			t.Errorf("%q is no variable", e)
		}
	}
	for _, l := range img.Layers {
		if len(l.DiffID) != 71 || l.Digest != "" && len(l.Digest) != 71 || l.Size < 0 {
			t.Errorf("layer %+v", l)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(goodConfig))
	f.Add([]byte(`{"config":{"Env":["=","A"],"User":"a\u0000b"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		img, err := parseConfig(text)
		if err == nil {
			checkImage(t, img)
		} else if !classed(err) {
			t.Errorf("error without a class: %v", err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	img, err := FromTar(Settings{User: "user"}, digestOf(nil), 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(img.Manifest)
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digestOf(nil) + `","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := parseManifest(text); err != nil && !classed(err) {
			t.Errorf("manifest: error without a class: %v", err)
		} else if err == nil && len(m.Layers) > MaxLayers {
			t.Errorf("%d layers", len(m.Layers))
		}
		idx, err := parseIndex(text)
		if err == nil {
			_, err = choose(idx, "linux/amd64")
		}
		if err != nil && (!classed(err) || len(err.Error()) > 1<<16) {
			t.Errorf("index: %d bytes of an error: %.1000v", len(err.Error()), err)
		}
	})
}

// archiveOf makes a tar of names and contents.
func archiveOf(tb testing.TB, members ...string) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(members); i += 2 {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: members[i], Mode: 0o644, Size: int64(len(members[i+1]))}); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, members[i+1]); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func FuzzArchive(f *testing.F) {
	f.Add(archiveOf(f, "l", "", "c.json", goodConfig, "manifest.json", `[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l"]}]`))
	var saved bytes.Buffer
	img, err := FromTar(Settings{User: "user"}, digestOf(nil), 0)
	if err != nil {
		f.Fatal(err)
	}
	s := NewSaver(&saved)
	if err := s.Add(img, []string{"a:1"}, func(Layer) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }); err != nil {
		f.Fatal(err)
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(saved.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := OpenTar(bytes.NewReader(b), int64(len(b)))
		if err == nil {
			var all []Stored
			all, err = a.Images("linux/amd64")
			for _, img := range all {
				checkImage(t, img.Image)
				for i := range img.Layers {
					if r, err := img.OpenLayer(i); err == nil {
						if n, _ := io.Copy(io.Discard, r); n > int64(len(b)) {
							t.Errorf("a layer of %d bytes in an archive of %d", n, len(b))
						}
						r.Close()
					}
				}
			}
		}
		if err != nil && !classed(err) {
			t.Errorf("error without a class: %v", err)
		}
	})
}

func FuzzDecompress(f *testing.F) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte("content"))
	w.Close()
	f.Add(z.Bytes())
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00\x39\x00\x00content\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decompress(bytes.NewReader(b))
		if err == nil {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			r.Close()
		}
		if err != nil && !classed(err) {
			t.Errorf("error without a class: %v", err)
		}
	})
}

func FuzzRef(f *testing.F) {
	for _, s := range []string{"a", "a:b", "host:5000/a/b@" + digestOf(nil), "[::1]:5000/a", "../x", "a%2Fb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := ParseRef(s)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("error without a class: %v", err)
			}
			return
		}
		full := ref.String()
		if again, err := ParseRef(full); err != nil && len(full) <= maxRef || err == nil && again.String() != full {
			t.Errorf("%q is %q is %v, %v", s, full, again, err)
		}
		if strings.ContainsAny(full, "%\x00\n\\ ") || strings.HasPrefix(full, "/") || strings.HasPrefix(full, ".") || strings.Contains(full, "/../") {
			t.Errorf("%q is %q, which is no safe name", s, full)
		}
	})
}
