package agentbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agentbox "agentbox/sdk/go"
)

// fake is a client of a server that the test plays. It keeps what was asked.
type fake struct {
	*agentbox.Client
	mu    sync.Mutex
	asked []*http.Request
}

// requests are those that came so far.
func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

// play answers the nth request, from 1, with f.
func play(t *testing.T, f func(n int, w http.ResponseWriter, r *http.Request)) *fake {
	t.Helper()
	fk := &fake{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fk.mu.Lock()
		fk.asked = append(fk.asked, r)
		n := len(fk.asked)
		fk.mu.Unlock()
		f(n, w, r)
	}))
	t.Cleanup(s.Close)
	c, err := agentbox.NewClient(agentbox.WithURL(s.URL+"/"), agentbox.WithAPIKey("abx_test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	fk.Client = c
	return fk
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"detail":"no","code":%q,"request_id":"r1"}`, code)
}

// cut ends the connection without an answer.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// TestRetries: what may be done twice is sent again, all else once.
func TestRetries(t *testing.T) {
	ok := map[string]string{"get": `{"id":"x"}`, "exec": `{"exit_code":0}`}
	for _, c := range []struct {
		name string
		fail func(http.ResponseWriter)
		call func(ctx context.Context, c *agentbox.Client) error
		want int // requests
	}{
		{"a question whose answer is lost", cut, getBox, 2},
		{"a question to a server that is not ready", func(w http.ResponseWriter) { refuse(w, 503, "unavailable") }, getBox, 2},
		{"a question that is refused", func(w http.ResponseWriter) { refuse(w, 404, "not_found") }, getBox, 1},
		{"a new sandbox whose answer is lost", cut, createBox, 2},
		{"a command whose answer is lost", cut, execTrue, 1},
		{"a command of a server that counts", func(w http.ResponseWriter) { refuse(w, 429, "rate_limited") }, execTrue, 2},
		{"a command that the server could not run now", func(w http.ResponseWriter) { refuse(w, 503, "unavailable") }, execTrue, 1},
		{"a repeatable command whose answer is lost", cut, execRepeatable, 2},
		{"a command in the background whose answer is lost", cut, background, 2},
		{"a removal whose answer is lost", cut, destroyBox, 1},
		{"an upload whose answer is lost", cut, upload, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := play(t, func(n int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if n == 1 {
					c.fail(w)
					return
				}
				if strings.HasSuffix(r.URL.Path, "/execute") {
					_, _ = io.WriteString(w, ok["exec"])
					return
				}
				_, _ = io.WriteString(w, ok["get"])
			})
			err := c.call(within(t), f.Client)
			asked := f.requests()
			if len(asked) != c.want || (err == nil) != (c.want == 2) {
				t.Errorf("%d requests, want %d: %v", len(asked), c.want, err)
			}
			if c.want == 2 && asked[0].Header.Get("Idempotency-Key") != asked[1].Header.Get("Idempotency-Key") {
				t.Error("the second request has another key")
			}
			if asked[0].Method == http.MethodPost && c.want == 2 && c.name[len(c.name)-6:] != "counts" && asked[0].Header.Get("Idempotency-Key") == "" {
				t.Error("a change was sent again without a key")
			}
			var lost *agentbox.Error
			if c.want == 1 && errors.As(err, &lost) && lost.Status == 0 && !lost.MaybeDone {
				t.Errorf("the lack of an answer does not say that it may have been done: %v", err)
			}
		})
	}
}

func getBox(ctx context.Context, c *agentbox.Client) error {
	_, err := c.Get(ctx, "x")
	return err
}

func createBox(ctx context.Context, c *agentbox.Client) error {
	_, err := c.Create(ctx, agentbox.CreateOptions{})
	return err
}

func execTrue(ctx context.Context, c *agentbox.Client) error {
	_, err := c.Box("x").Exec(ctx, agentbox.Sh("true"))
	return err
}

func execRepeatable(ctx context.Context, c *agentbox.Client) error {
	_, err := c.Box("x").Exec(ctx, agentbox.Command{Line: "true", Repeatable: true})
	return err
}

func background(ctx context.Context, c *agentbox.Client) error {
	_, err := c.Box("x").Background(ctx, agentbox.Sh("true"))
	return err
}

func destroyBox(ctx context.Context, c *agentbox.Client) error { return c.Box("x").Destroy(ctx) }

func upload(ctx context.Context, c *agentbox.Client) error {
	return c.Box("x").Files.Write(ctx, "f", []byte("x"), agentbox.WriteOptions{})
}

// TestErrors: each answer has its kind, and what the server said of it.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		kind   error
		text   string
	}{
		{400, `{"detail":"memory is too small","code":"invalid_value","field":"memory","allowed":"more than 0","request_id":"r1"}`, agentbox.ErrInvalidArgument, "memory is too small"},
		{422, `{"detail":[{"type":"extra_forbidden","loc":["body","memroy"],"msg":"there is no such field","input":1}]}`, agentbox.ErrInvalidArgument, "body memroy: there is no such field"},
		{401, `{"detail":"no key","code":"unauthenticated"}`, agentbox.ErrUnauthenticated, "no key"},
		{403, `{"detail":"no","code":"forbidden"}`, agentbox.ErrPermissionDenied, "no"},
		{404, `{"detail":"gone","code":"sandbox_expired","reason":"idle"}`, agentbox.ErrNotFound, "gone (idle)"},
		{409, `{"detail":"it is","code":"already_exists"}`, agentbox.ErrConflict, "it is"},
		{501, `{"detail":"can't","code":"unsupported"}`, agentbox.ErrUnsupported, "can't"},
		{500, `{"detail":"oh","code":"internal"}`, agentbox.ErrInternal, "oh"},
		{413, `<html>proxy</html>`, agentbox.ErrTooLarge, "the server answered 413 Request Entity Too Large"},
		{507, `{"detail":"new","code":"a_code_of_tomorrow"}`, agentbox.ErrInternal, "new"},
	} {
		f := play(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		err := destroyBox(within(t), f.Client)
		var e *agentbox.Error
		if !errors.As(err, &e) || !errors.Is(err, c.kind) || e.Status != c.status || err.Error() != c.text {
			t.Errorf("%d %s is %v", c.status, c.body, err)
		}
	}
}

// TestRateLimited: a server that wants to be left alone for long has its caller decide.
func TestRateLimited(t *testing.T) {
	f := play(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		refuse(w, 429, "rate_limited")
	})
	err := getBox(within(t), f.Client)
	var e *agentbox.Error
	if !errors.As(err, &e) || !errors.Is(err, agentbox.ErrRateLimited) || e.RetryAfter != time.Hour || len(f.requests()) != 1 {
		t.Errorf("%v after %d requests", err, len(f.requests()))
	}
}

// TestQuota: a quota needs something else to end, and is told at once.
func TestQuota(t *testing.T) {
	for _, code := range []string{"limit_exceeded", "quota_exceeded"} {
		f := play(t, func(_ int, w http.ResponseWriter, _ *http.Request) { refuse(w, 429, code) })
		if err := execTrue(within(t), f.Client); !errors.Is(err, agentbox.ErrLimitExceeded) || len(f.requests()) != 1 {
			t.Errorf("%s: %v after %d requests", code, err, len(f.requests()))
		}
	}
}

// TestOddRetryAfter: the longest time that a server can write is a time, too.
func TestOddRetryAfter(t *testing.T) {
	f := play(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "9223372037") // a second more than a time can be
		refuse(w, 429, "rate_limited")
	})
	var e *agentbox.Error
	if err := getBox(within(t), f.Client); !errors.As(err, &e) || e.RetryAfter < time.Hour || len(f.requests()) != 1 {
		t.Errorf("%v, to be asked again after %v, after %d requests", err, e.RetryAfter, len(f.requests()))
	}
}

// TestPageThatLeadsToItself: a server's list ends.
func TestPageThatLeadsToItself(t *testing.T) {
	f := play(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items": [], "next_cursor": "a"}`)
	})
	if _, err := agentbox.Collect(f.Secrets.List(within(t))); !errors.Is(err, agentbox.ErrInternal) || len(f.requests()) != 2 {
		t.Errorf("%v after %d requests", err, len(f.requests()))
	}
}

