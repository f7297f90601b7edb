package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestLostExec: a command of which nobody knows how it ended is not one that
// succeeded, and why is told.
func TestLostExec(t *testing.T) {
	noServer(t)
	const lost = `{"exec_id":"e1","state":"ended","command":["true"],"user":"x","started_at":"2026-01-31T12:00:00Z",` +
		`"result":{"exec_id":"e1","exit_code":null,"reason":"the sandbox has no user \"x\""}}`
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/execs"):
			fmt.Fprintf(w, `{"items":[%s],"next_cursor":null}`, lost)
		case strings.HasSuffix(r.URL.Path, "/e1"):
			fmt.Fprint(w, lost)
		}
	})
	t.Setenv(urlVariable, s.URL)
	wantIn(t, call(t, "", "execs", "dev").stdout, "ended   unknown   x")
	got := call(t, "", "logs", "dev", "e1")
	if got.code != 0 || got.stdout != "" {
		t.Errorf("logs: %+v", got)
	}
	wantIn(t, got.stderr, `how the command ended is not known: the sandbox has no user "x"`)
}
