package procapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

// toy is a sandbox whose commands are Go functions, by their first word, and whose files
// are in memory.
type toy struct {
	commands map[string]func(ctx context.Context, c Command, stdout, stderr io.Writer) (*sandbox.Result, error)

	mu    sync.Mutex
	files map[string][]byte
	ran   []Command
	held  int64 // reserved
	most  int64 // of it there may be
	rests int
}

func newToy() *toy {
	return &toy{files: map[string][]byte{}, most: 1 << 30, commands: map[string]func(context.Context, Command, io.Writer, io.Writer) (*sandbox.Result, error){
		"echo": func(_ context.Context, c Command, stdout, _ io.Writer) (*sandbox.Result, error) {
			_, _ = io.WriteString(stdout, strings.TrimPrefix(c.Line, "echo ")+"\n")
			return &sandbox.Result{Outcome: sandbox.Exited}, nil
		},
		"wait": func(ctx context.Context, c Command, stdout, _ io.Writer) (*sandbox.Result, error) {
			_, _ = io.WriteString(stdout, "a\n")
			limit := make(<-chan time.Time)
			if c.Timeout > 0 {
				limit = time.After(c.Timeout)
			}
			select {
			case <-limit:
				return &sandbox.Result{Outcome: sandbox.TimedOut}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}}
}

func (s *toy) result(r sandbox.Result, stdout, stderr string) {
	s.commands["result"] = func(_ context.Context, _ Command, to, errs io.Writer) (*sandbox.Result, error) {
		_, _ = io.WriteString(to, stdout)
		_, _ = io.WriteString(errs, stderr)
		return &r, nil
	}
}

func (s *toy) Run(ctx context.Context, c Command, stdout, stderr io.Writer) (*sandbox.Result, error) {
	s.mu.Lock()
	s.ran = append(s.ran, c)
	s.mu.Unlock()
	name, _, _ := strings.Cut(c.Line, " ")
	return s.commands[name](ctx, c, stdout, stderr)
}

func below(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(path.Clean(p), dir+"/") })
}

func outside(p string) error {
	return guest.Errorf(errdefs.ErrOutOfRange, "%s leads out of the directories that are allowed", p)
}

func (s *toy) Open(_ context.Context, p string) (io.ReadCloser, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.files[p]
	switch {
	case !below(wording.Readable, p):
		return nil, 0, outside(p)
	case strings.HasSuffix(p, "/dir"):
		return nil, 0, &fs.PathError{Op: "open", Path: p, Err: syscall.EISDIR}
	case !ok:
		return nil, 0, &fs.PathError{Op: "open", Path: p, Err: syscall.ENOENT}
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

func (s *toy) Write(_ context.Context, p string, appending bool, content io.Reader) error {
	if !below(wording.Writable, p) {
		return outside(p)
	}
	b, err := io.ReadAll(content)
	s.mu.Lock()
	defer s.mu.Unlock()
	if appending {
		b = append(slices.Clone(s.files[p]), b...)
	}
	s.files[p] = b
	return err
}

func (s *toy) Reserve(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held+n > s.most {
		return false
	}
	s.held += n
	return true
}

func (s *toy) Release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= n
}

func (s *toy) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rests++
}

// serve runs an API on a port.
func serve(t *testing.T, s *toy, o Options) *httptest.Server {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = New(s, o).Server()
	srv.Start()
	t.Cleanup(func() {
		srv.Close()
		if s.held != 0 {
			t.Errorf("%d bytes are still reserved", s.held)
		}
	})
	return srv
}

// ask sends a request and returns the answer as "code body".
func ask(t *testing.T, srv *httptest.Server, method, route, body string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+route, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	if a.StatusCode >= 400 && a.Header.Get("Content-Type") != contentJSON {
		t.Errorf("%s %s: an error of type %q", method, route, a.Header.Get("Content-Type"))
	}
	return fmt.Sprintf("%d %s", a.StatusCode, strings.TrimSpace(string(b)))
}
