package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Errors say what to do next.
func TestErrorsHelp(t *testing.T) {
	noServer(t)
	s := answering(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") == "":
			refuse(w, 401, "unauthenticated", "an API key is needed")
		case r.Header.Get("Authorization") != "Bearer abx_good":
			refuse(w, 401, "unauthenticated", "the API key is not valid")
		case r.URL.Path == "/api/v1/sandboxes" && r.Method == "GET":
			fmt.Fprint(w, `{"items":[{"name":"development","short_id":"0123456789ab"},{"name":null,"short_id":"ba9876543210"}],"next_cursor":null}`)
		case strings.HasPrefix(r.URL.Path, "/api/v1/sandboxes/gone"):
			w.WriteHeader(404)
			fmt.Fprint(w, `{"detail":"Sandbox not found","code":"sandbox_expired","reason":"idle"}`)
		case r.URL.Path == "/api/v1/sandboxes/x/stats":
			w.WriteHeader(422)
			fmt.Fprint(w, `{"detail":[{"loc":["query","limit"],"msg":"there is no such parameter"}]}`)
		case r.URL.Path == "/api/v1/sandboxes/stopped/stats":
			refuse(w, 409, "not_running", "Sandbox is not running")
		case r.URL.Path == "/api/v1/sandboxes/evil/stats":
			refuse(w, 409, "conflict", "bad \x1b[31mname")
		case r.URL.Path == "/api/v1/sandboxes/a b/packages/pip":
			refuse(w, 403, "forbidden", "pip install requires x and y in allowed_hosts")
		case strings.HasPrefix(r.URL.Path, "/api/v1/sandboxes/x/execs/nope"):
			refuse(w, 404, "not_found", "there is no exec nope")
		case r.URL.Path == "/api/v1/volumes/used":
			refuse(w, 409, "conflict", `volume "used" is used by 0123`)
		case r.URL.Path == "/api/v1/volumes/none":
			refuse(w, 404, "not_found", "Volume not found")
		case r.URL.Path == "/api/v1/keys":
			refuse(w, 403, "forbidden", "this needs an admin key")
		case r.URL.Path == "/api/v1/sandboxes" && r.Method == "POST":
			body, _ := io.ReadAll(r.Body)
			w.WriteHeader(400)
			switch {
			case strings.Contains(string(body), `"volumes"`):
				fmt.Fprint(w, `{"detail":"invalid volumes \"v\": allowed is a volume that you have made","code":"invalid_value","field":"volumes"}`)
			case strings.Contains(string(body), `"secrets"`):
				fmt.Fprint(w, `{"detail":"invalid secrets \"S\": allowed is a secret that you have set","code":"invalid_value","field":"secrets"}`)
			default:
				fmt.Fprint(w, `{"detail":"invalid image \"x\"","code":"invalid_value","field":"image"}`)
			}
		case r.URL.Path == "/api/v1/sandboxes/x/network" && r.Method == "PATCH":
			refuse(w, 400, "invalid_value", `"a.example" is not on the list of the sandbox's network`)
		case strings.HasPrefix(r.URL.Path, "/api/v1/sandboxes/x/network/requests/"):
			refuse(w, 404, "not_found", `there is no undecided request "r0123456789abcdef"`)
		case r.URL.Path == "/api/v1/sandboxes/x/network":
			refuse(w, 403, "forbidden", "network.mode full is not allowed on this server")
		case r.URL.Path == "/api/v1/sandboxes/old/stats":
			http.NotFound(w, r)
		default:
			refuse(w, 404, "not_found", "Sandbox not found")
		}
	})
	t.Setenv(urlVariable, s.URL)
	for _, c := range []struct{ key, args, want string }{
		{"", "ls", "set AGENTBOX_API_KEY"},
		{"abx_bad", "ls", "was revoked; on the server's machine agentbox key create"},
		{"abx_good", "get developmint", `no sandbox "developmint" on the server; did you mean development?`},
		{"abx_good", "get ba9876543211", "did you mean ba9876543210?"},
		{"abx_good", "get zzz", "agentbox ls lists them; those of agentbox run are in agentbox ps"},
		{"abx_good", "get gone", `sandbox "gone" is not there any more (idle)`},
		{"abx_good", "stats x", "limit: there is no such parameter"},
		{"abx_good", "stats evil", `bad \x1b[31mname`},
		{"abx_good", "stats stopped", "(agentbox start stopped runs it again, if it was stopped)"},
		{"abx_good", "kill x nope", "(agentbox execs x lists them)"},
		{"abx_good", "volume rm used", "(agentbox rm of that sandbox frees it"},
		{"abx_good", "volume inspect none", "(agentbox volume ls lists them)"},
		{"abx_good", "key ls", "agentbox key create --admin makes an admin's key"},
		{"abx_good", "create x", "(on the server's machine agentbox images ls shows them"},
		{"abx_good", "create --volume v:/v", "(agentbox volume create makes one, agentbox volume ls lists them)"},
		{"abx_good", "create --secret S", "(agentbox secret set sets one, agentbox secret ls lists them)"},
		{"abx_good", "egress deny x a.example", "(agentbox egress policy x shows the list, and the numbers of what was denied"},
		{"abx_good", "egress allow x r0123456789abcdef", "(agentbox egress policy x lists them)"},
		{"abx_good", "egress policy --mode full x", "network.mode full is not allowed on this server\n"},
		{"abx_good", "stats old", "is " + s.URL + " an agentbox server"},
	} {
		t.Setenv(keyVariable, c.key)
		got := call(t, "", strings.Fields(c.args)...)
		if got.code != ExitFailure || got.stdout != "" {
			t.Errorf("%s: %+v", c.args, got)
		}
		wantIn(t, got.stderr, c.want)
		if !strings.Contains(c.want, "--admin") && strings.Contains(got.stderr, "--admin") {
			t.Errorf("%s: an admin's key would not help: %s", c.args, got.stderr)
		}
	}
	wantIn(t, call(t, "", "install", "a b", "six").stderr, "(agentbox egress allow a b python lets it reach them)")
	s.Close()
	wantIn(t, call(t, "", "ls").stderr, "is it running there? It is started with agentbox serve")
	t.Setenv(urlVariable, "")
	wantIn(t, call(t, "", "ls").stderr, "start one with agentbox serve, or name another with --url")
	for _, bad := range []string{"127.0.0.1:8700", "ftp://x", "http://", "http://user:pw@x", "://"} {
		wantIn(t, call(t, "", "ls", "--url", bad).stderr, "is no URL of a server")
	}
}
