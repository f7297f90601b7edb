package egress_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
)

// repeatKey repeats the secret in all places that an answer has, in parts.
func repeatKey(w http.ResponseWriter, r *http.Request) {
	key, h := r.Header.Get("X-Key"), w.Header()
	h.Set("X-Encoding", r.Header.Get("Accept-Encoding"))
	switch r.URL.Query().Get("as") {
	case "gzip":
		h.Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, key)
		return
	case "length":
		_, _ = io.WriteString(w, key)
		return
	case "redirect":
		http.Redirect(w, r, "https://direct.test/key?k="+key, http.StatusFound)
		return
	case "websocket":
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			return
		}
		defer c.CloseNow()
		_ = c.Write(r.Context(), websocket.MessageText, []byte("key "+key+" ends in "+key[:3]))
		_, _, _ = c.Read(r.Context())
		return
	}
	h.Set("Link", "<"+key+">")
	w.WriteHeader(http.StatusEarlyHints)
	h.Set("X-Echo", "Bearer "+key)
	h.Set(key, "1")
	h.Set("Trailer", "X-End")
	w.WriteHeader(http.StatusOK)
	for i := range key {
		_, _ = io.WriteString(w, key[i:i+1])
		w.(http.Flusher).Flush()
	}
	h.Set("X-End", key)
}

// TestLEAK08_Answers: a server that repeats the secret does not tell it to the
// sandbox, wherever in its answer it stands.
func TestLEAK08_Answers(t *testing.T) {
	l, ca := interceptingLab(t)
	d := l.open(l.session("allowed.test", "direct.test"))
	c := d.clientWith("http", &tls.Config{RootCAs: ca.pool})
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := func(as string) (*http.Response, string) {
		t.Helper()
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			hints = append(hints, h["Link"]...)
			return nil
		}})
		r, _ := http.NewRequestWithContext(ctx, "GET", "https://allowed.test/repeat?as="+as, nil)
		r.Header.Set("X-Key", "placeholder-s1")
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		_ = resp.Header.Write(&all)
		_ = resp.Trailer.Write(&all)
		if got := all.String() + string(body) + strings.Join(hints, ""); strings.Contains(strings.ToLower(got), secret) {
			t.Errorf("%s: %q", as, got)
		}
		return resp, string(body)
	}
	stars := strings.Repeat("*", len(secret))
	resp, body := ask("parts")
	// Its first bytes may have gone before anybody could know.
	if len(body) != len(secret) || !strings.HasSuffix(body, stars[3:]) || resp.Header.Get("X-Echo") != "Bearer "+stars || resp.Trailer.Get("X-End") != stars || resp.Header.Get("X-Encoding") != "identity" {
		t.Errorf("%q %v %v", body, resp.Header, resp.Trailer)
	}
	if resp, body := ask("length"); body != stars || resp.ContentLength != int64(len(secret)) {
		t.Errorf("%q of %d bytes", body, resp.ContentLength)
	}
	if resp, _ := ask("redirect"); resp.Header.Get("Location") != "https://direct.test/key?k="+stars {
		t.Errorf("it leads to %q", resp.Header.Get("Location"))
	}
	if resp, body := ask("gzip"); resp.StatusCode != 502 || resp.Header.Get(egress.CodeHeader) != "secret_failed" || !strings.Contains(body, "encoded") {
		t.Errorf("an answer that can't be searched: %s %q", resp.Status, body)
	}
	if r := l.recordOf(egress.CodeSecret); r.Verdict != egress.Failed {
		t.Errorf("the record is %+v", r)
	}
	for n := range l.recorded() {
		r := l.record(n)
		if strings.Contains(r.Path+r.Reason+r.Rule+r.Name, secret) {
			t.Errorf("recorded: %+v", r)
		}
	}
}

