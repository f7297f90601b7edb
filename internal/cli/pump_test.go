package cli

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestInput: input that a server does not take is never lost in silence, unless
// the command takes no more.
func TestInput(t *testing.T) {
	for _, c := range []struct {
		name   string
		refuse func(n int, w http.ResponseWriter) bool
		taken  string
		code   int
		says   string
	}{
		{"taken", func(int, http.ResponseWriter) bool { return false }, "hi", 0, ""},
		{"too many requests", func(n int, w http.ResponseWriter) bool {
			if n == 0 {
				w.Header().Set("Retry-After", "1")
				refuse(w, 429, "rate_limited", "too many requests")
			}
			return n == 0
		}, "hi", 0, ""},
		{"too many requests for long", func(_ int, w http.ResponseWriter) bool {
			w.Header().Set("Retry-After", "3600")
			refuse(w, 429, "rate_limited", "too many requests")
			return true
		}, "", ExitFailure, "did not get all of its input, and may go on without it: too many requests"},
		{"a limit", always(429, "limit_exceeded"), "", ExitFailure, "did not get all of its input"},
		{"a revoked key", always(401, "unauthenticated"), "", ExitFailure, "did not get all of its input"},
		{"a broken server", always(500, "internal"), "", ExitFailure, "did not get all of its input"},
		{"no server of ours", always(502, ""), "", ExitFailure, "did not get all of its input"},
		{"a command that ended", always(409, "conflict"), "", 0, ""},
		{"a command that is forgotten", always(404, "not_found"), "", 0, ""},
		{"a sandbox that stopped", always(409, "not_running"), "", 0, ""},
		{"a sandbox that is gone", always(404, "sandbox_destroyed"), "", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			noServer(t)
			over := make(chan struct{})
			var once sync.Once
			var mu sync.Mutex // guards taken and inputs
			var taken string
			inputs := 0
			s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/execute/stream") {
					sends(w, started)
					select {
					case <-over:
						sends(w, exited)
					case <-time.After(20 * time.Second): // the input was lost in silence
						sends(w, exited)
					case <-r.Context().Done():
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				inputs++
				if !c.refuse(inputs-1, w) {
					in, _ := io.ReadAll(r.Body)
					taken += string(in)
					w.WriteHeader(http.StatusNoContent)
				} else if c.code != 0 || c.taken != "" {
					return
				}
				once.Do(func() { close(over) })
			})
			t.Setenv(urlVariable, s.URL)
			got := call(t, "hi", "exec", "-i", "dev", "--", "cat")
			mu.Lock()
			defer mu.Unlock()
			if got.code != c.code || taken != c.taken || c.says == "" && got.stderr != "" {
				t.Errorf("%+v, the command got %q", got, taken)
			}
			wantIn(t, got.stderr, c.says)
		})
	}
}

func always(status int, code string) func(int, http.ResponseWriter) bool {
	return func(_ int, w http.ResponseWriter) bool {
		refuse(w, status, code, "no")
		return true
	}
}

// What was typed before a pause is sent again, too, when the server did not take it.
func TestTypedInputIsSentAgain(t *testing.T) {
	got := make(chan string, 10)
	s := answering(t, func(n int, w http.ResponseWriter, r *http.Request) {
		in, _ := io.ReadAll(r.Body)
		if n == 0 {
			refuse(w, 429, "rate_limited", "too many")
			return
		}
		w.WriteHeader(http.StatusNoContent)
		got <- string(in) + r.URL.RawQuery
	})
	in, typed := io.Pipe()
	p := &pump{r: toServer(t, s), path: "/stdin", in: in, fail: func(err error) { t.Errorf("it failed: %v", err) }}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.run(t.Context()) })
	_, _ = io.WriteString(typed, "one")
	if first := <-got; first != "one" {
		t.Errorf("the command got %q", first)
	}
	_ = typed.Close()
	if last := <-got; last != "eof=1" {
		t.Errorf("then it got %q", last)
	}
}