// TestNobodyThere: no server is ErrUnavailable, and nothing was done.
func TestNobodyThere(t *testing.T) {
	c, err := agentbox.NewClient(agentbox.WithURL("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	var e *agentbox.Error
	if err := execTrue(within(t), c); !errors.Is(err, agentbox.ErrUnavailable) || !errors.As(err, &e) || e.MaybeDone {
		t.Errorf("it is %v", err)
	}
}

// TestRedirect: a key is for one server.
func TestRedirect(t *testing.T) {
	f := play(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	if err := getBox(within(t), f.Client); err == nil || len(f.requests()) != 1 {
		t.Errorf("%d requests: %v", len(f.requests()), err)
	}
}

func event(w http.ResponseWriter, name, id string, data any) {
	text, _ := json.Marshal(data)
	fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", id, name, text)
	w.(http.Flusher).Flush()
}

type output struct {
	Offset int64  `json:"offset"`
	Data   []byte `json:"data_base64"`
}

// TestStreamResumes: when the connection breaks, a stream goes on where it was: nothing is
// lost and nothing comes twice.
func TestStreamResumes(t *testing.T) {
	f := play(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			event(w, "start", "0-0", map[string]string{"exec_id": "e1"})
			event(w, "stdout", "2-0", output{0, []byte("ab")})
			cut(w)
		case 2:
			refuse(w, 503, "unavailable") // it starts anew
		case 3, 4:
			if got := r.URL.Query().Get("offset"); got != fmt.Sprintf("%d-0", 2*(n-2)) || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/execs/e1/output") {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			event(w, "start", "", map[string]string{"exec_id": "e1"})
			if n == 3 {
				event(w, "stdout", "4-0", output{2, []byte("cd")})
				event(w, "error", "", map[string]string{"code": "unavailable", "detail": "the server is about to stop"})
				return
			}
			event(w, "stdout", "6-0", output{4, []byte("ef")})
			event(w, "exit", "6-0", map[string]any{"exec_id": "e1", "exit_code": 3})
		}
	})
	var text, kinds strings.Builder
	for e, err := range f.Box("x").Stream(within(t), agentbox.Sh("true")) {
		if err != nil {
			t.Fatal(err)
		}
		text.Write(e.Data)
		kinds.WriteString(string(e.Kind) + " ")
		if e.Kind == agentbox.Exited && e.Result.ExitCode != 3 {
			t.Errorf("%+v", e.Result)
		}
	}
	if text.String() != "abcdef" || kinds.String() != "start stdout stdout stdout exit " {
		t.Errorf("%q: %s", text.String(), kinds.String())
	}
}

// TestStreamLost: what began is not begun again when its id was never told.
func TestStreamLost(t *testing.T) {
	f := play(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cut(w)
	})
	_, err := f.Box("x").Run(within(t), agentbox.Sh("true"), nil, nil)
	if !errors.Is(err, agentbox.ErrUnavailable) || len(f.requests()) != 1 {
		t.Errorf("%v after %d requests", err, len(f.requests()))
	}
}

