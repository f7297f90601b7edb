// Package resttest has what tests of the native REST door share: a request for
// each route, so that a route that nobody thought of fails them.
package resttest

import (
	"net/http"
	"strings"
)

// Prefix begins the path of a route about one sandbox.
const Prefix = "/api/v1/sandboxes/{id}"

// Elsewhere are the routes that are not about one sandbox, by pattern, and what
// keeps owners apart there.
var Elsewhere = map[string]string{
	"GET /health": "open", "GET /readiness": "open", "GET /metrics": "admins", "GET /docs": "nobody's", "GET /openapi.json": "nobody's",
	"GET /debug/pprof/": "local", "GET /debug/pprof/cmdline": "local", "GET /debug/pprof/profile": "local", "GET /debug/pprof/symbol": "local", "GET /debug/pprof/trace": "local",
	"GET /api/v1/version": "nobody's", "GET /api/v1/images": "shared", "GET /api/v1/images/{ref...}": "shared",
	"DELETE /api/v1/images/{ref...}": "admins", "POST /api/v1/images/pull": "admins",
	"GET /api/v1/keys": "admins", "POST /api/v1/keys": "admins", "DELETE /api/v1/keys/{id}": "admins",
	"GET /api/v1/sandboxes": "TestTEN03", "POST /api/v1/sandboxes": "TestTEN06", "GET /api/v1/audit": "TestTEN03",
	"GET /api/v1/network/requests": "admins",
	"GET /api/v1/secrets":          secrets, "POST /api/v1/secrets": secrets, "DELETE /api/v1/secrets/{name}": secrets,
	"GET /api/v1/volumes": volumes, "POST /api/v1/volumes": volumes, "GET /api/v1/volumes/{name}": volumes, "DELETE /api/v1/volumes/{name}": volumes,
	"GET /api/v1/volumes/{name}/archive": volumes, "PUT /api/v1/volumes/{name}/archive": volumes,
}

const (
	volumes = "TestTEN09Volumes"
	secrets = "TestTEN09Secrets"
)

// Request is the query and the body of a request that could be done, so that
// nothing but the missing right refuses it.
type Request struct {
	Query, Type, Body string
	// Upgrade asks for a WebSocket.
	Upgrade bool
	// AnyOwner: an admin may do it to any owner's sandbox, by its full id.
	AnyOwner bool
}

func json(body string) Request { return Request{Type: "application/json", Body: body} }

// InSandbox has a request for each route about one sandbox: by the method and
// what stands behind [Prefix]. Those that change something leave the word taken
// behind, in a label, a session or a file.
var InSandbox = map[string]Request{
	"GET ": {}, "PATCH ": json(`{"labels":{"a":"taken"}}`), "DELETE ": {}, "POST /start": {}, "POST /stop": {},
	"GET /stats": {}, "GET /isolation": {}, "GET /events": {}, "GET /network": {}, "PUT /network": json(`{"allow":["taken.example"]}`), "GET /network/log": {},
	"PATCH /network":                   json(`{"add":["taken.example"]}`),
	"POST /network/requests/{request}": {Type: "application/json", Body: `{"decision":"allow"}`, AnyOwner: true},
	"POST /packages/pip":               json(`{"packages":["taken"]}`), "POST /packages/npm": json(`{"packages":["taken"]}`), "POST /packages/apt": json(`{"packages":["taken"]}`),
	"POST /execute": json(`{"command":"echo taken >taken"}`), "POST /execute/stream": json(`{"command":"echo taken >taken"}`),
	"GET /execs": {}, "GET /execs/{exec}": {}, "GET /execs/{exec}/output": {}, "POST /execs/{exec}/wait": {Query: "timeout=1"},
	"POST /execs/{exec}/resize": json(`{"cols":80,"rows":24}`), "POST /execs/{exec}/signal": json(`{"signal":"KILL"}`),
	"POST /execs/{exec}/stdin": {Type: "application/octet-stream", Body: "taken\n"},
	"GET /terminal":            {Upgrade: true}, "GET /ports": {}, "GET /ports/{port}/connect": {Upgrade: true},
	"GET /files": {Query: "path=f"}, "HEAD /files": {Query: "path=f"}, "DELETE /files": {Query: "path=f"},
	"PUT /files":      {Query: "path=taken", Type: "application/octet-stream", Body: "taken"},
	"GET /files/stat": {Query: "path=f"}, "GET /files/list": {}, "GET /files/watch": {}, "GET /files/glob": {Query: "pattern=*"}, "GET /files/search": {Query: "pattern=x"},
	"GET /files/archive": {}, "PUT /files/archive": {Type: "application/x-tar", Body: strings.Repeat("\x00", 1024)}, "GET /files/download": {Query: "path=f"},
	"POST /files/mkdir": json(`{"path":"taken"}`), "POST /files/move": json(`{"from":"f","to":"taken"}`), "POST /files/copy": json(`{"from":"f","to":"taken"}`),
	"POST /files/chmod": json(`{"path":"f","mode":"0777"}`), "POST /files/chown": json(`{"path":"f","owner":"0:0"}`), "POST /files/symlink": json(`{"target":"f","path":"taken"}`),
	"GET /sessions": {}, "POST /sessions": json(`{"name":"taken"}`), "DELETE /sessions/{name}": {},
	"POST /files/upload": {
		Type: "multipart/form-data; boundary=b",
		Body: "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"taken\"\r\n\r\ntaken\r\n--b--\r\n",
	},
}

// Of returns the request for a route about one sandbox, of either REST door.
func Of(pattern string) (r Request, ok bool) {
	if r, ok = InProject[pattern]; ok {
		return r, true
	}
	method, path, _ := strings.Cut(pattern, " ")
	rest, ok := strings.CutPrefix(path, Prefix)
	if ok {
		r, ok = InSandbox[method+" "+rest]
	}
	return r, ok
}

// Target is the path and query of a route, with the ids of a sandbox and of
// things in it.
func (r Request) Target(pattern, id, exec, session string) string {
	_, path, _ := strings.Cut(pattern, " ")
	target := strings.NewReplacer("{id}", id, "{exec}", exec, "{port}", "80", "{request}", "1", "{name}", session, "{$}", "", "{ref...}", "x", "{ref}", "x").Replace(path)
	if r.Query != "" {
		target += "?" + r.Query
	}
	return target
}

// Header are the headers of the request.
func (r Request) Header() http.Header {
	h := http.Header{}
	if r.Type != "" {
		h.Set("Content-Type", r.Type)
	}
	if r.Upgrade {
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			h.Set(k, v)
		}
	}
	return h
}
