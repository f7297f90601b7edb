package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// echo answers with the length of what it got.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		server.WriteError(w, r, err)
		return
	}
	_ = json.NewEncoder(w).Encode(len(b))
})

func TestOwnRoutes(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{})
	if resp, body := w.do("GET", "/health", nil); resp.StatusCode != 200 || body != "{\"status\":\"ok\"}\n" {
		t.Errorf("/health: %d %q", resp.StatusCode, body)
	}
	if resp, body := w.do("GET", "/readiness", nil); resp.StatusCode != 200 || body != "{\"status\":\"ready\"}\n" {
		t.Errorf("/readiness: %d %q", resp.StatusCode, body)
	}
	resp, body := w.do("GET", "/metrics", nil)
	problem(t, resp, body, 401, server.CodeUnauthenticated)
	resp, body = w.do("GET", "/metrics", nil, "X-API-Key", w.user)
	problem(t, resp, body, 403, server.CodeForbidden)
	for _, key := range []string{w.admin, w.user} {
		resp, body = w.do("GET", "/debug/pprof/", nil, "X-API-Key", key)
		problem(t, resp, body, 404, server.CodeNotFound)
	}
	local := w.local()
	if resp, _ := w.with(local, "GET", "http://agentbox/debug/pprof/", nil); resp.StatusCode != 200 {
		t.Errorf("/debug/pprof/ on the local socket: %d", resp.StatusCode)
	}
	if resp, _ := w.with(local, "GET", "http://agentbox/metrics", nil); resp.StatusCode != 200 {
		t.Errorf("/metrics on the local socket: %d", resp.StatusCode)
	}
}

func TestNotReady(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{Ready: func(context.Context) error { return errSecret }})
	if resp, body := w.do("GET", "/readiness", nil); resp.StatusCode != 503 || body != "{\"status\":\"not ready\"}\n" {
		t.Errorf("/readiness: %d %q", resp.StatusCode, body)
	}
	if !strings.Contains(w.log.String(), errSecret.Error()) {
		t.Error("the log does not tell why")
	}
}

// TestTEN08_AllRoutes goes through the router's own list.
func TestTEN08_AllRoutes(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{}, server.Route{Pattern: "POST /api/v1/things/{id}", Handler: text("in")})
	open := []string{}
	for _, route := range w.Router().Routes() {
		method, path, _ := strings.Cut(strings.NewReplacer("{id}", "x", "{$}", "").Replace(route.Pattern), " ")
		if route.Access == auth.Open {
			open = append(open, path)
			continue
		}
		for _, headers := range [][]string{{}, {"X-API-Key", "wrong"}, {"Authorization", "Bearer " + auth.Prefix + strings.Repeat("0", 40)}} {
			resp, body := w.do(method, path+"?api_key="+w.admin, nil, headers...)
			problem(t, resp, body, 401, server.CodeUnauthenticated)
			if resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", path)
			}
		}
	}
	if strings.Join(open, " ") != "/health /readiness" {
		t.Errorf("open without a key are %q", open)
	}
	resp, body := w.do("GET", "/nothing/here", nil)
	problem(t, resp, body, 401, server.CodeUnauthenticated)
	if n := len(w.records.list()); n < 5 {
		t.Errorf("%d records of refused authentications", n)
	}
	for _, r := range w.records.list() {
		if r.Action != audit.AuthRefused || r.RequestID == "" || r.Result != "unauthenticated" || strings.Contains(r.Details["path"], w.admin) {
			t.Errorf("record %+v", r)
		}
	}
	if strings.Contains(w.log.String(), strings.TrimPrefix(w.admin, auth.Prefix)) {
		t.Error("a key is in the log")
	}
}

