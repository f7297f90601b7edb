package e2e

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/server/rest/resttest"
)

// foreignPages are the headers that browsers send for pages of other sites, and for
// those whose name was made to point here.
var foreignPages = map[string][]string{
	"another site":        {"Origin", "http://evil.test", "Sec-Fetch-Site", "cross-site"},
	"an old browser":      {"Origin", "http://evil.test"},
	"a sandboxed frame":   {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
	"a name like ours":    {"Origin", "http://127.0.0.1.evil.test"},
	"no CORS":             {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
	"another port here":   {"Origin", "http://127.0.0.1:3000", "Sec-Fetch-Site", "same-site"},
	"a rebound name":      {"Host", "evil.test", "Origin", "http://evil.test", "Sec-Fetch-Site", "same-origin"},
	"a rebound name, GET": {"Host", "evil.test:8700", "Sec-Fetch-Site", "same-origin"},
}

// formTypes are what a page can send without asking.
var formTypes = []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"}

// TestWEB01: a page of another site changes nothing, on a server that asks for no
// key, where nothing else keeps it out.
func TestWEB01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--no-auth", "--rate-limit-refused", "0")
	c := d.Admin()
	sb := c.Create(`{"name":"dev"}`)
	c.Write("dev", "f", "x")
	n := 0
	for pattern, row := range everyRoute(d) {
		method, _, _ := strings.Cut(pattern, " ")
		if method == http.MethodGet || method == http.MethodHead {
			continue // TestWEB03
		}
		for page, headers := range foreignPages {
			for _, form := range append(slices.Clone(formTypes), row.Type) {
				n++
				a := c.Send(method, row.Target(pattern, "dev", "x", "x"), row.Body, append([]string{"Content-Type", form}, headers...)...)
				if a.Code != http.StatusForbidden || a.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("%s, %s, %s: %v", pattern, page, form, a)
				}
			}
		}
		a := c.Send("OPTIONS", row.Target(pattern, "dev", "x", "x"), "", "Origin", "http://evil.test", "Access-Control-Request-Method", method)
		if a.Code != http.StatusForbidden || a.Header.Get("Access-Control-Allow-Methods") != "" {
			t.Errorf("a preflight for %s: %v %v", pattern, a, a.Header)
		}
		_, ok := resttest.Of(pattern)
		if strings.HasPrefix(pattern, "POST /sandbox.v1.") {
			ok = strings.HasSuffix(pattern, "File") && !strings.Contains(pattern, "load") || strings.HasSuffix(pattern, "Session") // not streams, which take no plain JSON
		}
		if _, project := resttest.Projects[pattern]; row.Type != "application/json" || !ok && !project && pattern != "POST /api/v1/sandboxes" && pattern != "POST /api/v1/keys" {
			continue
		}
		for _, form := range formTypes { // a browser that told nothing of its page could send these
			if a := c.Send(method, row.Target(pattern, "dev", "x", "x"), row.Body, "Content-Type", form); a.Code != http.StatusUnsupportedMediaType {
				t.Errorf("%s as %s: %v", pattern, form, a)
			}
		}
	}
	t.Logf("%d requests of foreign pages", n)
	if got := c.Sandboxes(); !slices.Equal(got, []string{sb.ID}) {
		t.Errorf("the sandboxes are %v", got)
	}
	for _, path := range []string{"", "/files/list", "/sessions"} {
		if a := c.Send("GET", api+"/sandboxes/dev"+path, ""); a.Code != 200 || strings.Contains(a.Text, "taken") {
			t.Errorf("%s: %v", path, a)
		}
	}
	if a := c.Send("GET", api+"/keys", ""); !strings.Contains(a.Text, `"items":[]`) {
		t.Errorf("the keys are %v", a)
	}
	// The control: a page of this very server may.
	if a := c.Send("POST", api+"/sandboxes/dev/files/mkdir", `{"path":"taken"}`, "Origin", d.URL, "Sec-Fetch-Site", "same-origin"); a.Code/100 != 2 {
		t.Errorf("a page of its own: %v", a)
	}
}

