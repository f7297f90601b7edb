package image_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
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
