package image_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"

	"agentbox/internal/egress/dial"
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

// A pull for a caller goes where the operator pointed, and else only to public
// addresses: not where a redirect or a pattern's wildcard leads a caller.
func TestFetcherDial(t *testing.T) {
	checked, err := dial.New(dial.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t, httptest.NewServer)
	var visits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		visits.Add(1)
		r.inner.ServeHTTP(w, req) // it has the same images
	}))
	t.Cleanup(other.Close)
	for i, c := range []struct {
		pattern, name string
		redirect      bool
		change        func(*image.Fetcher)
		ok            bool
		visits        bool
	}{
		{pattern: "HOST/team/*", name: "HOST/team/a:v1", ok: true},
		{pattern: "HOST/team/*", name: "HOST/team/a:v1", redirect: true},
		{pattern: "HOST/team/*", name: "HOST/team/a:v1", redirect: true, change: func(f *image.Fetcher) { f.Dial = nil }, ok: true, visits: true},
		{pattern: "HOST/team/*", name: "HOST/team/a:v1", redirect: true, change: func(f *image.Fetcher) { f.Pull.Registry.Insecure = []string{strings.TrimPrefix(other.URL, "http://")} }, ok: true, visits: true},
		{pattern: "*/team/*", name: "HOST/team/a:v1"},
		{pattern: "127.0.0.[1]:*/team/*", name: "HOST/team/a:v1"},
		{pattern: "*/team/*", name: "HOST/team/a:v1", change: func(f *image.Fetcher) { f.Dial = nil }, ok: true},
		{pattern: "*/team/*", name: "registry.example/team/a:v1", change: func(f *image.Fetcher) { f.Pull.Registry.Mirrors = map[string][]string{"registry.example": {r.URL}} }, ok: true},
	} {
		r.set(nil)
		r.push(t, "team/a:v1", twoLayers(t, compression.GZip))
		visits.Store(0)
		if c.redirect {
			r.set(func(w http.ResponseWriter, req *http.Request, _ http.Handler) bool {
				if !strings.Contains(req.URL.Path, "/blobs/") {
					return false
				}
				http.Redirect(w, req, other.URL+req.URL.Path, http.StatusTemporaryRedirect)
				return true
			})
		} else {
			r.set(nil)
		}
		f := image.Fetcher{Store: open(t, t.TempDir(), agent(t, "1")), Pull: image.PullOptions{Registry: anonymous()}, Dial: checked.DialContext}
		f.Allow = image.Patterns{strings.Replace(c.pattern, "HOST", r.host(), 1)}
		if c.change != nil {
			c.change(&f)
		}
		_, release, err := f.Acquire(t.Context(), strings.Replace(c.name, "HOST", r.host(), 1))
		if err == nil {
			release()
		}
		var refused *dial.RefusedError
		if c.ok != (err == nil) || !c.ok && !errors.As(err, &refused) || c.visits != (visits.Load() > 0) {
			t.Errorf("case %d: %v, %d visits", i, err, visits.Load())
		}
		if asked := r.requests(""); !c.ok && !c.redirect && len(asked) > 0 {
			t.Errorf("case %d: the registry was asked %q", i, asked)
		}
	}
}
