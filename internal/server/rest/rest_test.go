package rest_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/egress/journal"
	"agentbox/internal/egress/vault"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rest"
	"agentbox/internal/volume"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

var update = flag.Bool("update", false, "write docs/openapi.json anew")

// world is the door on a running server.
type world struct {
	t           testing.TB
	url         string
	admin, user string // keys; user's owner is acme
	api         *rest.API
	router      *server.Router
	audit       *audit.Log
	full        *atomic.Bool // no audit record can be written
	boxes       *manager.Manager
	images      *shelf
}

func start(t testing.TB, with ...func(*server.Options)) *world {
	t.Helper()
	w := &world{t: t, full: &atomic.Bool{}}
	keys := auth.NewKeyring(&authtest.Memory{})
	var err error
	if _, w.admin, err = keys.Create(t.Context(), "ops", "", true); err != nil {
		t.Fatal(err)
	}
	if _, w.user, err = keys.Create(t.Context(), "acme", "", false); err != nil {
		t.Fatal(err)
	}
	gate, err := auth.NewGate(keys, auth.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if w.audit, err = audit.Open(t.TempDir(), audit.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.audit.Close() })
	opts := server.Options{Gate: gate, Origins: gate.Origins(), Recorder: w.audit}
	for _, f := range with {
		f(&opts)
	}
	s := server.New(opts)
	w.router = s.Router()
	conns, err := journal.Open(t.TempDir(), audit.Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conns.Close() })
	var volumes *volume.Volumes
	var secrets *vault.Vault
	w.boxes, volumes, secrets = newManager(t)
	w.images = &shelf{names: []string{"default", "other.example/team/tool:v1"}}
	w.api = rest.New(w.router, rest.Parts{
		Version: "v1.2.3", Keys: keys, Audit: &fullDisk{Log: w.audit, full: w.full}, Sandboxes: w.boxes, Images: w.images, Inside: w.boxes, Repeats: w.boxes, Volumes: volumes, Networks: w.boxes, Connections: conns, Secrets: secrets,
		Defaults: sandbox.Limits{Memory: 256 * sandbox.MiB}, Draining: s.Draining(),
	})
	hs := httptest.NewUnstartedServer(s.Handler())
	hs.Config.Protocols = new(http.Protocols)
	hs.Config.Protocols.SetHTTP1(true)
	hs.Config.Protocols.SetUnencryptedHTTP2(true)
	hs.Start()
	t.Cleanup(hs.Close)
	w.url = hs.URL
	return w
}

