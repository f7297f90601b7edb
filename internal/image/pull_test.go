package image_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentbox/internal/image"
	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// anonymous keeps this machine's credentials out of the tests.
func anonymous() oci.RegistryOptions {
	return oci.RegistryOptions{Keychain: authn.NewMultiKeychain(), Backoff: time.Millisecond}
}

// big is an image with a layer that does not compress.
func big(t *testing.T) (img v1.Image, layer string) {
	noise := make([]byte, 3<<20)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(noise); i++ {
		noise[i] = byte(r.Uint32())
	}
	img = layered(t, v1.Config{}, compression.GZip, rootTar(t, [2]string{"noise", string(noise)}))
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return img, m.Layers[0].Digest.String()
}

// wholeLine tells of all layers from the beginning.
var wholeLine = regexp.MustCompile(`^[0-9.]+ of [0-9.]+ MB, [0-9.]+ MB/s, [0-2] of 2 layers done$`)

func TestPull(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	r.push(t, "team/a:v1", twoLayers(t, compression.ZStd))
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	var events []image.Event
	opts := image.PullOptions{Registry: anonymous(), Progress: func(e image.Event) { events = append(events, e) }}
	img, err := s.Pull(t.Context(), r.host()+"/team/a:v1", opts)
	if err != nil {
		t.Fatal(err)
	}
	if img.Name != r.host()+"/team/a:v1" || img.Source != image.FromRegistry {
		t.Errorf("pulled %+v", img)
	}
	checkTwoLayers(t, img)
	done := map[string]bool{}
	for _, e := range events {
		done[e.Layer] = done[e.Layer] || e.Layer != "" && e.Done == e.Total && e.Total > 0
		if e.Layer != "" && !wholeLine.MatchString(e.Line) {
			t.Errorf("a line for people is %q", e.Line)
		}
	}
	for _, l := range img.Layers {
		if !done[l.Digest] {
			t.Errorf("nothing said that %s is there: %+v", l.Digest, events)
		}
	}
	// By its digest it is the same image, and nothing is fetched again.
	r.set(nil)
	again, err := s.Pull(t.Context(), r.host()+"/team/a@"+img.Digest, opts)
	if err != nil || again.Path != img.Path {
		t.Errorf("pulled by digest %+v, %v", again, err)
	}
	for _, l := range img.Layers {
		if got := r.requests(l.Digest); len(got) > 0 {
			t.Errorf("asked again for a layer: %v", got)
		}
	}
	if _, err := s.Resolve(t.Context(), r.host()+"/team/a:v1"); err != nil {
		t.Error(err)
	}
}

