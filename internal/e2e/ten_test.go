package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/server/rest/resttest"
)

// ask sends the request that a route could serve, with ids in it.
func (c *Client) ask(pattern string, r resttest.Request, id, exec, session string) Answer {
	c.t.Helper()
	method, _, _ := strings.Cut(pattern, " ")
	var headers []string
	for name, values := range r.Header() {
		headers = append(headers, name, values[0])
	}
	return c.Send(method, r.Target(pattern, id, exec, session), r.Body, headers...)
}

// sameForAll leaves out of an answer what differs between any two.
func sameForAll(a Answer) string {
	text := regexp.MustCompile(`"request_id":"[^"]*"`).ReplaceAllString(a.Text, "")
	h := a.Header.Clone()
	h.Del("X-Request-Id")
	h.Del("Date")
	h.Del("Content-Length") // as long as the id of the request
	return fmt.Sprint(a.Code, h, text)
}

// TestTEN01: each route of the document answers for another owner's sandbox as for
// none, whichever of its ids is used; nothing happens to it.
func TestTEN01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	acme, zeta := d.Tenant("acme"), d.Tenant("zeta")
	sb := acme.Create(`{"name":"dev"}`)
	exec := acme.Background("dev", "echo x >f; sleep infinity")
	acme.Send("POST", api+"/sandboxes/dev/sessions", `{"name":"own"}`)
	asked := 0
	for _, pattern := range d.Routes() {
		row, ok := resttest.Of(pattern)
		if !ok {
			continue
		}
		for _, other := range []*Client{zeta, d.Admin()} {
			none := sameForAll(other.ask(pattern, row, strings.Repeat("0", len(sb.ID)), exec, "own"))
			if !strings.HasPrefix(none, "404") && (other != zeta || !strings.HasPrefix(none, "403")) {
				t.Errorf("%s of no sandbox: %s", pattern, none)
			}
			for _, id := range []string{sb.ID, sb.ShortID, "dev"} {
				if other != zeta && row.AnyOwner && id == sb.ID {
					continue // it is there for admins
				}
				asked++
				got := strings.ReplaceAll(sameForAll(other.ask(pattern, row, id, exec, "own")), id, strings.Repeat("0", len(sb.ID))) // one door repeats it
				if got != none {
					t.Errorf("%s of %s: %s, and of none: %s", pattern, id, got, none)
				}
			}
		}
	}
	t.Logf("%d requests for what is another's", asked)
	for path, want := range map[string][2]string{
		"":               {`"status":"running"`, "taken"},
		"/files/list":    {`"f"`, "taken"},
		"/sessions":      {`"own"`, "taken"},
		"/execs/" + exec: {`"running"`, "taken"},
	} {
		if a := acme.Send("GET", api+"/sandboxes/dev"+path, ""); !strings.Contains(a.Text, want[0]) || strings.Contains(a.Text, want[1]) {
			t.Errorf("%s of the sandbox that nobody could reach: %v", path, a)
		}
	}
	// The control: its owner reaches it by the same requests.
	for _, pattern := range []string{"GET " + resttest.Prefix + "/execs/{exec}", "POST " + resttest.Prefix + "/sessions", "DELETE " + resttest.Prefix} {
		row, _ := resttest.Of(pattern)
		if a := acme.ask(pattern, row, "dev", exec, "own"); a.Code/100 != 2 {
			t.Errorf("%s by its owner: %v", pattern, a)
		}
	}
	if a := zeta.Send("GET", api+"/sandboxes/"+sb.ID, ""); a.Problem().Code != "not_found" {
		t.Errorf("that it is gone is its owner's to know: %v", a)
	}
}