// TestWEB03: what goes on for a while, WebSockets and streams of events, opens for
// no foreign page.
func TestWEB03(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--no-auth", "--rate-limit-refused", "0")
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	exec := c.Background("dev", "echo here; touch ran; python3 -m http.server 8000")
	Until(t, soon, "the server in the sandbox", func() bool {
		return strings.Contains(c.Sh("dev", "python3 - <<-E\nimport socket; print(socket.socket().connect_ex(('127.0.0.1',8000)))\nE"), "0\n")
	})
	events := []string{"Accept", "text/event-stream"}
	for pattern, headers := range map[string][]string{
		"GET /terminal?command=touch+taken": upgrade, "GET /terminal?exec_id=" + exec: upgrade, "GET /ports/8000/connect": upgrade,
		"POST /execute/stream": events, "GET /execs/" + exec + "/output": events, "GET /events?follow=1": events, "GET /files/watch": events, "GET /stats?stream=1": events,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		body := map[string]string{"POST": `{"command":"touch taken; sleep 600"}`}[method]
		pages := maps.Clone(foreignPages)
		for i, origin := range []string{"http://evil.test", "null", "http://127.0.0.1.evil.test", "file://", "https://" + strings.TrimPrefix(d.URL, "http://") + ".evil.test"} {
			pages[string(rune('a'+i))] = []string{"Origin", origin}
		}
		for page, more := range pages {
			if a := c.Send(method, api+"/sandboxes/dev"+path, body, append(slices.Clone(headers), more...)...); a.Code != http.StatusForbidden {
				t.Errorf("%s of %s: %v", pattern, page, a)
			}
		}
		if strings.Contains(pattern, "exec_id") {
			continue // it has no terminal
		}
		// The control: pages of this server, and clients that are no browser.
		for _, more := range [][]string{{}, {"Origin", d.URL, "Sec-Fetch-Site", "same-origin"}} {
			body = strings.Replace(body, "taken", "allowed", 1)
			resp, err := c.Open(t.Context(), method, strings.Replace(api+"/sandboxes/dev"+path, "taken", "allowed", 1), strings.NewReader(body), append(slices.Clone(headers), more...)...)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusSwitchingProtocols && resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("%s with %v: %d %v", pattern, more, resp.StatusCode, resp.Header)
			}
		}
	}
	// What gRPC-Web and Connect stream.
	for kind, refused := range map[string]string{"application/grpc-web+json": "", "application/grpc-web-text+json": "", "application/connect+json": "permission_denied"} {
		send := func(name string, headers ...string) Answer {
			message := `{"sessionId":"dev","command":"touch ` + name + `; echo streamed"}`
			body := "\x00" + string(binary.BigEndian.AppendUint32(nil, uint32(len(message)))) + message
			if strings.Contains(kind, "-text") {
				body = base64.StdEncoding.EncodeToString([]byte(body))
			}
			return c.Send("POST", "/sandbox.v1.SandboxService/ExecStream", body, append([]string{"Content-Type", kind, "Accept", strings.Replace(kind, "-text", "", 1)}, headers...)...)
		}
		for page, more := range foreignPages {
			a := send("taken", more...)
			if strings.Contains(a.Text, "streamed") || refused != "" && !strings.Contains(a.Text, refused) && a.Code != 403 || refused == "" && a.Header.Get("Grpc-Status") != "7" && a.Code != 403 && !strings.Contains(a.Text, "grpc-status: 7") {
				t.Errorf("%s of %s: %v %v", kind, page, a, a.Header)
			}
		}
		a := send("given", "Origin", d.URL, "Sec-Fetch-Site", "same-origin")
		if !strings.Contains(a.Text, "streamed") {
			t.Errorf("%s of a page of its own: %v", kind, a)
		}
	}
	if got := c.Sh("dev", "ls"); strings.Contains(got, "taken") || !strings.Contains(got, "ran") {
		t.Errorf("the files are %q", got)
	}
}

// TestWEB12: no answer of any kind may be framed, guessed at or read by other
// sites, and none sets a cookie.
func TestWEB12(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--metrics-listen", "127.0.0.1:0")
	c, nobody := d.Admin(), &Client{t: t, d: d}
	c.Create(`{"name":"dev"}`)
	c.Write("dev", "x.html", "<script>alert(1)</script>")
	box := api + "/sandboxes/dev"
	answers := map[string]Answer{
		"refused": nobody.Send("GET", box, ""), "health": nobody.Send("GET", "/health", ""), "not found": c.Send("GET", "/none", ""), "not allowed": c.Send("POST", box, "{}"),
		"form": c.Send("POST", api+"/sandboxes", `{"x":1}`), "page": c.Send("GET", "/docs", ""), "document": c.Send("GET", "/openapi.json", ""), "metrics": c.Send("GET", "/metrics", ""),
		"file": c.Read("dev", "x.html"), "download": c.Send("GET", box+"/files/download?path=x.html", ""), "archive": c.Send("GET", box+"/files/archive", ""),
		"events": c.Send("POST", box+"/execute/stream", `{"command":"true"}`), "list": c.Send("GET", api+"/sandboxes", ""), "socket": c.Send("GET", box+"/terminal", "", upgrade...),
		"projects": c.Send("GET", "/api/sandboxes", ""), "no project": c.Send("GET", "/api/sandboxes/none", ""), "rpc": c.Send("POST", "/sandbox.v1.SandboxService/ListSessions", "{}"),
		"no session": c.Send("POST", "/sandbox.v1.SandboxService/GetSession", `{"sessionId":"none"}`), "gRPC-Web": c.Send("POST", "/sandbox.v1.SandboxService/ListSessions", "\x00\x00\x00\x00\x00", "Content-Type", "application/grpc-web+proto"),
		"preflight": c.Send("OPTIONS", box, "", "Origin", "http://evil.test", "Access-Control-Request-Method", "GET"),
	}
	for what, a := range answers {
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Content-Security-Policy": "frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-",
		} {
			if got := a.Header.Get(name); !strings.Contains(got, want) {
				t.Errorf("%s (%d): %s is %q", what, a.Code, name, got)
			}
		}
		csp := a.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: the policy is %q", what, csp)
		}
		if len(a.Header["Set-Cookie"]) > 0 || a.Header.Get("Server") != "" || a.Header.Get("X-Powered-By") != "" {
			t.Errorf("%s: %v", what, a.Header)
		}
		if origin := a.Header.Get("Access-Control-Allow-Origin"); origin != "" {
			t.Errorf("%s may be read by %s", what, origin)
		}
	}
	if a := answers["download"]; !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") || a.Code != 200 {
		t.Errorf("a download: %v %v", a, a.Header)
	}
	if a := answers["file"]; strings.Contains(a.Header.Get("Content-Type"), "html") || a.Code != 200 {
		t.Errorf("a file: %v %v", a, a.Header)
	}
	for _, method := range []string{"TRACE", "TRACK", "CONNECT", "DEBUG", "PROPFIND"} {
		answer := d.Raw(method + " " + box + " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nX-Echo: echoed\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(answer, "HTTP/1.1 4") || strings.Contains(answer, "echoed") {
			t.Errorf("%s: %q", method, answer)
		}
	}
}