func TestPullErrors(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	r.push(t, "a:v1", twoLayers(t, compression.GZip))
	idx := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: twoLayers(t, compression.GZip), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: layered(t, v1.Config{}, compression.GZip), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}})
	r.push(t, "idx", idx)
	status := func(code int) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
			if strings.Contains(r.URL.Path, "/manifests/") {
				http.Error(w, `{"errors":[{"code":"X","message":"no\u001b[31m way"}]}`, code)
				return true
			}
			return false
		}
	}
	big := func(w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Write(make([]byte, oci.MaxManifest+1))
			return true
		}
		return false
	}
	for _, c := range []struct {
		name, ref, platform string
		fault               func(http.ResponseWriter, *http.Request, http.Handler) bool
		is                  func(error) bool
		says                string
		asked               int // for the manifest
	}{
		{name: "no such tag", ref: "a:v2", is: errdefs.IsNotFound, says: "does not have it", asked: 1},
		{name: "no such repository", ref: "b", is: errdefs.IsNotFound, asked: 1},
		{name: "no such platform", ref: "idx", platform: "linux/s390x", is: errdefs.IsNotFound, says: "there are: linux/amd64:", asked: 1},
		{name: "image of another platform", ref: "a:v1", platform: "linux/arm64", is: errdefs.IsNotFound, says: "there are: linux/amd64:", asked: 1},
		{name: "unauthorized", ref: "a:v1", fault: status(401), is: errdefs.IsUnauthorized, says: "login"},
		{name: "forbidden", ref: "a:v1", fault: status(403), is: errdefs.IsPermissionDenied, says: "no[31m way", asked: 1},
		{name: "out of order", ref: "a:v1", fault: status(503), is: errdefs.IsUnavailable, asked: 5},
		{name: "rate limit", ref: "a:v1", fault: status(429), is: errdefs.IsUnavailable, says: "rate limit", asked: 5},
		{name: "endless manifest", ref: "a:v1", fault: big, is: errdefs.IsResourceExhausted, asked: 1},
		{name: "bad reference", ref: "UPPER CASE", is: errdefs.IsInvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r.set(c.fault)
			_, err := open(t, dir, agent(t, "1")).Pull(t.Context(), r.host()+"/"+c.ref, image.PullOptions{Registry: anonymous(), Platform: c.platform})
			if !c.is(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v", err)
			}
			if n := len(r.requests("/manifests/")); c.asked > 0 && n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	r.set(nil)
	got, err := open(t, t.TempDir(), agent(t, "1")).Pull(t.Context(), r.host()+"/idx", image.PullOptions{Registry: anonymous(), Platform: "linux/amd64"})
	if err != nil {
		t.Fatal(err)
	}
	checkTwoLayers(t, got)
}

// A download that is cut goes on where it stopped, in the same pull and in one
// of another process.
func TestPullResumes(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	img, layer := big(t)
	r.push(t, "big", img)
	for _, times := range []int32{1, 4, 1000} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			const part = 500_000
			dir := t.TempDir()
			s := open(t, dir, agent(t, "1"))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if times == 1000 { // never whole: this process gives up
				r.set(func(w http.ResponseWriter, q *http.Request, next http.Handler) bool {
					if strings.HasSuffix(q.URL.Path, layer) && q.Header.Get("Range") != "" {
						cancel()
						<-q.Context().Done() // an answer might come first
						return true
					}
					return cut(layer, part, 1)(w, q, next)
				})
				if _, err := s.Pull(ctx, r.host()+"/big", image.PullOptions{Registry: anonymous()}); !errors.Is(err, context.Canceled) {
					t.Fatalf("canceled: %v", err)
				}
				if u, err := s.DiskUsage(); err != nil || u.Temporary == 0 {
					t.Errorf("what was fetched is not kept or not counted: %+v, %v", u, err)
				}
				r.set(nil)
				s = open(t, dir, agent(t, "1"))
			} else {
				r.set(cut(layer, part, times))
			}
			got, err := s.Pull(t.Context(), r.host()+"/big", image.PullOptions{Registry: anonymous()})
			if err != nil {
				t.Fatal(err)
			}
			asked := r.requests(layer)
			if n := len(read(t, got)["/noise"].Data); n != 3<<20 {
				t.Errorf("the file has %d bytes", n)
			}
			if last := asked[len(asked)-1]; !strings.Contains(last, "bytes=") || strings.Contains(last, "bytes=0-") {
				t.Errorf("did not go on where it stopped: %v", asked)
			}
			if left, _ := os.ReadDir(filepath.Join(dir, "partial")); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

// Whatever a registry sends instead of a layer, it is not taken for it, and no
// part of it stays.
func TestPullDigestMismatch(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	img, layer := big(t)
	r.push(t, "big", img)
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	size := m.Layers[0].Size
	body := func(b []byte) func(http.ResponseWriter, *http.Request, http.Handler) bool {
		return func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
			if strings.HasSuffix(q.URL.Path, layer) {
				w.Write(b)
				return true
			}
			return false
		}
	}
	manifest := func(w http.ResponseWriter, q *http.Request, next http.Handler) bool {
		if q.Method == http.MethodGet && strings.Contains(q.URL.Path, "/manifests/") {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, q)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			w.Write(append(rec.Body.Bytes(), ' '))
			return true
		}
		return false
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		ref   string
		fault func(http.ResponseWriter, *http.Request, http.Handler) bool
	}{
		"other bytes": {"big", body(make([]byte, size))}, "too short": {"big", body(make([]byte, 100))},
		"too long": {"big", body(make([]byte, size+1))}, "nothing": {"big", body(nil)}, "manifest": {"big@" + digest.String(), manifest},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			r.set(c.fault)
			_, err := open(t, dir, agent(t, "1")).Pull(t.Context(), r.host()+"/"+c.ref, image.PullOptions{Registry: anonymous()})
			if !errdefs.IsDataLoss(err) {
				t.Errorf("error is %v", err)
			}
			if left := files(t, dir); len(left) > 0 {
				t.Errorf("left %v", left)
			}
		})
	}
	// A bad part from earlier is found out and fetched again.
	r.set(nil)
	dir := t.TempDir()
	s := open(t, dir, agent(t, "1"))
	if err := os.WriteFile(filepath.Join(dir, "partial", layer[len("sha256:"):]), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pull(t.Context(), r.host()+"/big", image.PullOptions{Registry: anonymous()}); err != nil {
		t.Errorf("with a bad part: %v", err)
	}
}

