package sandboxes_test

import (
	"strings"
	"testing"

	"agentbox/internal/auth"
	"agentbox/internal/server/rest/resttest"
)

// TestTEN01_Sandboxes asks each route of the door for another owner's sandbox, by each
// of its ids: it answers as for one that never was, and nothing happens. A route
// without a row fails, and a row without a route.
func TestTEN01_Sandboxes(t *testing.T) {
	w := start(t)
	sb := w.create(`{"project_name":"p"}`)
	routes := map[string]bool{}
	for _, route := range w.router.Routes() {
		routes[route.Pattern] = true
		row, ok := resttest.InProject[route.Pattern]
		if _, elsewhere := resttest.Projects[route.Pattern]; !ok && !elsewhere && resttest.Elsewhere[route.Pattern] == "" && route.Access != auth.Open {
			t.Errorf("%s has no row: say what guards it", route.Pattern)
		}
		if !ok {
			continue
		}
		method, _, _ := strings.Cut(route.Pattern, " ")
		for _, id := range []string{sb.SandboxID, sb.ContainerID, sb.ContainerID[:12], "sandbox-00000000"} {
			want := "Sandbox not found"
			if strings.HasSuffix(route.Pattern, "/execute") {
				want = "Sandbox " + id + " not found"
			}
			a := w.send(w.admin, method, row.Target(route.Pattern, id, "", ""), row.Body)
			if a.code != 404 || a.detail() != want || !strings.Contains(a.text, `"code":"not_found"`) {
				t.Errorf("%s of %.20s: %+v", route.Pattern, id, a)
			}
		}
	}
	for _, rows := range []map[string]resttest.Request{resttest.Projects, resttest.InProject} {
		for p := range rows {
			if !routes[p] {
				t.Errorf("%s has a row and is no route", p)
			}
		}
	}
	w.send(w.user, "POST", "/api/sandboxes/"+sb.SandboxID+"/stop", "")
	if a := w.send(w.admin, "POST", "/api/sandboxes/"+sb.SandboxID+"/cleanup?hours=0", ""); !strings.Contains(a.text, "Cleaned up 0 ") {
		t.Errorf("another's cleanup: %+v", a)
	}
	if a := w.send(w.admin, "GET", "/api/sandboxes?project_name=p", ""); a.text != "[]\n" {
		t.Errorf("another's list: %+v", a)
	}
	w.send(w.user, "POST", "/api/sandboxes/"+sb.SandboxID+"/start", "")
	if got := w.run(sb.SandboxID, "ls /workspace"); got != "" {
		t.Errorf("it has %q", got)
	}
	// The workspace that an owner kept is that owner's.
	w.send(w.user, "DELETE", "/api/sandboxes/"+sb.SandboxID+"?remove_volume=false", "")
	w.send(w.admin, "POST", "/api/sandboxes", `{"project_name":"p"}`)
	if got := w.kept(); len(got) != 1 {
		t.Errorf("kept is %v", got)
	}
	holders, err := w.volumes.Holders(t.Context(), "acme", w.kept()[0])
	if err != nil || len(holders) > 0 {
		t.Errorf("it is held by %v, %v", holders, err)
	}
}
