package rest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/server"
	"agentbox/internal/server/rest"
)

const volumesTest = "TestTEN09Volumes"

// Routes that are not about one owner's sandbox, and what guards them.
var ownerless = map[string]string{
	"GET /version": "nobody's", "GET /images": "shared", "GET /images/{ref...}": "shared",
	"DELETE /images/{ref...}": "admins", "POST /images/pull": "admins", "GET /keys": "admins", "POST /keys": "admins", "DELETE /keys/{id}": "admins",
	"GET /sandboxes": "TestTEN01Sandboxes", "POST /sandboxes": "TestTEN01Sandboxes", "GET /audit": "TestAudit",
	"GET /secrets": "absent", "POST /secrets": "absent", "DELETE /secrets/{name}": "absent", "GET /volumes": volumesTest, "POST /volumes": volumesTest,
	"GET /volumes/{name}": volumesTest, "DELETE /volumes/{name}": volumesTest, "GET /volumes/{name}/archive": volumesTest, "PUT /volumes/{name}/archive": volumesTest,
}

// inSandbox has a request for each route about a sandbox: the query, and the body
// with its type. It is one that could be done, so that nothing else refuses it.
var inSandbox = map[string][3]string{
	"GET ": {}, "PATCH ": {"", "application/json", `{"labels":{"a":"taken"}}`}, "DELETE ": {}, "POST /start": {}, "POST /stop": {},
	"GET /stats": {}, "GET /isolation": {}, "GET /events": {}, "GET /network": {}, "PUT /network": {}, "GET /network/log": {},
	"POST /network/requests/{request}": {}, "POST /packages/pip": {},
	"POST /execute":        {"", "application/json", `{"command":"echo taken >taken"}`},
	"POST /execute/stream": {"", "application/json", `{"command":"echo taken >taken"}`},
	"GET /execs":           {}, "GET /execs/{exec}": {}, "GET /execs/{exec}/output": {}, "POST /execs/{exec}/wait": {"timeout=1"},
	"POST /execs/{exec}/resize": {"", "application/json", `{"cols":80,"rows":24}`},
	"POST /execs/{exec}/signal": {"", "application/json", `{"signal":"KILL"}`},
	"POST /execs/{exec}/stdin":  {"", "application/octet-stream", "taken\n"},
	"GET /terminal":             {"", webSocket}, "GET /ports": {}, "GET /ports/{port}/connect": {"", webSocket},
	"GET /files": {"path=f"}, "HEAD /files": {"path=f"}, "DELETE /files": {"path=f"}, "PUT /files": {"path=taken", "application/octet-stream", "taken"},
	"GET /files/stat": {"path=f"}, "GET /files/list": {}, "GET /files/watch": {}, "GET /files/glob": {"pattern=*"}, "GET /files/search": {"pattern=x"},
	"GET /files/archive": {}, "PUT /files/archive": {"", "application/x-tar", strings.Repeat("\x00", 1024)}, "GET /files/download": {"path=f"},
	"POST /files/mkdir":   {"", "application/json", `{"path":"taken"}`},
	"POST /files/move":    {"", "application/json", `{"from":"f","to":"taken"}`},
	"POST /files/copy":    {"", "application/json", `{"from":"f","to":"taken"}`},
	"POST /files/chmod":   {"", "application/json", `{"path":"f","mode":"0777"}`},
	"POST /files/chown":   {"", "application/json", `{"path":"f","owner":"0:0"}`},
	"POST /files/symlink": {"", "application/json", `{"target":"f","path":"taken"}`},
	"GET /sessions":       {}, "POST /sessions": {"", "application/json", `{"name":"taken"}`}, "DELETE /sessions/{name}": {},
	"POST /files/upload": {"", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"taken\"\r\n\r\ntaken\r\n--b--\r\n"},
}

// webSocket stands in the place of a content type for a request to upgrade.
const webSocket = "upgrade"

func (w *world) ask(key, method, url, contentType, body string) (*http.Response, string) {
	if contentType != webSocket {
		return w.do(key, method, url, contentType, body)
	}
	r, err := http.NewRequest(method, w.url+url, http.NoBody)
	if err != nil {
		w.t.Fatal(err)
	}
	for k, v := range map[string]string{"X-API-Key": key, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
		r.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, "it is open"
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// TestTEN01EveryRoute asks each route for another owner's sandbox: it answers as
// for one that never was, and nothing happens. A route without a row fails.
func TestTEN01EveryRoute(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{}`)
	resp, text := w.do(w.user, "POST", "/api/v1/sandboxes/"+sb.ID+"/execute", "application/json", `{"command":"echo x >f; sleep infinity","detach":true}`)
	exec := read[rest.ExecResult](t, text).ExecID
	if resp.StatusCode != 202 || exec == "" {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	for _, route := range w.router.Routes() {
		method, path, _ := strings.Cut(route.Pattern, " ")
		path, ours := strings.CutPrefix(path, rest.Prefix)
		if !ours || ownerless[method+" "+path] != "" {
			continue
		}
		rest, about := strings.CutPrefix(path, "/sandboxes/{id}")
		row, ok := inSandbox[method+" "+rest]
		if !about || !ok {
			t.Errorf("%s has no row: say what guards it", route.Pattern)
			continue
		}
		ask := func(id string) string {
			url := "/api/v1/sandboxes/" + id + strings.NewReplacer("{exec}", exec, "{port}", "80", "{request}", "1", "{name}", "s").Replace(rest) + "?" + row[0]
			resp, text := w.ask(w.admin, method, url, row[1], row[2])
			if method == http.MethodHead {
				return fmt.Sprint(resp.StatusCode)
			}
			var p server.Problem
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				return text
			}
			return fmt.Sprintf("%d %s %s", resp.StatusCode, p.Code, p.Detail)
		}
		want := "404 not_found Sandbox not found"
		if method == http.MethodHead {
			want = "404"
		}
		for _, id := range []string{sb.ID, sb.ShortID, strings.Repeat("0", 64)} {
			if got := ask(id); got != want {
				t.Errorf("%s of %.12s: %s", route.Pattern, id, got)
			}
		}
	}
	_, text = w.do(w.user, "GET", "/api/v1/sandboxes/"+sb.ID, "", "")
	if got := read[rest.Sandbox](t, text); got.Status != "running" || len(got.Labels) > 0 {
		t.Errorf("it was changed: %s", text)
	}
	if _, text = w.do(w.user, "GET", "/api/v1/sandboxes/"+sb.ID+"/files/list", "", ""); strings.Contains(text, "taken") || !strings.Contains(text, `"f"`) {
		t.Errorf("its files were changed: %s", text)
	}
	if _, text = w.do(w.user, "GET", "/api/v1/sandboxes/"+sb.ID+"/execs/"+exec, "", ""); !strings.Contains(text, "running") {
		t.Errorf("its command was ended: %s", text)
	}
}