func TestPullStalledTransfer(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	img, layer := big(t)
	r.push(t, "big", img)
	var n atomic.Int32
	r.set(func(w http.ResponseWriter, q *http.Request, next http.Handler) bool {
		if !strings.HasSuffix(q.URL.Path, layer) || n.Add(1) > 1 {
			return false
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-q.Context().Done() // until the client goes
		return true
	})
	opts := anonymous()
	opts.Stall = 2 * time.Second // far more than a busy machine needs for an answer
	if _, err := open(t, t.TempDir(), agent(t, "1")).Pull(t.Context(), r.host()+"/big", image.PullOptions{Registry: opts}); err != nil {
		t.Error(err)
	}
}

func TestPullThroughMirror(t *testing.T) {
	origin, mirror := newRegistry(t, httptest.NewServer), newRegistry(t, httptest.NewServer)
	img := twoLayers(t, compression.GZip)
	origin.push(t, "team/a", img)
	origin.push(t, "team/b", img)
	mirror.push(t, "cache/team/a", img)
	s := open(t, t.TempDir(), agent(t, "1"))
	opts := anonymous()
	opts.Mirrors = map[string][]string{origin.host(): {mirror.URL + "/cache"}}
	origin.set(nil)
	got, err := s.Pull(t.Context(), origin.host()+"/team/a", image.PullOptions{Registry: opts})
	if err != nil || got.Name != origin.host()+"/team/a:latest" || len(origin.requests("")) > 0 {
		t.Errorf("pulled %+v, %v; the registry was asked %v", got, err, origin.requests(""))
	}
	if _, err := s.Pull(t.Context(), origin.host()+"/team/b", image.PullOptions{Registry: opts}); err != nil {
		t.Errorf("what the mirror does not have: %v", err)
	}
	mirror.Close()
	if _, err := s.Pull(t.Context(), origin.host()+"/team/b", image.PullOptions{Registry: opts}); err != nil {
		t.Errorf("with a dead mirror: %v", err)
	}
	opts.Mirrors = map[string][]string{origin.host(): {"mirror.example"}}
	if _, err := s.Pull(t.Context(), origin.host()+"/team/b", image.PullOptions{Registry: opts}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a mirror that is no URL: %v", err)
	}
}

// Many pulls at once of images that share layers.
func TestPullConcurrently(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	img, layer := big(t)
	r.push(t, "a", img)
	r.push(t, "b", img)
	dir := t.TempDir()
	r.set(nil)
	var wg sync.WaitGroup
	for i := range 6 {
		s := open(t, dir, agent(t, "1"))
		wg.Go(func() {
			if _, err := s.Pull(t.Context(), r.host()+"/"+[]string{"a", "b"}[i%2], image.PullOptions{Registry: anonymous()}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := r.requests(layer); len(got) != 1 {
		t.Errorf("fetched %d times: %v", len(got), got)
	}
	sum := sha256.New()
	blob, err := os.ReadFile(filepath.Join(dir, "blobs", layer[len("sha256:"):]))
	if err != nil {
		t.Fatal(err)
	}
	if sum.Write(blob); "sha256:"+hex.EncodeToString(sum.Sum(nil)) != layer {
		t.Error("the blob is not what its name says")
	}
}
