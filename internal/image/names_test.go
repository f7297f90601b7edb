package image_test

import (
	"bytes"
	"testing"

	"agentbox/internal/image"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// A name with a digest is only given to the image that has it: whoever runs the
// name relies on that.
func TestLoadKeepsDigestsHonest(t *testing.T) {
	img := twoLayers(t, compression.GZip)
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, t.TempDir(), agent(t, "1"))
	for _, c := range []struct {
		in, given string
		ok        bool
	}{
		{"example.test/a@" + digest.String(), "", true},
		{"example.test/a@" + noDigest, "", false},
		{"example.test/a:1", "example.test/a@" + noDigest, false},
		{"example.test/a@" + noDigest, "example.test/a:2", true},
	} {
		dir := layoutOf(t, map[string]mutate.Appendable{c.in: img})
		got, err := s.LoadDir(t.Context(), dir, image.LoadOptions{Name: c.given})
		if c.ok != (err == nil) || !c.ok && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s as %q: %+v, %v", c.in, c.given, got, err)
		}
	}
	// Saved and loaded it has that name again; "docker load" is told of no tag.
	var out bytes.Buffer
	if err := s.Save(t.Context(), &out, "example.test/a@"+digest.String()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out.Bytes(), []byte(`"RepoTags":[]`)) {
		t.Error("there is a tag with a digest")
	}
	got, err := open(t, t.TempDir(), agent(t, "1")).Load(t.Context(), &out, image.LoadOptions{})
	if err != nil || len(got) != 1 || got[0].Name != "example.test/a@"+digest.String() {
		t.Errorf("loaded again: %+v, %v", got, err)
	}
}
