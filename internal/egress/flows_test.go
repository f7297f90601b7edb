package egress_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"agentbox/internal/egress"
)

// TestNET03_Flows are those that must work, over plain HTTP, through CONNECT and
// through SOCKS.
func TestNET03_Flows(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	l.web(allowedAddr, 443, site(t), "allowed.test")
	d := l.open(l.session("allowed.test"))
	large := int64(100 << 20)
	if testing.Short() {
		large = 5 << 20
	}
	for _, door := range []struct {
		name, scheme, url string
		size              int64
	}{
		{"http", "http", "http://allowed.test", large},
		{"connect", "http", "https://allowed.test", large},
		{"socks http", "socks5h", "http://allowed.test", 5 << 20},
		{"socks tls", "socks5h", "https://allowed.test", 5 << 20},
	} {
		f := flows{c: d.client(door.scheme), url: door.url, size: door.size}
		for name, flow := range map[string]func(*testing.T){
			"get": f.get, "post 10 MiB": f.post, "chunked upload with trailers": f.chunked, "range": f.ranged,
			"download": f.download, "trailers": f.trailers, "redirect inside the list": f.redirect,
			"head": f.head, "204 and 304": f.bodiless, "early hints": f.hints, "compressed": f.compressed, "index": f.index,
			"expect": f.expect, "expect refused": f.expectRefused, "websocket": f.webSocket, "duplex": f.duplex,
		} {
			t.Run(door.name+"/"+name, flow)
		}
	}
}

// flows are what one client does at one site.
type flows struct {
	c    *http.Client
	url  string
	size int64 // of the download
}

func (f flows) get(t *testing.T) {
	resp, body := get(t, f.c, f.url+"/hello")
	want := "hello HTTP/1.1 allowed.test"
	if strings.HasPrefix(f.url, "https") {
		want = "hello HTTP/2.0 allowed.test" // nobody is in between
	}
	if resp.StatusCode != 200 || body != want {
		t.Errorf("got %s %q, want %q", resp.Status, body, want)
	}
}

func (f flows) post(t *testing.T) {
	const size = 10 << 20
	resp, err := f.c.Post(f.url+"/sum", "application/octet-stream", random(size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); strings.TrimSpace(string(b)) != sumOf(random(size)) {
		t.Errorf("the server got %q", b)
	}
}

func (f flows) chunked(t *testing.T) {
	r, _ := http.NewRequest("PUT", f.url+"/sum", io.MultiReader(random(100_000), strings.NewReader("")))
	r.Trailer = http.Header{"X-End": {"fin"}}
	resp, err := f.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != sumOf(random(100_000))+" fin" {
		t.Errorf("the server got %q", b)
	}
}

func (f flows) ranged(t *testing.T) {
	r, _ := http.NewRequest("GET", f.url+"/range", nil)
	r.Header.Set("Range", "bytes=2-4")
	resp, err := f.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 206 || string(b) != "234" || resp.Header.Get("Content-Range") != "bytes 2-4/10" {
		t.Errorf("got %s %q %v", resp.Status, b, resp.Header)
	}
}

func (f flows) download(t *testing.T) {
	for how, size := range map[string]int64{"": 5 << 20, "&sized": f.size} {
		resp, err := f.c.Get(fmt.Sprintf("%s/big?n=%d%s", f.url, size, how))
		if err != nil {
			t.Fatal(err)
		}
		if got := sumOf(resp.Body); got != sumOf(random(size)) {
			t.Errorf("got %s", got)
		}
		resp.Body.Close()
	}
}

func (f flows) trailers(t *testing.T) {
	if resp, body := get(t, f.c, f.url+"/trailers"); body != "body" || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("got %q %v", body, resp.Trailer)
	}
}

func (f flows) redirect(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		if _, body := get(t, f.c, fmt.Sprintf("%s/to?status=%d&at=/hello", f.url, status)); !strings.HasPrefix(body, "hello") {
			t.Errorf("%d: got %q", status, body)
		}
	}
}

func (f flows) head(t *testing.T) {
	resp, err := f.c.Head(f.url + "/big?n=1234&sized")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ContentLength != 1234 {
		t.Errorf("the length is %d", resp.ContentLength)
	}
}

func (f flows) bodiless(t *testing.T) {
	for _, status := range []int{204, 304} {
		if resp, body := get(t, f.c, fmt.Sprintf("%s/gone?status=%d", f.url, status)); resp.StatusCode != status || body != "" {
			t.Errorf("%d: got %s %q", status, resp.Status, body)
		}
	}
}

func (f flows) hints(t *testing.T) {
	var early atomic.Int32
	r, _ := http.NewRequest("GET", f.url+"/hints", nil)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") != "" {
				early.Add(1)
			}
			return nil
		},
	}))
	resp, err := f.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "page" || early.Load() != 1 {
		t.Errorf("got %q after %d early hints", b, early.Load())
	}
}

func (f flows) compressed(t *testing.T) {
	r, _ := http.NewRequest("GET", f.url+"/gzip", nil)
	r.Header.Set("Accept-Encoding", "gzip;q=0.5")
	resp, err := f.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(z); string(b) != "packed for gzip;q=0.5" {
		t.Errorf("got %q", b)
	}
}