// TestAPI09_OneReadingOfPaths: nothing gets round the gate or to another route
// by another spelling of a path or method.
func TestAPI09_OneReadingOfPaths(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{},
		server.Route{Pattern: "GET /api/v1/admin", Access: auth.NeedAdmin, Handler: text("ADMIN")},
		server.Route{Pattern: "GET /api/v1/things/{id}", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "thing "+r.PathValue("id"))
		})})
	for _, path := range []string{
		"/api/v1/things/../admin", "/api/v1//admin", "//api/v1/admin", "/api/v1/./admin", "/api/v1/%2e%2e/v1/admin", "/api/v1/things/%2e%2e%2fadmin",
		"/api/v1/admin/", "/API/v1/admin", "/api/v1/admin;x", "/api/v1/admin%00", "/api/v1/%61dmin", "/api/v1/admin%2f", "/", "//", "/api/v1/things/..%2f..%2fadmin",
	} {
		for _, headers := range [][]string{{"X-API-Key", w.user}, {"X-API-Key", w.user, "X-Original-URL", "/api/v1/admin"}, {"X-API-Key", w.user, "X-HTTP-Method-Override", "GET", "X-Rewrite-URL", "/api/v1/admin"}} {
			resp, body := w.do("GET", path, nil, headers...)
			if strings.Contains(body, "ADMIN") || resp.StatusCode/100 != 4 {
				t.Errorf("%s: %d %q", path, resp.StatusCode, body)
			}
		}
	}
	resp, body := w.do("POST", "/api/v1/things/x", nil, "X-API-Key", w.user, "X-HTTP-Method-Override", "GET")
	problem(t, resp, body, 405, server.CodeMethodNotAllowed)
	if allow := resp.Header.Get("Allow"); !strings.Contains(allow, "GET") {
		t.Errorf("Allow is %q", allow)
	}
	resp, body = w.do("TRACE", "/api/v1/things/x", nil, "X-API-Key", w.user)
	problem(t, resp, body, 404, server.CodeNotFound)
	if resp, body := w.do("GET", "/api/v1/things/a%2Fb", nil, "X-API-Key", w.user); resp.StatusCode != 200 || body != "thing a/b" {
		t.Errorf("an id with a slash: %d %q", resp.StatusCode, body)
	}
}

// TestWEB12_Headers are on every answer.
func TestWEB12_Headers(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{}, server.Route{Pattern: "GET /x", Handler: text("<script>")})
	for _, path := range []string{"/health", "/x", "/none"} {
		for _, key := range []string{"", w.user} {
			resp, _ := w.do("GET", path, nil, "X-API-Key", key)
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
				"Content-Security-Policy": "frame-ancestors 'none'", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
			} {
				if got := resp.Header.Get(name); !strings.Contains(got, want) {
					t.Errorf("%s: %s is %q", path, name, got)
				}
			}
			if resp.Header.Get("Server") != "" || len(resp.Cookies()) > 0 {
				t.Errorf("%s: %v", path, resp.Header)
			}
		}
	}
}

// TestWEB01_NoStateChange sends what a page of another site can make a browser
// send, to a server without keys.
func TestWEB01_NoStateChange(t *testing.T) {
	var changed atomic.Bool
	w := start(t, auth.Policy{NoAuth: true, AllowOrigin: []string{"https://app.example"}}, server.Options{},
		server.Route{Pattern: "GET /terminal", Stream: true, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { changed.Store(true) })},
		server.Route{Pattern: "POST /x", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { changed.Store(true) })})
	for _, headers := range [][]string{
		{"Origin", "http://evil.test", "Content-Type", "text/plain"},
		{"Origin", "null", "Content-Type", "application/x-www-form-urlencoded"},
		{"Sec-Fetch-Site", "cross-site", "Content-Type", "multipart/form-data; boundary=x"},
		{"Host", "evil.test"},
		{"Host", "127.0.0.1.evil.test", "Origin", "http://127.0.0.1.evil.test", "Sec-Fetch-Site", "same-origin"},
	} {
		resp, body := w.do("POST", "/x", strings.NewReader("{}"), headers...)
		problem(t, resp, body, 403, server.CodeForbidden)
		if resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q may read the answer", headers)
		}
	}
	for _, origin := range []string{"http://evil.test", "null", "http://127.0.0.1.evil.test"} { // WEB-03
		resp, body := w.do("GET", "/terminal", nil, "Origin", origin, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
		problem(t, resp, body, 403, server.CodeForbidden)
	}
	resp, body := w.do("OPTIONS", "/x", nil, "Origin", "http://evil.test", "Access-Control-Request-Method", "POST")
	problem(t, resp, body, 403, server.CodeForbidden)
	if changed.Load() {
		t.Fatal("a page of another site has changed something")
	}
	resp, _ = w.do("OPTIONS", "/x", nil, "Origin", "https://app.example", "Access-Control-Request-Method", "POST")
	if resp.StatusCode != 204 || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "X-API-Key") {
		t.Errorf("preflight of an allowed origin: %d %v", resp.StatusCode, resp.Header)
	}
	if !strings.Contains(resp.Header.Get("Access-Control-Allow-Headers"), "If-Range") {
		t.Errorf("a page can't go on with a file: %v", resp.Header)
	}
	resp, _ = w.do("POST", "/x", nil, "Origin", "https://app.example", "Sec-Fetch-Site", "cross-site")
	for _, h := range []string{"X-First-Offset", "X-Skipped", "ETag", "Accept-Ranges"} {
		if !strings.Contains(resp.Header.Get("Access-Control-Expose-Headers"), h) {
			t.Errorf("a page can't see %s: %v", h, resp.Header)
		}
	}
	if resp.StatusCode != 200 || !changed.Load() || resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || resp.Header.Get("Vary") != "Origin" {
		t.Errorf("an allowed origin: %d %v", resp.StatusCode, resp.Header)
	}
}

