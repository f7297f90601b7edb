package rest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentbox/internal/auth"
	"agentbox/internal/server"
	"agentbox/internal/server/rest"
	"agentbox/internal/server/rest/resttest"
)

func (w *world) ask(key, pattern, target string, req resttest.Request) (*http.Response, string) {
	w.t.Helper()
	method, _, _ := strings.Cut(pattern, " ")
	r, err := http.NewRequest(method, w.url+target, strings.NewReader(req.Body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header = req.Header()
	r.Header.Set("X-API-Key", key)
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
// for one that never was, and nothing happens. A route without a row fails, and a
// row without a route.
func TestTEN01EveryRoute(t *testing.T) {
	w := start(t)
	sb := w.create(w.user, `{}`)
	resp, text := w.do(w.user, "POST", "/api/v1/sandboxes/"+sb.ID+"/execute", "application/json", `{"command":"echo x >f; sleep infinity","detach":true}`)
	exec := read[rest.ExecResult](t, text).ExecID
	if resp.StatusCode != 202 || exec == "" {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	routes := map[string]bool{}
	for _, route := range w.router.Routes() {
		routes[route.Pattern] = true
		row, ok := resttest.Of(route.Pattern)
		guard, elsewhere := resttest.Elsewhere[route.Pattern]
		if ok == elsewhere {
			t.Errorf("%s has no row, or two: say what guards it", route.Pattern)
		}
		if !ok {
			if guard == "admins" && route.Access != auth.NeedAdmin || guard == "open" && route.Access != auth.Open || guard == "local" && !route.Local {
				t.Errorf("%s is not guarded as %s", route.Pattern, guard)
			}
			continue
		}
		want := "404 not_found Sandbox not found"
		if strings.HasPrefix(route.Pattern, http.MethodHead) {
			want = "404"
		}
		for _, id := range []string{sb.ID, sb.ShortID, strings.Repeat("0", 64)} {
			resp, text := w.ask(w.admin, route.Pattern, row.Target(route.Pattern, id, exec, "s"), row)
			got := fmt.Sprint(resp.StatusCode)
			var p server.Problem
			if json.Unmarshal([]byte(text), &p) == nil {
				got += " " + string(p.Code) + " " + p.Detail
			}
			if id == sb.ID && row.AnyOwner {
				// It is there for admins of all owners; what they decide on is not.
				if got != `404 not_found there is no undecided request "1"` {
					t.Errorf("%s of another owner's sandbox, for an admin: %s", route.Pattern, got)
				}
			} else if got != want {
				t.Errorf("%s of %.12s: %s", route.Pattern, id, got)
			}
		}
	}
	for rest := range resttest.InSandbox {
		if p := strings.Replace(rest, " ", " "+resttest.Prefix, 1); !routes[p] {
			t.Errorf("%s has a row and is no route", p)
		}
	}
	for p := range resttest.Elsewhere {
		if !routes[p] {
			t.Errorf("%s has a row and is no route", p)
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