// do sends a request; an empty content type is none.
func (w *world) do(key, method, path, contentType, body string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

func (w *world) post(path, body string) (*http.Response, string) {
	w.t.Helper()
	return w.do(w.admin, "POST", path, "application/json", body)
}

// read decodes an answer strictly.
func read[T any](t testing.TB, body string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

func TestVersion(t *testing.T) {
	w := start(t)
	resp, body := w.do(w.user, "GET", "/api/v1/version", "", "")
	if resp.StatusCode != 200 || body != "{\"version\":\"v1.2.3\",\"api\":\"v1\"}\n" || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	if resp, _ = w.do("", "GET", "/api/v1/version", "", ""); resp.StatusCode != 401 {
		t.Errorf("without a key: %d", resp.StatusCode)
	}
}

func TestKeys(t *testing.T) {
	w := start(t)
	resp, body := w.post("/api/v1/keys", `{"owner":"team-1","name":"ci","admin":"Yes"}`)
	made := read[rest.NewKey](t, body)
	if resp.StatusCode != 201 || made.Owner != "team-1" || made.Name != "ci" || !made.Admin || made.RevokedAt != nil || !regexp.MustCompile(`^abx_[0-9a-f]{40}$`).MatchString(made.Secret) {
		t.Fatalf("made %d %s", resp.StatusCode, body)
	}
	if resp, _ = w.do(made.Secret, "GET", "/api/v1/keys", "", ""); resp.StatusCode != 200 {
		t.Errorf("the new key: %d", resp.StatusCode)
	}
	if resp, body = w.post("/api/v1/keys", `{}`); resp.StatusCode != 201 || read[rest.NewKey](t, body).Owner != "default" {
		t.Errorf("with nothing said: %d %s", resp.StatusCode, body)
	}

	var names []string
	for cursor := ""; ; {
		_, body = w.do(w.admin, "GET", "/api/v1/keys?limit=1&cursor="+cursor, "", "")
		page := read[rest.List[rest.Key]](t, body)
		for _, k := range page.Items {
			names = append(names, k.Owner)
		}
		if strings.Contains(body, "abx_") {
			t.Errorf("a secret is in the list: %s", body)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if got := strings.Join(names, " "); got != "ops acme team-1 default" {
		t.Errorf("the list is %s", got)
	}

	if resp, body = w.do(w.admin, "DELETE", "/api/v1/keys/"+made.ID, "", ""); resp.StatusCode != 204 || body != "" {
		t.Errorf("revoked: %d %q", resp.StatusCode, body)
	}
	if resp, _ = w.do(made.Secret, "GET", "/api/v1/version", "", ""); resp.StatusCode != 401 {
		t.Errorf("the revoked key: %d", resp.StatusCode)
	}
	resp, body = w.do(w.admin, "DELETE", "/api/v1/keys/key_none", "", "")
	if p := read[server.Problem](t, body); resp.StatusCode != 404 || p.Code != server.CodeNotFound || p.Detail != "Key not found" || p.RequestID != resp.Header.Get("X-Request-ID") {
		t.Errorf("an unknown key: %d %s", resp.StatusCode, body)
	}
	for _, c := range [][2]string{{"GET", "/api/v1/keys"}, {"POST", "/api/v1/keys"}, {"DELETE", "/api/v1/keys/" + made.ID}} {
		if resp, body = w.do(w.user, c[0], c[1], "application/json", "{}"); resp.StatusCode != 403 {
			t.Errorf("%s %s without an admin key: %d %s", c[0], c[1], resp.StatusCode, body)
		}
	}
}

func TestAudit(t *testing.T) {
	w := start(t)
	w.post("/api/v1/keys", `{"owner":"acme"}`)
	w.do("wrong", "GET", "/api/v1/version", "", "")
	actions := func(key, query string) string {
		resp, body := w.do(key, "GET", "/api/v1/audit?"+query, "", "")
		if resp.StatusCode != 200 {
			t.Fatalf("%s: %d %s", query, resp.StatusCode, body)
		}
		var all []string
		for _, r := range read[rest.List[rest.AuditRecord]](t, body).Items {
			all = append(all, r.Action+":"+r.Result)
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct{ key, query, want string }{
		{w.admin, "", "key_create:ok"},
		{w.admin, "all=yes", "auth_refused:unauthenticated key_create:ok"},
		{w.admin, "all=1&order=oldest", "key_create:ok auth_refused:unauthenticated"},
		{w.admin, "all=1&action=auth_refused", "auth_refused:unauthenticated"},
		{w.admin, "all=1&since=2999-01-01T00:00:00Z", ""},
		{w.user, "", ""}, // TEN-03: what ops did is not acme's
		{w.user, "all=no", ""},
	} {
		if got := actions(c.key, c.query); got != c.want {
			t.Errorf("%q gives %q, want %q", c.query, got, c.want)
		}
	}
	if resp, body := w.do(w.user, "GET", "/api/v1/audit?all=true", "", ""); resp.StatusCode != 403 {
		t.Errorf("all without an admin key: %d %s", resp.StatusCode, body)
	}
	resp, body := w.do(w.user, "GET", "/api/v1/audit?cursor=nonsense", "", "")
	if p := read[server.Problem](t, body); resp.StatusCode != 400 || p.Field != "cursor" {
		t.Errorf("a wrong cursor: %d %s", resp.StatusCode, body)
	}
}

// TestRoutesAreDocumented compares the router with the document: a route of the
// door that the document lacks, and the reverse, fail.
func TestRoutesAreDocumented(t *testing.T) {
	w := start(t)
	var document struct {
		Paths map[string]map[string]struct {
			Security  []map[string][]string
			Responses map[string]any
		}
	}
	if err := json.Unmarshal(w.api.Document(), &document); err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for path, methods := range document.Paths {
		for method, op := range methods {
			documented[strings.ToUpper(method)+" "+path] = true
			if len(op.Security) == 0 || op.Responses["422"] == nil || op.Responses["default"] == nil {
				t.Errorf("%s %s lacks its security or errors", method, path)
			}
		}
	}
	for _, route := range w.router.Routes() {
		route.Pattern = strings.Replace(route.Pattern, "...}", "}", 1) // of names with slashes
		if !strings.Contains(route.Pattern, " "+rest.Prefix+"/") {
			continue
		}
		if !documented[route.Pattern] {
			t.Errorf("%s is not documented", route.Pattern)
		}
		delete(documented, route.Pattern)
		if route.Access == auth.Open {
			t.Errorf("%s is open", route.Pattern)
		}
	}
	for pattern := range documented {
		t.Errorf("%s is documented and isn't there", pattern)
	}
}

func TestDocuments(t *testing.T) {
	w := start(t)
	resp, body := w.do(w.user, "GET", "/openapi.json", "", "")
	if resp.StatusCode != 200 || body != string(w.api.Document()) || !strings.Contains(body, `"openapi": "3.1.0"`) {
		t.Errorf("/openapi.json: %d, %d bytes", resp.StatusCode, len(body))
	}
	resp, body = w.do(w.user, "GET", "/docs", "", "")
	for _, want := range []string{"<code>POST /api/v1/keys</code>", "invalid_value", "<code>owner</code>", `<h3 id="Sandbox">`, "newest oldest", "boolean or integer or string", "</html>"} {
		if resp.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("/docs: %d, without %q", resp.StatusCode, want)
		}
	}
	if regexp.MustCompile(`(?i)<script|https?://|url\(|@import| on[a-z]+=`).MatchString(body) {
		t.Error("/docs loads or runs something")
	}
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(body)
	hash := sha256.Sum256([]byte(style[1]))
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'") || strings.Contains(csp, "unsafe") {
		t.Errorf("/docs has the policy %q, which keeps its own style out", csp)
	}
	for _, path := range []string{"/docs", "/openapi.json"} {
		if resp, _ := w.do("", "GET", path, "", ""); resp.StatusCode != 401 {
			t.Errorf("%s without a key: %d", path, resp.StatusCode)
		}
	}
}

func TestDocumentIsCurrent(t *testing.T) {
	const path = "../../../docs/openapi.json"
	want := string(start(t).api.Document())
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what the source says (%v): run make reference", path, err)
	}
}

// FuzzBody sends bodies that somebody made up: never an error of ours.
func FuzzBody(f *testing.F) {
	for _, s := range []string{`{}`, `{"owner":"a","name":"b","admin":true}`, `{"admin":"y"}`, `{"a":{"b":[1,{"c":null}]}}`, `{"name":"\ud800"}`, `{"":""}`, `{"a.b[0]":1}`, "\xff", `{"admin":"\""}`} {
		f.Add(s)
	}
	w := start(f)
	f.Fuzz(func(t *testing.T, body string) {
		w.t = t
		resp, answer := w.post("/api/v1/keys", body)
		switch resp.StatusCode {
		case 201:
		case 400:
			if read[server.Problem](t, answer).Code != server.CodeInvalidValue {
				t.Errorf("%q: %s", body, answer)
			}
		case 422:
			if len(read[rest.FormProblem](t, answer).Detail) == 0 {
				t.Errorf("%q: %s", body, answer)
			}
		default:
			t.Errorf("%q: %d %s", body, resp.StatusCode, answer)
		}
		if !json.Valid([]byte(answer)) {
			t.Errorf("%q is answered with %q", body, answer)
		}
	})
}