func (f flows) index(t *testing.T) {
	_, page := get(t, f.c, f.url+"/simple/pkg/")
	if _, wheel := get(t, f.c, f.url+"/big?n=1000&sized"); !strings.Contains(page, "pkg-1.0.whl") || len(wheel) != 1000 {
		t.Errorf("got %q and %d bytes", page, len(wheel))
	}
}

func (f flows) webSocket(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	hc := &http.Client{Transport: http1(f.c)}
	defer hc.CloseIdleConnections()
	c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(f.url, "http")+"/ws", &websocket.DialOptions{HTTPClient: hc})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for _, text := range []string{"one", "two"} {
		if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(ctx); err != nil || string(b) != "re: "+text {
			t.Fatalf("got %q, %v", b, err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

// http1 is the client's transport without HTTP/2, which has no upgrades.
func http1(c *http.Client) *http.Transport {
	t := c.Transport.(*http.Transport).Clone()
	t.ForceAttemptHTTP2 = false
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// duplex: request and answer stream side by side.
func (f flows) duplex(t *testing.T) {
	pr, pw := io.Pipe()
	hc := &http.Client{Transport: http1(f.c), Timeout: wait}
	defer hc.CloseIdleConnections()
	r, _ := http.NewRequest("POST", f.url+"/duplex", pr)
	resp, err := hc.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 3)
	for _, text := range []string{"one", "two"} {
		_, _ = io.WriteString(pw, text)
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != strings.ToUpper(text) {
			t.Fatalf("got %q, %v", b, err)
		}
	}
	pw.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
}

// TestNET03_Events: each event comes when it is sent.
func TestNET03_Events(t *testing.T) {
	l := newLab(t)
	more := make(chan struct{})
	l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-more:
			case <-r.Context().Done():
			}
		}
	}))
	for _, scheme := range []string{"http", "socks5h"} {
		resp, err := l.open(l.session("allowed.test")).client(scheme).Get("http://allowed.test/events")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			b := make([]byte, len("data: 0\n\n"))
			if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != fmt.Sprintf("data: %d\n\n", i) {
				t.Fatalf("%s: got %q, %v", scheme, b, err)
			}
			more <- struct{}{} // the server waits for it
		}
		resp.Body.Close()
	}
}

// TestNET03_KeepAlive: one connection of a client, and one to the server.
func TestNET03_KeepAlive(t *testing.T) {
	l := newLab(t)
	var conns atomic.Int32
	l.serve(allowedAddr, 80, func(c net.Conn) {
		conns.Add(1)
		answerHTTP(c)
	})
	p := l.open(l.session("allowed.test")).dial()
	for i := range 5 {
		if resp, body := p.ask("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); resp.StatusCode != 200 || body != "hi" {
			t.Fatalf("request %d: %s %q", i, resp.Status, body)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("the server had %d connections", n)
	}
}

// TestNET03_Git clones over HTTP.
func TestNET03_Git(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git on this machine")
	}
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	run("init", "-q", "src")
	if err := os.WriteFile(filepath.Join(dir, "src", "file"), []byte("content"), 0o644); err != nil {
		t.Fatal(err)
	}
	run("-C", "src", "add", ".")
	run("-C", "src", "commit", "-qm", "first")
	run("clone", "-q", "--bare", "src", "repo.git")
	run("-C", "repo.git", "update-server-info")
	l := newLab(t)
	l.web(allowedAddr, 80, http.FileServer(http.Dir(dir)))
	d := l.open(l.session("allowed.test"))
	run("-c", "http.proxy=http://"+d.addr, "clone", "-q", "http://allowed.test/repo.git", "got")
	if b, err := os.ReadFile(filepath.Join(dir, "got", "file")); err != nil || string(b) != "content" {
		t.Errorf("got %q, %v", b, err)
	}
}

// TestNET10_NoRedirectIsFollowed: the answer is the client's to follow, through
// the policy.
func TestNET10_NoRedirectIsFollowed(t *testing.T) {
	l := newLab(t)
	l.web(allowedAddr, 80, site(t))
	l.web(evilAddr, 80, ok("evil"))
	l.web(metadataAddr, 80, ok("metadata"))
	d := l.open(l.session("allowed.test"))
	for _, status := range []int{301, 302, 307, 308} {
		for _, at := range []string{"http://169.254.169.254/latest", "http://evil.test/", "file:///etc/passwd", "//evil.test"} {
			p := d.dial()
			resp, _ := p.ask(fmt.Sprintf("GET http://allowed.test/to?status=%d&at=%s HTTP/1.1\r\nHost: allowed.test\r\n\r\n", status, at))
			if resp.StatusCode != status || resp.Header.Get("Location") != at {
				t.Errorf("%d to %s: got %s, Location %q", status, at, resp.Status, resp.Header.Get("Location"))
			}
		}
		resp, body := get(t, d.client("http"), fmt.Sprintf("http://allowed.test/to?status=%d&at=http://evil.test/", status))
		if resp.StatusCode != 403 || body != "Host not allowed: evil.test" || resp.Header.Get(egress.CodeHeader) != string(egress.CodeHost) {
			t.Errorf("the client that followed %d got %s %q", status, resp.Status, body)
		}
	}
	if l.reached(evilAddr) || l.reached(metadataAddr) {
		t.Errorf("dialled: %v", l.dialled)
	}
}
