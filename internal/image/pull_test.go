package image_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// aRegistry is go-containerregistry's own, with a layer before it that a test
// can put faults into.
type aRegistry struct {
	*httptest.Server
	inner http.Handler
	mu    sync.Mutex
	// fault answers a request itself, if it wants to.
	fault func(w http.ResponseWriter, r *http.Request, next http.Handler) bool
	asked []string // method, path, range of all requests
}

func newRegistry(t *testing.T, start func(http.Handler) *httptest.Server) *aRegistry {
	t.Helper()
	r := &aRegistry{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.Server = start(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(r.Close)
	return r
}

func (r *aRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	fault := r.fault
	r.asked = append(r.asked, strings.TrimSpace(req.Method+" "+req.URL.Path+" "+req.Header.Get("Range")))
	r.mu.Unlock()
	if fault == nil || !fault(w, req, r.inner) {
		r.inner.ServeHTTP(w, req)
	}
}

func (r *aRegistry) set(fault func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault, r.asked = fault, nil
}

// requests are those since the last set that hold a text.
func (r *aRegistry) requests(with string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.asked), func(s string) bool { return !strings.Contains(s, with) })
}

func (r *aRegistry) host() string { return strings.SplitN(r.URL, "//", 2)[1] }

// push puts an image or an index there.
func (r *aRegistry) push(t *testing.T, ref string, what any, opts ...remote.Option) {
	t.Helper()
	at, err := name.ParseReference(r.host() + "/" + ref)
	if err != nil {
		t.Fatal(err)
	}
	switch what := what.(type) {
	case v1.Image:
		err = remote.Write(at, what, opts...)
	case v1.ImageIndex:
		err = remote.WriteIndex(at, what, opts...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

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

// cut answers requests for a blob with its first bytes, then breaks the
// connection.
func cut(digest string, bytes int64, times int32) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		if !strings.HasSuffix(r.URL.Path, digest) || r.Method != http.MethodGet || n.Add(1) > times {
			return false
		}
		next.ServeHTTP(&cutWriter{w, bytes}, r)
		return true
	}
}

type cutWriter struct {
	http.ResponseWriter
	left int64
}

func (c *cutWriter) Write(p []byte) (int, error) {
	if int64(len(p)) < c.left {
		c.left -= int64(len(p))
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
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
	opts.Stall = 300 * time.Millisecond
	if _, err := open(t, t.TempDir(), agent(t, "1")).Pull(t.Context(), r.host()+"/big", image.PullOptions{Registry: opts}); err != nil {
		t.Error(err)
	}
}

// keychain has one account.
type keychain struct{ host, user, password string }

func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != k.host {
		return authn.Anonymous, nil
	}
	return &authn.Basic{Username: k.user, Password: k.password}, nil
}

// protect asks for an account, by itself or by a token of its own service.
func protect(r *aRegistry, bearer bool) {
	r.set(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		user, password, _ := q.BasicAuth()
		good := user == "me" && password == "secret"
		if bearer {
			if q.URL.Path == "/token" {
				if !good {
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				fmt.Fprint(w, `{"token":"t0ken"}`)
				return true
			}
			good = q.Header.Get("Authorization") == "Bearer t0ken"
		}
		if good {
			return false
		}
		challenge := `Basic realm="r"`
		if bearer {
			challenge = fmt.Sprintf(`Bearer realm="%s/token",service="s"`, r.URL)
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
}

func TestPullWithLogin(t *testing.T) {
	for _, bearer := range []bool{false, true} {
		t.Run(fmt.Sprint("token ", bearer), func(t *testing.T) {
			r := newRegistry(t, httptest.NewServer)
			r.push(t, "private/a", twoLayers(t, compression.GZip))
			protect(r, bearer)
			s := open(t, t.TempDir(), agent(t, "1"))
			pull := func(k authn.Keychain) error {
				opts := anonymous()
				opts.Keychain = k
				_, err := s.Pull(t.Context(), r.host()+"/private/a", image.PullOptions{Registry: opts})
				return err
			}
			for _, k := range []authn.Keychain{authn.NewMultiKeychain(), keychain{r.host(), "me", "wrong"}} {
				if err := pull(k); !errdefs.IsUnauthorized(err) || strings.Contains(err.Error(), "wrong") {
					t.Errorf("with %v: %v", k, err)
				}
			}
			if err := pull(keychain{r.host(), "me", "secret"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Docker's configuration and its credential helpers are what people have.
func TestPullWithDockersLogin(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	r.push(t, "private/a", twoLayers(t, compression.GZip))
	protect(r, true)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	helper := "#!/bin/sh\ncat >/dev/null\nprintf '{\"ServerURL\":\"x\",\"Username\":\"me\",\"Secret\":\"secret\"}'\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	for what, config := range map[string]any{
		"password": map[string]any{"auths": map[string]any{r.host(): map[string]string{"auth": "bWU6c2VjcmV0"}}},
		"helper":   map[string]any{"credHelpers": map[string]string{r.host(): "test"}},
	} {
		t.Run(what, func(t *testing.T) {
			text, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = open(t, t.TempDir(), agent(t, "1")).Pull(t.Context(), r.host()+"/private/a", image.PullOptions{Registry: oci.RegistryOptions{Backoff: time.Millisecond}})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPullTLS(t *testing.T) {
	r := newRegistry(t, httptest.NewTLSServer)
	r.push(t, "a", twoLayers(t, compression.GZip), remote.WithTransport(r.Client().Transport))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, t.TempDir(), agent(t, "1"))
	for what, c := range map[string]struct {
		change func(*oci.RegistryOptions)
		fails  bool
	}{
		"unknown":  {func(*oci.RegistryOptions) {}, true},
		"CA file":  {func(o *oci.RegistryOptions) { o.CAFile = ca }, false},
		"insecure": {func(o *oci.RegistryOptions) { o.Insecure = []string{r.host()} }, false},
		"no CA":    {func(o *oci.RegistryOptions) { o.CAFile = "/dev/null" }, true},
	} {
		opts := anonymous()
		c.change(&opts)
		_, err := s.Pull(t.Context(), r.host()+"/a", image.PullOptions{Registry: opts})
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Plain HTTP is for this machine, or for what the operator names.
func TestPullPlainHTTP(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	r.push(t, "a", twoLayers(t, compression.GZip))
	_, port, _ := strings.Cut(r.host(), ":")
	host := "0.0.0.0:" + port // leads here, and is no name of this machine
	s := open(t, t.TempDir(), agent(t, "1"))
	opts := anonymous()
	r.set(nil)
	if _, err := s.Pull(t.Context(), host+"/a", image.PullOptions{Registry: opts}); err == nil || len(r.requests("")) > 0 {
		t.Errorf("pulled over plain HTTP from another machine: %v, %v", err, r.requests(""))
	}
	opts.Insecure = []string{host}
	if _, err := s.Pull(t.Context(), host+"/a", image.PullOptions{Registry: opts}); err != nil {
		t.Errorf("what the operator named: %v", err)
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
