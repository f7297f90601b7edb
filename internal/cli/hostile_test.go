package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// evil is what a terminal would act on.
const evil = "a\x1b]0;title\x07\x1b[31m\u009b31m\u202e"

// evilAnswer is an answer of any route: each of its texts is evil.
func evilAnswer(path string) map[string]any {
	v := map[string]any{"time": "2026-01-31T12:00:00Z", "created_at": "2026-01-31T12:00:00Z", "started_at": "2026-01-31T12:00:00Z", "mtime": "2026-01-31T12:00:00Z"}
	for _, name := range strings.Fields(`id short_id name status image exec_id state user type reason detail action owner key_id sandbox result key
		kind path target group text process address file event outcome error code source digest`) {
		v[name] = evil
	}
	v["command"], v["used_by"], v["before"], v["after"] = []string{evil}, []string{evil}, []string{evil}, []string{evil}
	v["details"] = map[string]string{evil: evil}
	switch {
	case strings.Contains(path, "/execs"):
		v["result"] = nil
	case strings.HasSuffix(path, "/execute"):
		v["exit_code"], v["output"], v["stdout"] = 0, evil, evil
	}
	return v
}

// evilServer says evil in every field, and in headers.
func evilServer(t *testing.T) string {
	return answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		item := evilAnswer(r.URL.Path)
		switch {
		case strings.HasSuffix(r.URL.Path, "/terminal"):
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer ws.CloseNow()
			text, _ := json.Marshal(map[string]string{"type": "error", "code": "unavailable", "detail": evil})
			if r.URL.Query().Get("offset") == "1" {
				text, _ = json.Marshal(map[string]any{"type": "exit", "exit_code": 137, "oom_killed": true, "reason": evil})
			} else {
				_ = ws.Write(r.Context(), websocket.MessageBinary, []byte("o"))
			}
			_ = ws.Write(r.Context(), websocket.MessageText, text)
			_, _, _ = ws.Read(r.Context()) // until the client is gone
		case strings.HasSuffix(r.URL.Path, "/execute/stream"):
			text, _ := json.Marshal(map[string]string{"code": "unavailable", "detail": evil})
			sends(w, started, [3]string{"", "error", string(text)})
		case strings.HasSuffix(r.URL.Path, "/output"):
			text, _ := json.Marshal(map[string]any{"exit_code": 137, "oom_killed": true, "reason": evil})
			sends(w, [3]string{"", "exit", string(text)})
		case r.URL.Query().Get("follow") != "":
			text, _ := json.Marshal(item)
			gone, _ := json.Marshal(map[string]string{"time": "2026-01-31T12:00:00Z", "status": "destroyed", "reason": evil})
			sends(w, [3]string{"", "event", string(text)}, [3]string{"", "event", string(gone)})
		case strings.HasSuffix(r.URL.Path, "/archive"):
			w.Header().Set("X-Skipped", "3\u009b31m\u202e") // no header has other control characters
			if r.Method == http.MethodGet {
				w.Header().Set("Trailer", "X-Skipped")
			}
			_, _ = w.Write([]byte("tar"))
		case strings.HasSuffix(r.URL.Path, "/stop"):
			refuse(w, 409, evil, evil)
		default:
			item["items"], item["next_cursor"] = []any{evilAnswer(r.URL.Path)}, nil
			_ = json.NewEncoder(w).Encode(item)
		}
	}).URL
}

// TestAnswersAreVisible: nothing that a server says acts on the terminal, whichever
// command prints it.
func TestAnswersAreVisible(t *testing.T) {
	noServer(t)
	t.Setenv(urlVariable, evilServer(t))
	for _, line := range []string{
		"create", "create --json", "ls", "ls -q", "ls --json", "get dev", "stop dev",
		"exec dev -- x", "exec -t dev -- x", "exec --detach dev -- x", "exec --json dev -- x",
		"execs dev", "execs -q dev",
		"files ls dev", "files stat dev f", "files find dev x", "files grep dev x",
		"ports dev", "events dev", "events -f dev", "events -f --json dev", "audit", "audit --json", "sessions ls dev",
		"key create", "key create --json", "key ls", "key ls -q",
		"volume create v --json", "volume ls", "volume inspect v", "volume backup v", "volume restore v -",
		"secret ls", "secret ls -q",
		"__complete get x", "__complete logs dev x", "__complete files cat dev x", "__complete cp x", "__complete secret rm x",
	} {
		got := call(t, "", strings.Fields(line)...)
		if text := got.stdout + got.stderr; strings.ContainsFunc(strings.ReplaceAll(text, "\t", ""), acts) {
			t.Errorf("agentbox %s prints %q", line, text)
		}
		if !strings.HasPrefix(line, "__complete") && !strings.Contains(got.stdout+got.stderr, `\u202e`) {
			t.Errorf("agentbox %s prints nothing of what the server says: %+v", line, got)
		}
	}
}
