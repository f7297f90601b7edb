package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestLargeResult: a result is printed as long as the server keeps to what was
// asked for, and what has more is told.
func TestLargeResult(t *testing.T) {
	noServer(t)
	const n = 65 << 20 // binary output of 11 MiB is as long
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"exit_code":0,"stdout":"`)
		chunk := strings.Repeat("x", 1<<20)
		for range n >> 20 {
			_, _ = io.WriteString(w, chunk)
		}
		fmt.Fprint(w, `"}`)
	})
	t.Setenv(urlVariable, s.URL)
	if got := call(t, "", "exec", "--json", "--max-output", "20m", "dev", "--", "x"); got.code != 0 || len(got.stdout) < n {
		t.Errorf("exit status %d, %d bytes, %q", got.code, len(got.stdout), got.stderr)
	}
	wantIn(t, call(t, "", "exec", "--json", "--max-output", "1m", "dev", "--", "x").stderr, "it has more than 26214400 bytes, which is the most that is read")
	wantIn(t, call(t, "", "get", "dev").stderr, "it has more than 67108864 bytes")
}