// TestTEN01_Time tells in its log how long a refusal takes for what is somebody
// else's and for what is not there: the difference should tell nobody which it is.
// The two kinds are asked in turn, so that what else the machine does concerns both.
func TestTEN01_Time(t *testing.T) {
	d := StartDaemon(t)
	acme, zeta := d.Tenant("acme"), d.Tenant("zeta")
	sb := acme.Create(`{}`)
	const rounds = 300
	took := [2][]time.Duration{}
	for range rounds {
		for i, id := range []string{sb.ID, strings.Repeat("0", 64)} {
			began := time.Now()
			if a := zeta.Send("GET", api+"/sandboxes/"+id, ""); a.Code != http.StatusNotFound {
				t.Errorf("%.12s: %v", id, a)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	var p50 [2]time.Duration
	for i := range took {
		slices.Sort(took[i])
		p50[i] = took[i][rounds/2]
	}
	t.Logf("a refusal takes %v for another's sandbox and %v for none", p50[0], p50[1])
}

// TestTEN03: lists, with another owner's cursors, labels and whatever else could
// widen them, have the caller's own rows only.
func TestTEN03(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	acme, zeta := d.Tenant("acme"), d.Tenant("zeta")
	var theirs []string
	for i := range 3 {
		theirs = append(theirs, acme.Create(fmt.Sprintf(`{"name":"n%d","labels":{"team":"acme"}}`, i)).ID)
	}
	zeta.Create(`{"name":"n0","labels":{"team":"zeta"}}`)
	cursor := func(path string) string {
		t.Helper()
		var page struct {
			Next string `json:"next_cursor"`
		}
		if a := acme.Send("GET", api+path, ""); json.Unmarshal([]byte(a.Text), &page) != nil || page.Next == "" {
			t.Fatalf("%s has no next page: %v", path, a)
		}
		return page.Next
	}
	boxes, records := cursor("/sandboxes?limit=1"), cursor("/audit?limit=1")
	events := cursor("/sandboxes/n0/events?limit=1")
	foreign := func(a Answer) bool { // an error repeats what was sent
		return a.Code < 400 && (strings.Contains(a.Text, "acme") || slices.ContainsFunc(theirs, func(id string) bool { return strings.Contains(a.Text, id) }))
	}
	for _, query := range []string{
		"/sandboxes", "/sandboxes?limit=1000", "/sandboxes?cursor=" + boxes, "/sandboxes?label=team=acme", "/sandboxes?name=n1", "/sandboxes?status=running&label=team=acme",
		"/audit", "/audit?order=oldest", "/audit?cursor=" + records, "/audit?order=oldest&cursor=" + records, "/audit?cursor=1.0&order=oldest", "/audit?cursor=1.7&order=oldest", "/audit?cursor=1.99999999",
		"/audit?sandbox=" + theirs[0], "/audit?action=create", "/sandboxes/n0/events", "/sandboxes/n0/events?cursor=" + events, "/sandboxes/n0/events?cursor=0",
		"/sandboxes/n0/execs", "/sandboxes/n0/sessions",
	} {
		if a := zeta.Send("GET", api+query, ""); a.Code != 200 || foreign(a) {
			t.Errorf("%s: %v", query, a)
		}
		if a := zeta.Send("GET", api+query, "", "X-Owner", "acme", "X-Tenant", "acme", "X-Forwarded-User", "acme", "Cookie", "owner=acme"); a.Code != 200 || foreign(a) {
			t.Errorf("%s with headers: %v", query, a)
		}
	}
	for _, query := range []string{
		"tenant=acme", "owner=acme", "tenant_id=acme", "sort=owner", "order_by=owner", "all=1", "label=team", "cursor=x", "cursor=" + theirs[0],
		"status=running&owner=acme", "limit=1&limit=2000", "limit=1001", "name=n0&name=n1", "name=n0&%zz=1",
	} {
		if a := zeta.Send("GET", api+"/sandboxes?"+query, ""); !a.Refused() {
			t.Errorf("?%s: %v", query, a)
		}
	}
	for _, query := range []string{"all=1", "all=true", "all=yes", "owner=acme", "key_id=x"} {
		if a := zeta.Send("GET", api+"/audit?"+query, ""); !a.Refused() || foreign(a) {
			t.Errorf("audit?%s: %v", query, a)
		}
	}
	for _, query := range []string{"", "?project_name=n1", "?owner=acme", "?tenant=acme", "?project_name=n1&project_name=n0", "?all=1"} {
		if a := zeta.Send("GET", "/api/sandboxes"+query, "", "X-Owner", "acme", "X-Tenant", "acme"); foreign(a) || a.Code >= 500 {
			t.Errorf("/api/sandboxes%s: %v", query, a)
		}
	}
	if a := zeta.Send("POST", "/sandbox.v1.SandboxService/ListSessions", `{"tenantId":"acme","owner":"acme"}`, "X-Owner", "acme", "X-Tenant", "acme"); a.Code != 200 || foreign(a) {
		t.Errorf("ListSessions: %v", a)
	}
	for protocol := range protocols {
		if got := zeta.RPC(protocol).way(protocol).list(); len(got) != 2 || slices.Contains(theirs, got[0]) {
			t.Errorf("%s lists %q", protocol, got)
		}
	}
	// The control: their owner finds them so.
	if a := acme.Send("GET", api+"/sandboxes?label=team=acme&cursor="+boxes, ""); !foreign(a) {
		t.Errorf("by their owner: %v", a)
	}
	if a := acme.Send("GET", api+"/audit?sandbox="+theirs[0], ""); !foreign(a) {
		t.Errorf("their owner's audit log: %v", a)
	}
}

// TestTEN06: names are checked wherever one is taken, and are an owner's own: that
// somebody else has one shows nowhere.
func TestTEN06(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	acme, zeta := d.Tenant("acme"), d.Tenant("zeta")
	theirs := zeta.Create(`{"name":"dev"}`)
	own := acme.Create(`{"name":"dev"}`)
	bad := []string{
		".", "..", "../x", strings.Repeat("n", 4096), strings.Repeat("n", 129), "a\nb", "a\n", "-rf", "--help", "$(id)", "`id`", "📦", "a/b", `a\b`, "a b", "%2e%2e", "a\x00b", "\u202ea", "a:b", "a*", "ä",
	}
	for _, name := range bad {
		text, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		for path, body := range map[string]string{
			"/sandboxes":              `{"name":` + string(text) + `}`,
			"/sandboxes/dev/sessions": `{"name":` + string(text) + `}`,
			"/volumes":                `{"name":` + string(text) + `}`,
			"/sandboxes ":             `{"volumes":[{"name":` + string(text) + `,"path":"/v"}]}`,
			"/sandboxes/dev/execute":  `{"command":"true","session":` + string(text) + `}`,
		} {
			if a := acme.Send("POST", api+strings.TrimSpace(path), body); a.Code != 400 || a.Problem().Code != "invalid_value" || a.Problem().Field == "" {
				t.Errorf("%s %.60q: %v", path, body, a)
			}
		}
	}
	for _, path := range []string{"/sandboxes/dev/sessions", "/volumes"} {
		if a := acme.Send("POST", api+path, `{"name":""}`); a.Code != 400 {
			t.Errorf("%s without a name: %v", path, a)
		}
	}
	for i, name := range bad {
		if !utf8.ValidString(name) {
			continue // no text can hold it
		}
		for protocol := range protocols {
			c := acme.RPC(protocol)
			for _, q := range []*sandboxv1.CreateSessionRequest{{SessionId: &name}, {TenantId: &name}} {
				if a, err := c.CreateSession(t.Context(), q); connect.CodeOf(err) != connect.CodeInvalidArgument {
					t.Errorf("%s, name %d: %v, %v", protocol, i, a, err)
				}
			}
		}
		if a := acme.Send("POST", "/api/sandboxes", quoted(`{"project_name":%s}`, name)); a.Code != 400 || a.Problem().Field != "project_name" {
			t.Errorf("project_name %.60q: %v", name, a)
		}
	}
	if got := acme.Sandboxes(); !slices.Equal(got, []string{own.ID}) {
		t.Errorf("the sandboxes are %v", got)
	}
	for _, path := range []string{"/sandboxes/dev/sessions", "/volumes"} {
		if a := acme.Send("GET", api+path, ""); !strings.Contains(a.Text, `"items":[]`) {
			t.Errorf("%s: %v", path, a)
		}
	}
	// What is somebody else's is free, and only one's own is taken.
	free := acme.Send("POST", api+"/sandboxes", `{"name":"`+theirs.ID+`"}`)
	if free.Code != 201 {
		t.Errorf("another's id as a name: %v", free)
	}
	if a := acme.Send("GET", api+"/sandboxes/"+theirs.ID, ""); !strings.Contains(a.Text, `"name":"`+theirs.ID+`"`) || a.Code != 200 {
		t.Errorf("found by that name: %v", a)
	}
	if a := zeta.Send("GET", api+"/sandboxes/"+theirs.ID, ""); !strings.Contains(a.Text, `"name":"dev"`) {
		t.Errorf("its owner's: %v", a)
	}
	mine, others := acme.GRPC().session(&sandboxv1.CreateSessionRequest{SessionId: new("same")}), zeta.GRPC().session(&sandboxv1.CreateSessionRequest{SessionId: new("same")})
	if mine.GetContainerId() == others.GetContainerId() {
		t.Errorf("one session of two owners: %v", mine)
	}
	if a := acme.Send("POST", api+"/sandboxes", `{"name":"dev"}`); a.Problem().Code != "already_exists" {
		t.Errorf("a name of one's own twice: %v", a)
	}
	if a := acme.Send("GET", api+"/sandboxes/dev", ""); !strings.Contains(a.Text, own.ID) {
		t.Errorf("dev is %v", a)
	}
	// Owners are named by admins, who make mistakes.
	for _, name := range append(bad, "Acme", "ACME", "_x", "a.b") {
		text, _ := json.Marshal(name)
		if a := d.Admin().Send("POST", api+"/keys", `{"owner":`+string(text)+`}`); a.Code != 400 {
			t.Errorf("a key of %.60q: %v", name, a)
		}
	}
}

// TestTEN10: an owner at its quota is told so and when to try again, at each door (X7);
// others go on.
func TestTEN10(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--limits-sandboxes-per-owner", "1")
	acme, zeta := d.Tenant("acme"), d.Tenant("zeta")
	acme.Create(`{"name":"dev"}`)
	second := &Client{t, d, d.Tenant("acme").Key} // a quota is the owner's, not the key's
	for _, c := range []*Client{acme, second} {
		a := c.Send("POST", api+"/sandboxes", `{}`)
		if a.Code != http.StatusTooManyRequests || a.Problem().Code != "quota_exceeded" || a.Header.Get("Retry-After") == "" || !strings.Contains(a.Problem().Detail, "(1)") {
			t.Errorf("over the quota: %v %v", a, a.Header)
		}
	}
	acme.wantNoRoom("quota_exceeded", "(1)")
	zeta.Create(`{"name":"dev"}`)
	if a := acme.Send("DELETE", api+"/sandboxes/dev", ""); a.Code != 204 {
		t.Errorf("delete: %v", a)
	}
	acme.Create(`{}`)
}

// wantNoRoom asks each door for a sandbox, which must be refused for now.
func (c *Client) wantNoRoom(code, text string) {
	c.t.Helper()
	for path, body := range map[string]string{api + "/sandboxes": `{}`, "/api/sandboxes": `{"project_name":"p","memory_limit":"512m"}`} {
		a := c.Send("POST", path, body)
		if a.Code != http.StatusTooManyRequests || a.Problem().Code != code || a.Header.Get("Retry-After") == "" || !strings.Contains(a.Problem().Detail, text) {
			c.t.Errorf("%s without room: %v %v", path, a, a.Header)
		}
	}
	for protocol := range protocols {
		ctx, info := connect.NewClientContext(c.t.Context())
		_, err := c.RPC(protocol).CreateSession(ctx, &sandboxv1.CreateSessionRequest{})
		if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), text) || info.ResponseTrailer().Get("Retry-After")+info.ResponseHeader().Get("Retry-After") == "" {
			c.t.Errorf("%s without room: %v, %v", protocol, err, info.ResponseTrailer())
		}
	}
	if out := c.CLI("create"); out.Code == 0 || !strings.Contains(out.Stderr, text) {
		c.t.Errorf("the command line without room: %+v", out)
	}
}
