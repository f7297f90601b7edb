package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/server/rest/resttest"
	"agentbox/internal/server/rpc/rpctest"
)

// rpcRoutes are the rpcs as routes, as pages and curl ask for them.
func rpcRoutes(id string) map[string]resttest.Request {
	all := map[string]resttest.Request{}
	for _, m := range rpctest.Methods() {
		all["POST "+rpctest.Procedure(m)] = resttest.Request{Type: "application/json", Body: rpctest.JSON(m, id)}
	}
	return all
}

// everyRoute are all routes of a daemon that its port has, with a request for each, in
// the sandbox dev.
func everyRoute(d *Daemon) map[string]resttest.Request {
	all := rpcRoutes("dev")
	maps.Copy(all, map[string]resttest.Request{"GET /metrics": {}, "GET /docs": {}, "GET /openapi.json": {}})
	for _, pattern := range d.Routes() {
		row, ok := resttest.Of(pattern)
		if !ok {
			row, ok = resttest.Projects[pattern]
		}
		if !ok {
			row = resttest.Request{Type: "application/json", Body: "{}"}
		}
		all[pattern] = row
	}
	return all
}

// TestTEN08: no route but those of the daemon's health answers without a good key,
// and those of admins need an admin's.
func TestTEN08(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--rate-limit-refused", "0")
	acme := d.Tenant("acme")
	sb := acme.Create(`{"name":"dev"}`)
	revoked := d.Tenant("acme")
	var keys struct{ Items []struct{ ID string } }
	if d.Do(d.Key, "GET", "/keys", "", &keys); len(keys.Items) != 3 || d.Do(d.Key, "DELETE", "/keys/"+keys.Items[2].ID, "", nil) != 204 {
		t.Fatalf("the keys are %+v", keys)
	}
	nobody := &Client{t: t, d: d}
	good := acme.Key
	ways := map[string][]string{
		"no key": {}, "wrong key": {"Authorization", "Bearer abx_" + strings.Repeat("0", 40)}, "revoked key": {"X-API-Key", revoked.Key}, "basic": {"Authorization", "Basic " + good},
		"cookie": {"Cookie", "X-API-Key=" + good + "; Authorization=Bearer " + good}, "other header": {"X-Auth-Token", good}, "from here": {"X-Forwarded-For", "127.0.0.1"},
		"part of the key": {"X-API-Key", good[:len(good)-1]}, "upper case": {"X-API-Key", strings.ToUpper(good)}, "protocol": {"Sec-WebSocket-Protocol", "bearer." + good},
	}
	n := 0
	for pattern, row := range everyRoute(d) {
		method, _, _ := strings.Cut(pattern, " ")
		target := row.Target(pattern, sb.ID, "x", "x")
		sep := "?"
		if strings.Contains(target, "?") {
			sep = "&"
		}
		inQuery := target + sep + "api_key=" + good + "&access_token=" + good + "&X-API-Key=" + good
		for name, headers := range ways {
			for _, to := range []string{target, inQuery} {
				n++
				all := headers
				for k, v := range row.Header() {
					all = append(slices.Clone(all), k, v[0])
				}
				a := nobody.Send(method, to, row.Body, all...)
				if a.Code != http.StatusUnauthorized || method != http.MethodHead && a.Problem().Code != "unauthenticated" || strings.Contains(a.Text, good[4:]) {
					t.Errorf("%s with %s: %v", pattern, name, a)
				}
			}
		}
	}
	t.Logf("%d requests without a good key", n)
	if got := acme.Sandboxes(); !slices.Equal(got, []string{sb.ID}) {
		t.Errorf("the sandboxes are %v", got)
	}
	for _, path := range []string{"/health", "/readiness"} {
		if a := nobody.Send("GET", path, ""); a.Code != 200 || strings.Contains(a.Text, "/") {
			t.Errorf("%s: %v", path, a)
		}
	}
	for _, path := range []string{"/", "/nothing", "/debug/pprof/", "/api", "/api/v1", "/api/v2/sandboxes", "/favicon.ico", "/.git/config"} {
		if a := nobody.Send("GET", path, ""); a.Code != 401 {
			t.Errorf("%s: %v", path, a)
		}
		if a := acme.Send("GET", path, ""); a.Code != 404 {
			t.Errorf("%s with a key: %v", path, a)
		}
	}
	for pattern, guard := range resttest.Elsewhere {
		if method, _, _ := strings.Cut(pattern, " "); guard == "admins" {
			if a := acme.Send(method, (resttest.Request{}).Target(pattern, keys.Items[0].ID, "", ""), "{}"); a.Code != 403 || a.Problem().Code != "forbidden" {
				t.Errorf("%s without an admin's key: %v", pattern, a)
			}
		}
	}
	for _, listen := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		out := Run(t, DataDir(t), "", "serve", "--no-auth", "--listen", listen, "--sandbox-image", Image)
		if out.Code == 0 || !strings.Contains(out.Stderr, "without authentication") && !strings.Contains(out.Stderr, "no_auth") {
			t.Errorf("%s without keys: %+v", listen, out)
		}
	}
}

