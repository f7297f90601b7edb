package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestEgressLog: the reason comes before the request, and who was refused an address
// that is not public is told who opens it.
func TestEgressLog(t *testing.T) {
	noServer(t)
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/v1/sandboxes/blocked/") {
			fmt.Fprint(w, `{"items":[{"time":"2026-01-31T12:00:00Z","host":"a.example","port":80,"verdict":"denied","code":"address_not_allowed",`+
				`"reason":"blocked address: that of a.example is not public (private)","method":"GET","path":"/x"}],"next_cursor":null}`)
			return
		}
		fmt.Fprint(w, `{"items":[{"time":"2026-01-31T12:00:00Z","host":"a.example","port":443,"verdict":"allowed","rule":"a.example"}],"next_cursor":null}`)
	})
	t.Setenv(urlVariable, s.URL)
	got := call(t, "", "egress", "log", "blocked")
	wantIn(t, got.stdout, "that of a.example is not public (private); GET /x\n")
	wantIn(t, got.stderr, "agentbox serve --egress-allow-ranges (egress.allow_ranges)\n")
	for _, args := range []string{"egress log open", "egress log blocked --json"} {
		if got := call(t, "", strings.Fields(args)...); got.code != 0 || got.stderr != "" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestCompletedWords: flags and arguments that take certain words offer those, and no files.
func TestCompletedWords(t *testing.T) {
	noServer(t)
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/images":
			fmt.Fprint(w, `{"items":[{"name":"default"},{"name":"bad\u001bname"}],"next_cursor":null}`)
		case "/api/v1/sandboxes/dev/network":
			fmt.Fprint(w, `{"mode":"allowlist","allow":["python","a.example"],"requests":[{"id":"r0123456789abcdef","host":"b.example","port":443}]}`)
		default:
			fmt.Fprint(w, `{"items":[],"next_cursor":null}`)
		}
	})
	t.Setenv(urlVariable, s.URL)
	const request = "r0123456789abcdef\tb.example\n"
	for args, want := range map[string]string{
		"create --network ": "none\nallowlist\nfull\n:4\n", "run --network ": "none\nallowlist\nfull\n:4\n", "egress policy dev --mode ": "none\nallowlist\nfull\n:4\n",
		"create --on-idle ": "destroy\nstop\n:4\n", "run --pull ": "missing\nalways\nnever\n:4\n", "install --with ": "pip\nnpm\napt\n:4\n",
		"run --allow ": ":4\n", "create --allow ": ":4\n", "ls --profile ": "local\n:4\n", "create ": "default\n:4\n", "create default ": ":4\n",
		"egress allow dev ": request + ":4\n", "egress deny dev ": request + "python\na.example\n:4\n",
	} {
		if got := call(t, "", append([]string{"__complete"}, strings.Split(args, " ")...)...); got.stdout != want {
			t.Errorf("%s: %q, want %q", args, got.stdout, want)
		}
	}
}
