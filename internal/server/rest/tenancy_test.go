package rest_test

import (
	"strings"
	"testing"

	"agentbox/internal/server/rest"
)

// Routes that are not about one owner's sandbox, and what guards them.
var ownerless = map[string]string{
	"GET /version": "nobody's", "GET /images": "shared", "GET /images/{ref...}": "shared",
	"DELETE /images/{ref...}": "admins", "POST /images/pull": "admins", "GET /keys": "admins", "POST /keys": "admins", "DELETE /keys/{id}": "admins",
	"GET /sandboxes": "TestTEN01Sandboxes", "POST /sandboxes": "TestTEN01Sandboxes", "GET /audit": "TestAudit",
	"GET /secrets": "absent", "POST /secrets": "absent", "DELETE /secrets/{name}": "absent", "GET /volumes": "absent", "POST /volumes": "absent",
	"GET /volumes/{name}": "absent", "DELETE /volumes/{name}": "absent", "GET /volumes/{name}/archive": "absent", "PUT /volumes/{name}/archive": "absent",
}

// TestTEN01NoOtherRoutes: what is not about a sandbox, which TestForeignSandboxes
// asks for, says here what guards it.
func TestTEN01NoOtherRoutes(t *testing.T) {
	for _, route := range start(t).router.Routes() {
		method, path, _ := strings.Cut(route.Pattern, " ")
		path, ours := strings.CutPrefix(path, rest.Prefix)
		if ours && !strings.HasPrefix(path, "/sandboxes/{id}") && ownerless[method+" "+path] == "" {
			t.Errorf("%s has no row: say what guards it", route.Pattern)
		}
	}
}