// TestTEN09: what is in another owner's sandbox is not found below one's own, and
// what bears its name there is one's own.
func TestTEN09(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	acme, zeta := d.Tenant("acme"), d.Tenant("zeta")
	acme.Create(`{"name":"dev"}`)
	zeta.Create(`{"name":"dev"}`)
	exec := acme.Background("dev", "echo theirs; read x; sleep infinity")
	acme.Send("POST", api+"/sandboxes/dev/sessions", `{"name":"work"}`)
	acme.Send("POST", api+"/sandboxes/dev/execute", `{"command":"X=theirs","session":"work"}`)
	acme.Write("dev", "f", "theirs")
	for pattern, row := range map[string]resttest.Request{
		"GET /execs/{exec}": {}, "GET /execs/{exec}/output": {}, "POST /execs/{exec}/wait": {Query: "timeout=1"}, "POST /execs/{exec}/stdin": {Query: "eof=1"},
		"POST /execs/{exec}/signal": resttest.InSandbox["POST /execs/{exec}/signal"], "POST /execs/{exec}/resize": resttest.InSandbox["POST /execs/{exec}/resize"],
		"GET /terminal": {Query: "exec_id=" + exec, Upgrade: true}, "DELETE /sessions/{name}": {}, "GET /files": {Query: "path=f"},
		"POST /execute": {Type: "application/json", Body: `{"command":"echo $X","session":"work"}`},
	} {
		pattern = strings.Replace(pattern, " ", " "+resttest.Prefix, 1)
		if a := zeta.ask(pattern, row, "dev", exec, "work"); a.Code != 404 || strings.Contains(a.Text, "theirs") {
			t.Errorf("%s: %v", pattern, a)
		}
	}
	if a := zeta.Send("GET", api+"/sandboxes/dev/execs?cursor="+exec, ""); !a.Refused() {
		t.Errorf("another's command as a cursor: %v", a)
	}
	// A volume is its owner's, to look at, to fill, to mount and to remove.
	acme.Send("POST", api+"/volumes", `{"name":"data","size":"32m"}`)
	for call, body := range map[string]string{"GET /volumes/data": "", "DELETE /volumes/data": "", "GET /volumes/data/archive": "", "PUT /volumes/data/archive": strings.Repeat("\x00", 1024)} {
		method, path, _ := strings.Cut(call, " ")
		theirs := zeta.Send(method, api+path, body, "Content-Type", "application/x-tar")
		none := zeta.Send(method, api+strings.Replace(path, "data", "none", 1), body, "Content-Type", "application/x-tar")
		if theirs.Code != 404 || sameForAll(theirs) != sameForAll(none) {
			t.Errorf("%s: %v, and of none %v", call, theirs, none)
		}
	}
	for _, name := range []string{"data", "none"} {
		if a := zeta.Send("POST", api+"/sandboxes", `{"volumes":[{"name":"`+name+`","path":"/v"}]}`); !a.Refused() || a.Problem().Field != "volumes" && a.Problem().Field != "name" {
			t.Errorf("a sandbox with the volume %s: %v", name, a)
		}
	}
	if a := zeta.Send("GET", api+"/volumes?cursor=a", ""); !strings.Contains(a.Text, `"items":[]`) {
		t.Errorf("the volumes: %v", a)
	}
	if a := zeta.Send("POST", api+"/volumes", `{"name":"data","size":"32m"}`); a.Code != 201 {
		t.Errorf("a volume of that name: %v", a)
	}
	// A key of idempotency is its owner's.
	once := []string{"Idempotency-Key", "once", "Content-Type", "application/json"}
	first, again, other := acme.Send("POST", api+"/sandboxes", "{}", once...), acme.Send("POST", api+"/sandboxes", "{}", once...), zeta.Send("POST", api+"/sandboxes", "{}", once...)
	if id := idOf(t, first); idOf(t, again) != id || idOf(t, other) == id {
		t.Errorf("with one key of idempotency: %v, again %v, of another owner %v", first, again, other)
	}
	if a := zeta.Send("POST", api+"/sandboxes", `{"labels":{"a":"1"}}`, once...); a.Code != 409 || strings.Contains(a.Text, idOf(t, first)) {
		t.Errorf("with another body: %v", a)
	}
	// Keys, also of one's own owner, are admins'.
	for _, method := range []string{"GET", "POST", "DELETE"} {
		path := api + "/keys"
		if method == "DELETE" {
			path += "/" + url.PathEscape("key_1")
		}
		if a := zeta.Send(method, path, `{}`); a.Code != 403 {
			t.Errorf("%s %s: %v", method, path, a)
		}
	}
	// The control: it is all there for its owner.
	if a := acme.Send("GET", api+"/sandboxes/dev/execs/"+exec, ""); !strings.Contains(a.Text, `"running"`) {
		t.Errorf("the command of its owner: %v", a)
	}
	if a := acme.Send("POST", api+"/sandboxes/dev/execute", `{"command":"echo $X","session":"work"}`); !strings.Contains(a.Text, "theirs") {
		t.Errorf("the session of its owner: %v", a)
	}
}

// idOf is the id of the sandbox that an answer describes.
func idOf(t *testing.T, a Answer) string {
	t.Helper()
	var sb served
	if err := json.Unmarshal([]byte(a.Text), &sb); err != nil || sb.ID == "" {
		t.Fatalf("no id: %v", a)
	}
	return sb.ID
}