// TestCauseInLog: the log has the cause of an error, not what the client is told instead.
func TestCauseInLog(t *testing.T) {
	w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "GET /x", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.LogError(r.Context(), errSecret)
		server.WriteError(w, r, server.NewProblem(server.CodeInternal, "it failed"))
	})})
	if _, body := w.do("GET", "/x", nil); !strings.Contains(body, "it failed") || strings.Contains(body, errSecret.Error()) || !strings.Contains(w.log.String(), errSecret.Error()) {
		t.Errorf("the client is told %q, the log\n%s", body, w.log.String())
	}
}

func TestRequestID(t *testing.T) {
	w := start(t, auth.Policy{}, server.Options{}, server.Route{Pattern: "GET /x", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := server.Caller(r.Context())
		_, _ = io.WriteString(w, c.Owner+" "+c.RequestID)
	})})
	resp, body := w.do("GET", "/x", nil, "X-API-Key", w.user, "X-Request-ID", "mine-1.2_3")
	if resp.Header.Get("X-Request-ID") != "mine-1.2_3" || body != "acme mine-1.2_3" || !strings.Contains(w.log.String(), "request_id=mine-1.2_3") {
		t.Errorf("answered %v %q", resp.Header, body)
	}
	for _, bad := range []string{"", "a b", "a\"b", "é", strings.Repeat("a", 129), "<x>", "a;b"} {
		resp, body := w.do("GET", "/x", nil, "X-API-Key", w.user, "X-Request-ID", bad)
		if id := resp.Header.Get("X-Request-ID"); id == bad || len(id) != 32 || body != "acme "+id {
			t.Errorf("%q became %q", bad, id)
		}
	}
}

// TestLEAK10_Errors shows of errors what is meant for callers.
func TestLEAK10_Errors(t *testing.T) {
	for name, c := range errorCases {
		t.Run(name, func(t *testing.T) {
			w := start(t, auth.Policy{NoAuth: true}, server.Options{}, server.Route{Pattern: "GET /x", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.err == nil {
					panic("secret at /var/lib/agentbox")
				}
				server.WriteError(w, r, c.err)
			})})
			resp, body := w.do("GET", "/x", nil)
			problem(t, resp, body, c.status, c.code)
			for _, leak := range []string{"/var/lib", "secret", "goroutine", ".go:", "runtime"} {
				if strings.Contains(body, leak) {
					t.Errorf("the answer has %q: %s", leak, body)
				}
			}
			if c.want != "" && !strings.Contains(body, c.want) {
				t.Errorf("the answer lacks %q: %s", c.want, body)
			}
			if c.err == nil && !strings.Contains(w.log.String(), "secret at /var/lib/agentbox") {
				t.Error("the log does not tell about the panic")
			}
		})
	}
}
