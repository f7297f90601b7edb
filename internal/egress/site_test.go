package egress_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// site is what the allowed server has.
func site(t testing.TB) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s %s", r.Proto, r.Host) })
	m.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, _ := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %s", n, h.Sum(nil), r.Trailer.Get("X-End"))
	})
	m.HandleFunc("/range", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader("0123456789"))
	})
	m.HandleFunc("/big", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		if r.URL.Query().Has("sized") {
			w.Header().Set("Content-Length", fmt.Sprint(n))
		}
		_, _ = io.CopyN(w, rand.NewChaCha8([32]byte{}), n)
	})
	m.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("X-Sum", "42")
	})
	m.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.Header()["Location"] = []string{r.URL.Query().Get("at")}
		w.WriteHeader(status)
	})
	m.HandleFunc("/gone", func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	})
	m.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "page")
	})
	m.HandleFunc("/gzip", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.WriteString(z, "packed for "+r.Header.Get("Accept-Encoding"))
		z.Close()
	})
	m.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusExpectationFailed) })
	m.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		kind, b, err := c.Read(r.Context())
		for ; err == nil; kind, b, err = c.Read(r.Context()) {
			if err := c.Write(r.Context(), kind, append([]byte("re: "), b...)); err != nil {
				return
			}
		}
	})
	m.HandleFunc("/duplex", func(w http.ResponseWriter, r *http.Request) {
		// The answer begins before the request has ended.
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.WriteHeader(200)
		_ = rc.Flush()
		b := make([]byte, 100)
		n, err := r.Body.Read(b)
		for ; n > 0 || err == nil; n, err = r.Body.Read(b) {
			_, _ = w.Write(bytes.ToUpper(b[:n]))
			_ = rc.Flush()
		}
	})
	m.HandleFunc("/simple/{name}/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="../../big?n=1000&sized#sha256=x">%s-1.0.whl</a>`, r.PathValue("name"))
	})
	return m
}

func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func sumOf(r io.Reader) string {
	h := sha256.New()
	n, _ := io.Copy(h, r)
	return fmt.Sprintf("%d %x", n, h.Sum(nil))
}

func random(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{}), n) }
