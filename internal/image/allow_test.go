package image_test

import (
	"net/http/httptest"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"

	"agentbox/internal/image"
)

// A missing image is pulled only if a pattern of the operator's names it.
func TestFetcher(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	for _, name := range []string{"team/a:v1", "team/b:v1", "team/deep/c:v1", "other/d:v1"} {
		r.push(t, name, twoLayers(t, compression.GZip))
	}
	dir := t.TempDir()
	for _, c := range []struct {
		allow image.Patterns
		name  string
		want  bool
	}{
		{nil, "team/a:v1", false},
		{image.Patterns{"HOST/team/b"}, "team/a:v1", false},
		{image.Patterns{"HOST/team/*"}, "team/deep/c:v1", false},
		{image.Patterns{"HOST/tea/**", "HOST/team/a/**", "team/a"}, "team/a:v1", false},
		{image.Patterns{"HOST/team/*"}, "team/a:v1", true},
		{image.Patterns{"HOST/no", "HOST/team/**"}, "team/deep/c:v1", true},
		{image.Patterns{"HOST/**"}, "other/d:v1", true},
		{nil, "other/d:v1", true}, // it is there now
	} {
		f := image.Fetcher{Store: open(t, dir, agent(t, "1")), Pull: image.PullOptions{Registry: anonymous()}}
		for _, p := range c.allow {
			if len(p) > 4 && p[:4] == "HOST" {
				p = r.host() + p[4:]
			}
			f.Allow = append(f.Allow, p)
		}
		if err := image.CheckPatterns(f.Allow); err != nil {
			t.Error(err)
		}
		r.set(nil)
		_, release, err := f.Acquire(t.Context(), r.host()+"/"+c.name)
		if c.want != (err == nil) || !c.want && !errdefs.IsNotFound(err) {
			t.Errorf("%q of %q: %v", c.name, c.allow, err)
		}
		if !c.want && len(r.requests("")) > 0 {
			t.Errorf("%q of %q: the registry was asked %v", c.name, c.allow, r.requests(""))
		}
		if err == nil {
			release()
		}
	}
	for _, p := range []string{"", "a[", "**/a", "a@sha256:1", "a b"} {
		if err := image.CheckPatterns(image.Patterns{p}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("pattern %q: %v", p, err)
		}
	}
}