// TestCutContents: a file or an archive that breaks off is an error, never a shorter one.
func TestCutContents(t *testing.T) {
	f := play(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/files") {
			w.Header().Set("Content-Length", "10")
		}
		_, _ = io.WriteString(w, "short")
		w.(http.Flusher).Flush()
		cut(w)
	})
	ctx := within(t)
	if b, err := f.Box("x").Files.Read(ctx, "f"); !errors.Is(err, agentbox.ErrUnavailable) || string(b) != "short" {
		t.Errorf("%q %v", b, err)
	}
	if _, err := f.Box("x").Files.ReadArchive(ctx, "f", io.Discard, agentbox.ArchiveOptions{}); !errors.Is(err, agentbox.ErrUnavailable) {
		t.Errorf("it is %v", err)
	}
}

// TestPages: a list is read as far as it is looked at.
func TestPages(t *testing.T) {
	f := play(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if want := []string{"", "", "c1", ""}[n]; r.URL.Query().Get("cursor") != want {
			t.Errorf("request %d: %s", n, r.URL)
		}
		next := []string{"", `"c1"`, "null", `"c1"`}[n]
		fmt.Fprintf(w, `{"items":[{"name":"v%d"},{"name":"w%d"}],"next_cursor":%s}`, n, n, next)
	})
	list := f.Volumes.List(within(t))
	all, err := agentbox.Collect(list)
	if err != nil || len(all) != 4 || all[3].Name != "w2" {
		t.Errorf("%+v %v", all, err)
	}
	for range list {
		break
	}
	if len(f.requests()) != 3 {
		t.Errorf("%d requests", len(f.requests()))
	}
}

func TestBadURLs(t *testing.T) {
	for _, url := range []string{"127.0.0.1:8700", "ftp://x", "http://", "http://u:p@x"} {
		if _, err := agentbox.NewClient(agentbox.WithURL(url)); err == nil {
			t.Errorf("%s is taken", url)
		}
	}
}