// TestLEAK08_WebSocket: nor in what a WebSocket says; what ends like the beginning
// of a secret is not waited for.
func TestLEAK08_WebSocket(t *testing.T) {
	l, ca := interceptingLab(t)
	d := l.open(l.session("allowed.test"))
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "wss://allowed.test/repeat?as=websocket", &websocket.DialOptions{
		HTTPClient: d.clientWith("http", &tls.Config{RootCAs: ca.pool}), HTTPHeader: http.Header{"X-Key": {"placeholder-s1"}}, CompressionMode: websocket.CompressionContextTakeover,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	_, got, err := c.Read(ctx)
	if want := "key " + strings.Repeat("*", len(secret)) + " ends in sk-"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// TestLEAK08_LaterAnswers: nor in an answer to a request that had no secret, on any
// port; a part of the answer can't be had.
func TestLEAK08_LaterAnswers(t *testing.T) {
	l, ca := interceptingLab(t)
	c := l.open(l.session("allowed.test")).clientWith("http", &tls.Config{RootCAs: ca.pool})
	ask := func(url, key string, header ...string) (*http.Response, string) {
		t.Helper()
		r, _ := http.NewRequest("GET", url, nil)
		if key != "" {
			r.Header.Set("X-Key", key)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp, string(body)
	}
	stars := strings.Repeat("*", len(secret))
	if _, body := ask("https://allowed.test/key", "placeholder-s1"); body != "GET "+stars {
		t.Fatalf("the first answer is %q", body)
	}
	for _, url := range []string{"https://allowed.test/last", "http://allowed.test/last"} {
		if _, body := ask(url, ""); body != stars {
			t.Errorf("%s: %q", url, body)
		}
	}
	for _, part := range []string{"bytes=0-13", "bytes=5-"} {
		if resp, body := ask("https://allowed.test/last", "", "Range", part); resp.StatusCode != 200 || body != stars {
			t.Errorf("%s: %s %q", part, resp.Status, body)
		}
	}
}

// TestLEAK08_Guesses: who has a server repeat what it guesses sees nothing of the
// secret's host any more; a new session begins anew.
func TestLEAK08_Guesses(t *testing.T) {
	l, ca := interceptingLab(t)
	l.web(evilAddr, 80, ok("elsewhere"))
	s := l.session("allowed.test", "evil.test")
	c := l.open(s).clientWith("http", &tls.Config{RootCAs: ca.pool})
	says := func(what string) (int, string) {
		resp, body := get(t, c, "https://allowed.test/says?what="+what)
		return resp.StatusCode, body
	}
	for n := 6; n < 9; n++ {
		if code, body := says(secret[:n] + "!"); code != 200 || body != secret[:n]+"!" {
			t.Errorf("%d bytes: %d %q", n, code, body)
		}
	}
	if code, _ := says(secret[:9] + "!"); code != 200 {
		t.Errorf("one length more: %d", code)
	}
	if code, body := says("hello"); code != 403 || !strings.Contains(body, "guess") {
		t.Errorf("then: %d %q", code, body)
	}
	if r := l.recordOf(egress.CodeSecret); r.Verdict != egress.Denied {
		t.Errorf("the record is %+v", r)
	}
	if _, body := get(t, c, "http://evil.test/"); !strings.HasPrefix(body, "elsewhere") {
		t.Errorf("another host: %q", body)
	}
	again := l.open(l.session("allowed.test")).clientWith("http", &tls.Config{RootCAs: ca.pool})
	if _, body := get(t, again, "https://allowed.test/says?what=hello"); body != "hello" {
		t.Errorf("another session: %q", body)
	}
}

// TestSecretOnceMore: a secret is hidden wherever it comes from, and one that can't
// be read is told, not left out.
func TestSecretOnceMore(t *testing.T) {
	l, ca := interceptingLab(t)
	d := l.open(l.session("allowed.test"))
	c := d.clientWith("http", &tls.Config{RootCAs: ca.pool})
	for key, want := range map[string]string{"other": "GET other", secret: "GET " + strings.Repeat("*", len(secret)), "broken": "Proxy error: secret X: broken"} {
		r, _ := http.NewRequest("GET", "https://allowed.test/key", nil)
		r.Header.Set("X-Key", key)
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != want || (key == "broken") != (resp.StatusCode == 502) {
			t.Errorf("with %q: %s %q, want %q", key, resp.Status, body, want)
		}
	}
}

// values are those of secrets for every host, which are put into no request.
type values []string

func (values) Wants(*egress.Session, policy.Target) bool { return true }

func (v values) Inject(*egress.Session, policy.Target, http.Header) ([]string, error) { return v, nil }

// TestMemoryOfAnswers: as many answers as a sandbox may have at once, each searched for
// as much as it may have secrets for a host, do not take a search each.
func TestMemoryOfAnswers(t *testing.T) {
	l, more := newLab(t), make(chan struct{})
	text := strings.Repeat("0123456789abcdef", vaultTogether/16)
	l.options.Secrets = values{text[:vaultTogether/2], "x" + text[:vaultTogether/2-1]}
	l.web(allowedAddr, 80, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begun")
		w.(http.Flusher).Flush()
		<-more
		_, _ = io.WriteString(w, text)
	}))
	d := l.open(l.session("allowed.test"))
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	bodies, peers := make([]io.Reader, egress.DefaultConns), make([]*peer, egress.DefaultConns)
	for i := range bodies {
		p := d.dial()
		peers[i] = p
		p.send("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(p.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, len("begun"))); err != nil {
			t.Fatal(err)
		}
		bodies[i] = resp.Body
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	grown := int64(during.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d MiB for %d answers, with both ends of the test", grown>>20, len(bodies))
	if grown > 96<<20 {
		t.Errorf("%d answers take %d bytes", len(bodies), grown)
	}
	close(more)
	for i, b := range bodies {
		_ = peers[i].SetDeadline(time.Now().Add(wait)) // to begin them all may have taken as long
		if got, err := io.ReadAll(b); err != nil || len(got) != len(text) || len(strings.Trim(string(got), "*")) > 3 {
			t.Fatalf("%.40q, %v", got, err)
		}
	}
}

// vaultTogether is vault.MaxTogether.
const vaultTogether = 8 << 10

// TestTooManySearches: what there is no memory to search for is not asked for.
func TestTooManySearches(t *testing.T) {
	l := newLab(t)
	l.options.Secrets = values{strings.Repeat("0123456789abcdef", 1<<20/16)}
	l.web(allowedAddr, 80, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is asked for") }))
	resp, body := get(t, l.open(l.session("allowed.test")).client("http"), "http://allowed.test/")
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || resp.Header.Get(egress.CodeHeader) != "secret_failed" || !strings.Contains(body, "sets of secrets") {
		t.Errorf("%s %v %q", resp.Status, resp.Header, body)
	}
	if r := l.record(0); r.Verdict != egress.Denied || r.Code != egress.CodeSecret {
		t.Errorf("the record is %+v", r)
	}
}
