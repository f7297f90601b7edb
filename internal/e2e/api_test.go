package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	sandboxv1 "agentbox/internal/gen/sandbox/v1"
)

// TestAPI01: bodies that are too large, too deep or no JSON are refused at once and
// cost the daemon no memory.
func TestAPI01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"dev"}`)
	many := func(n int, one string) string { return strings.Repeat(one, n) }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"k%d":"v",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	bodies := map[string]string{
		"a million levels": `{"command":` + many(1_000_000, "[") + many(1_000_000, "]") + `}`, "a million levels, open": many(1_000_000, `{"a":`), "a thousand levels": `{"env":` + many(1000, "[") + many(1000, "]") + `}`,
		"a million names": "{" + keys(1_000_000) + "}", "a million variables": `{"command":"true","env":{` + keys(1_000_000) + "}}", "a million elements": `{"command":[` + many(999_999, `"",`) + `""]}`,
		"a name twice": `{"command":"true","command":"false"}`, "a name twice below": `{"command":"true","env":{"A":"1","A":"2"}}`, "a name twice, escaped": `{"command":"true","comm\u0061nd":"false"}`, "a name in another case": `{"command":"true","COMMAND":"false"}`,
		"a number beyond all": `{"command":"true","timeout":1e400}`, "no UTF-8": "{\"command\":\"\xff\"}", "half of a pair": `{"command":"\ud800"}`, "NUL": "{\"command\":\"true\"}\x00", "NUL within": "{\"command\":\"a\x00b\"}", "NUL, escaped": `{"command":"a\u0000b"}`,
		"a mark of byte order": "\ufeff" + `{"command":"true"}`, "two values": `{"command":"true"}{"command":"false"}`, "a list": `[{"command":"true"}]`, "a text": `"command"`, "nothing": "", "null": "null", "open": `{"command":"true"`, "NaN": `{"command":"true","timeout":NaN}`,
		"a comment": `{"command":"true"/* x */}`, "a long number": `{"command":"true","timeout":` + many(900_000, "9") + `}`, "a long name": `{"` + many(900_000, "n") + `":1}`,
	}
	for _, path := range []string{"/sandboxes", "/sandboxes/dev/execute", "/sandboxes/dev/execute/stream", "/sandboxes/dev/files/mkdir", "/keys"} {
		for what, body := range bodies {
			grown := d.Growth()
			began := time.Now()
			a := c.Send("POST", api+path, body, "Content-Type", "application/json")
			if !a.Refused() || a.Code != 400 && a.Code != 413 && a.Code != 422 || len(a.Text) > 4096 {
				t.Errorf("%s of %s: %v", what, path, a)
			}
			Within(t, began, time.Second)
			if n := grown(); n > 64<<20 {
				t.Errorf("%s of %s took %d MiB", what, path, n>>20)
			}
		}
		// 100 MiB, with its length and in chunks.
		for _, sized := range []bool{true, false} {
			var body io.Reader = io.MultiReader(strings.NewReader(`{"command":"`), io.LimitReader(endless('x'), 100<<20), strings.NewReader(`"}`))
			headers := []string{"Content-Type", "application/json"}
			grown := d.Growth()
			began := time.Now()
			var a Answer
			var err error
			if sized {
				a = Answer{Text: d.Raw("POST " + api + path + " HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n{")}
				_, _ = fmt.Sscanf(a.Text, "HTTP/1.1 %d", &a.Code)
			} else {
				a, err = c.Try("POST", api+path, body, headers...)
			}
			if a.Code != http.StatusRequestEntityTooLarge && err == nil {
				t.Errorf("100 MiB to %s: %v", path, a)
			}
			Within(t, began, time.Second)
			if n := grown(); n > 64<<20 {
				t.Errorf("100 MiB to %s took %d MiB", path, n>>20)
			}
		}
	}
	// The doors that take what they don't know: nothing that is said of a body but that it
	// costs little and breaks nothing.
	for _, path := range []string{"/api/sandboxes", "/api/sandboxes/dev/execute", "/api/settings", "/sandbox.v1.SandboxService/CreateSession", "/sandbox.v1.SandboxService/Exec", "/sandbox.v1.SandboxService/WriteFile"} {
		bodies["100 MiB"] = `{"command":"` + strings.Repeat("x", 100<<20)
		method := "POST"
		if path == "/api/settings" {
			method = "PATCH"
		}
		for what, body := range bodies {
			grown := d.Growth()
			began := time.Now()
			a, err := c.Try(method, path, strings.NewReader(body))
			if what == "100 MiB" { // the sender may be cut off
				if err == nil && a.Code < 400 {
					t.Errorf("%s to %s: %v", what, path, a)
				}
			} else if err != nil || a.Code >= 500 || len(a.Text) > 4096 {
				t.Errorf("%s to %s: %v, %v", what, path, a, err)
			} else if unreadable[what] && a.Code < 400 {
				t.Errorf("%s to %s was taken: %v", what, path, a)
			}
			Within(t, began, 2*time.Second)
			if n := grown(); n > 64<<20 && path != "/sandbox.v1.SandboxService/WriteFile" { // which takes texts of as much
				t.Errorf("%s to %s took %d MiB", what, path, n>>20)
			}
		}
	}
	for _, id := range c.Sandboxes() {
		c.Send("DELETE", api+"/sandboxes/"+id, "")
	}
}

// unreadable are the bodies that no door can make sense of.
var unreadable = map[string]bool{
	"a million levels": true, "a million levels, open": true, "no UTF-8": true, "NUL": true, "two values": true, "a list": true, "a text": true, "open": true, "NaN": true, "a comment": true,
}

// endless is one byte for ever.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}

// Growth begins to watch the daemon's memory; what it returns tells by how much it
// grew at most since.
func (d *Daemon) Growth() func() int64 {
	d.t.Helper()
	proc := fmt.Sprintf("/proc/%d/", d.cmd.Process.Pid)
	if err := os.WriteFile(proc+"clear_refs", []byte("5"), 0); err != nil { // the highest is that of now, see proc(5)
		d.t.Fatal(err)
	}
	before := d.memory("VmHWM")
	return func() int64 { return d.memory("VmHWM") - before }
}

func (d *Daemon) memory(field string) (n int64) {
	d.t.Helper()
	if _, err := fmt.Sscanf(ProcStatus(d.t, d.cmd.Process.Pid)[field], "%d kB", &n); err != nil {
		d.t.Fatal(err)
	}
	return n << 10
}

// TestAPI06: nothing of a request is read by a shell of the host or taken for an
// option: it means the same inside as a file of that name would.
func TestAPI06(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	_, text, check := hostCanary(t)
	mark := t.TempDir() + "/ran"
	c.Create(`{"name":"dev"}`)
	evil := []string{"$(touch " + mark + ")", "`touch " + mark + "`", "; touch " + mark, "| touch " + mark, "-rf", "--help", "-o" + mark, "&& touch " + mark, "\ntouch " + mark, "$IFS", "'\"; touch " + mark + " #", "%s%n", "{{.}}", "../../" + mark}
	for i, s := range evil {
		for field, body := range map[string]string{
			"image": quoted(`{"image":%s}`, s), "user": quoted(`{"user":%s}`, s), "workdir": quoted(`{"workdir":%s}`, s), "name of a variable": quoted(`{"env":{%s:"x"}}`, s), "name": quoted(`{"name":%s}`, s),
		} {
			if i >= 5 && field != "name" && field != "image" {
				continue // each of these makes a sandbox
			}
			a := c.Send("POST", api+"/sandboxes", body)
			if a.Code == http.StatusCreated { // it may be a name inside
				if del := c.Send("DELETE", api+"/sandboxes/"+idOf(t, a), ""); del.Code != 204 {
					t.Errorf("delete: %v", del)
				}
			} else if !a.Refused() {
				t.Errorf("%s %q: %v", field, s, a)
			}
		}
		// As an argument, a variable, a directory and the name of a file it stays what it is.
		run := c.Send("POST", api+"/sandboxes/dev/execute", quoted(`{"command":["printf","%%s",%[1]s],"env":{"V":%[1]s}}`, s))
		if got := saidBy(t, run); s[0] != '-' && got != s {
			t.Errorf("the argument %q is %q", s, got)
		}
		if got := saidBy(t, c.Send("POST", api+"/sandboxes/dev/execute", quoted(`{"command":"printf %%s \"$V\"","env":{"V":%s}}`, s))); got != s {
			t.Errorf("the variable %q is %q", s, got)
		}
		for _, field := range []string{"workdir", "user"} {
			if a := c.Send("POST", api+"/sandboxes/dev/execute", quoted(`{"command":"true",`+`"`+field+`":%s}`, s)); a.Code != 200 && !a.Refused() {
				t.Errorf("%s %q: %v", field, s, a)
			}
		}
		// At the other doors, too.
		var r commandResult
		(&projects{c}).ok("POST", "/api/sandboxes/dev/execute", quoted(`{"command":["printf","%%s",%s]}`, s), &r)
		if s[0] != '-' && r.Stdout != s {
			t.Errorf("the argument %q of a project is %q", s, r.Stdout)
		}
		if a := c.Send("POST", "/api/sandboxes/dev/execute", quoted(`{"command":["true"],"workdir":%s}`, s)); a.Code != 200 && !a.Refused() {
			t.Errorf("the directory %q of a project: %v", s, a)
		}
		for protocol := range protocols {
			rpc := c.RPC(protocol)
			if _, err := rpc.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: "dev", Command: "true", Workdir: s}); err != nil && connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s in %q: %v", protocol, s, err)
			}
			if a, err := rpc.PipInstall(t.Context(), &sandboxv1.PipInstallRequest{SessionId: "dev", Packages: []string{s}}); err != nil || a.GetExitCode() != -1 {
				t.Errorf("%s installs %q: %v, %v", protocol, s, a, err)
			}
			path := "n/" + strings.ReplaceAll(s, "/", "_")
			rpc.write("dev", path, text, "w")
			if a := rpc.read("dev", path); a.GetContent() != text {
				t.Errorf("%s reads %q: %v", protocol, path, a)
			}
		}
		name := "/workspace/n/" + strings.ReplaceAll(s, "/", "_")
		if a := c.Write("dev", name, text); a.Code/100 != 2 {
			t.Errorf("write %q: %v", name, a)
		}
		if a := c.Read("dev", name); a.Text != text {
			t.Errorf("read %q: %v", name, a)
		}
	}
	if got := c.Sh("dev", "ls -A /workspace; find n -type f -printf x"); got != "n\n"+strings.Repeat("x", len(evil)) {
		t.Errorf("in the sandbox there are %q", got)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("a command ran on the host")
	}
	check()
}

// saidBy is what a command said.
func saidBy(t *testing.T, a Answer) string {
	t.Helper()
	var res executed
	if err := json.Unmarshal([]byte(a.Text), &res); err != nil || a.Code != http.StatusOK {
		t.Errorf("no result: %v", a)
	}
	return res.Output
}

// TestAPI08: no number of a limit or a time means more than is allowed, whatever
// its size and form.
func TestAPI08(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--limits-lifetime", "48h", "--limits-idle-timeout", "24h")
	c := d.Admin()
	keep := c.Create(`{"name":"dev"}`)
	wrong := []string{"-1", "1e12", "9223372036854775808", "18446744073709551616", "1e300", "-1e300", "NaN", "Infinity", `"4XB"`, `"-1"`, `"1e9"`, `"NaN"`, `""`, `" "`, `"９"`, "true", "[]", "{}", `"0x10"`, `"1 g"`, `"999999999t"`}
	for field, more := range map[string][]string{
		"memory": {"0", "0.0001", "1"}, "disk": {"0", "0.0001", "1"}, "shm": {"0", "0.0001"}, "cpus": {"0", "0.0001"}, "pids": {"0", "0.0001"},
		"lifetime": {"0", "0.0001"}, "idle_timeout": {"0", "0.0001"}, // 0 is without end, which is more than 48 hours
	} {
		for _, v := range append(slices.Clone(wrong), more...) {
			if a := c.Send("POST", api+"/sandboxes", `{"`+field+`":`+v+`}`); a.Code != 400 && a.Code != 422 || !a.Refused() {
				t.Errorf("%s %s: %v", field, v, a)
			}
			if field != "lifetime" && field != "idle_timeout" {
				continue
			}
			if a := c.Send("PATCH", api+"/sandboxes/dev", `{"`+field+`":`+v+`}`); a.Code != 400 && a.Code != 422 {
				t.Errorf("change %s to %s: %v", field, v, a)
			}
		}
	}
	for _, field := range []string{"timeout", "max_output"} {
		for _, v := range append([]string{"0", "0.0000000001"}, wrong...) {
			if a := c.Send("POST", api+"/sandboxes/dev/execute", `{"command":"true","`+field+`":`+v+`}`); a.Code != 400 && a.Code != 422 {
				t.Errorf("%s %s: %v", field, v, a)
			}
		}
	}
	runs := c.Background("dev", "sleep infinity") // of one that does not everything is refused
	for _, query := range []string{"timeout=-1", "timeout=1e300s", "timeout=NaN", "timeout=4XB", "timeout=9223372036854775808h"} {
		if a := c.Send("POST", api+"/sandboxes/dev/execs/"+runs+"/wait?"+query, ""); a.Code != 400 && a.Code != 422 {
			t.Errorf("wait with %s: %v", query, a)
		}
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=1e3", "limit=9223372036854775808", "limit=1001", "limit=NaN", "limit=+1", "limit=%201", "limit=0x1"} {
		if a := c.Send("GET", api+"/sandboxes?"+query, ""); a.Code != 400 && a.Code != 422 {
			t.Errorf("?%s: %v", query, a)
		}
	}
	for _, v := range append([]string{"0", `"0"`, `"1e3"`}, wrong...) {
		for field, path := range map[string]string{"memory_limit": "/api/sandboxes", "cpu_limit": "/api/sandboxes", "timeout": "/api/sandboxes/dev/execute"} {
			if v == `""` {
				continue // it says nothing
			}
			body := `{"project_name":"p","command":["true"],"` + field + `":` + v + `}`
			if a := c.Send("POST", path, body); a.Code != 400 && a.Code != 422 {
				t.Errorf("%s %s: %v", path, body, a)
			}
		}
		if a := c.Send("POST", "/api/sandboxes/dev/cleanup?hours="+url.QueryEscape(strings.Trim(v, `"`)), ""); a.Code != 422 && v != "0" && v != `"0"` {
			t.Errorf("cleanup after %s hours: %v", v, a)
		}
	}
	const most, least = math.MaxInt64, math.MinInt64
	for protocol := range protocols {
		rpc := c.RPC(protocol)
		for _, l := range []*sandboxv1.Limits{{MemoryBytes: -1}, {MemoryBytes: 1}, {MemoryBytes: most}, {MemoryBytes: least}, {Cpus: -1}, {Cpus: 1e-9}, {Cpus: 1e300}, {Cpus: math.NaN()}, {Cpus: math.Inf(1)}, {DiskBytes: -1}, {DiskBytes: most}, {Pids: -1}, {Pids: most}} {
			if a, err := rpc.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{Limits: l}); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s with %v: %v, %v", protocol, l, a, err)
			}
		}
		for _, timeout := range []int32{-1, math.MaxInt32, math.MinInt32} {
			if a, err := rpc.Exec(t.Context(), &sandboxv1.ExecRequest{SessionId: "dev", Command: "true", Timeout: timeout}); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("%s for %d s: %v, %v", protocol, timeout, a, err)
			}
		}
	}
	if got := c.Sandboxes(); !slices.Equal(got, []string{keep.ID}) {
		t.Errorf("the sandboxes are %v", got)
	}
	// The control: null is the default, and what is said holds.
	a := c.Send("POST", api+"/sandboxes", `{"memory":"300m","cpus":0.5,"disk":null,"lifetime":"1h","idle_timeout":null}`)
	for _, want := range []string{`"memory":314572800`, `"cpus":0.5`, `"disk":4294967296`, `"idle_timeout":1800`} {
		if a.Code != 201 || !strings.Contains(a.Text, want) {
			t.Errorf("no %s: %d %s", want, a.Code, a.Text)
		}
	}
}

// TestAPI09: no spelling of a path, a method or a header reaches what the plain one
// does not.
func TestAPI09(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--rate-limit-refused", "0")
	acme, nobody := d.Tenant("acme"), &Client{t: t, d: d}
	acme.Create(`{"name":"dev"}`)
	spellings := []string{
		"/api/v1/../v1/keys", "/api/v1//keys", "//api/v1/keys", "/api/./v1/keys", "/api/v1/keys/", "/api/v1/keys/.", "/api/v1/sandboxes/../keys", "/api/v1/%2e%2e/v1/keys", "/api/v1/sandboxes/%2e%2e/keys", "/api/v1/sandboxes/%2e%2e%2fkeys",
		"/api/v1/keys;x", "/api/v1;x/keys", "/API/V1/keys", "/api/v1/KEYS", "/api/v1/keys%00", "/api/v1/keys%20", "/api/v1/keys%2f", "/api%2fv1%2fkeys", "/api/v1/k%65ys", "/health/../api/v1/keys", "/health%2f..%2fapi/v1/keys", "/api/v1/keys%3f", "/api/v1/keys#", "/api/v1/keys%23",
		`/api\v1\keys`, "/api/v1/keys/..;/keys", "/readiness/..%2fapi/v1/keys", "http://localhost/api/v1/keys", "http://evil.test/api/v1/keys",
	}
	headers := map[string]string{
		"": "", "override": "X-HTTP-Method-Override: GET\r\nX-HTTP-Method: GET\r\nX-Method-Override: GET\r\n", "original": "X-Original-URL: /api/v1/keys\r\nX-Rewrite-URL: /api/v1/keys\r\n",
		"proxy": "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\nX-Forwarded-Proto: https\r\nForwarded: for=127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\n", "owner": "X-Owner: default\r\nX-Admin: true\r\nX-Forwarded-User: root\r\n",
	}
	for _, path := range spellings {
		for name, h := range headers {
			for who, want := range map[*Client]string{acme: " 4", nobody: " 401"} {
				key := ""
				if who.Key != "" {
					key = "X-API-Key: " + who.Key + "\r\n"
				}
				answer := d.Raw("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + key + h + "Connection: close\r\n\r\n")
				line, _, _ := strings.Cut(answer, "\r\n")
				if !strings.HasPrefix(line, "HTTP/1.1"+want) && !strings.HasPrefix(line, "HTTP/1.1 400") && !strings.HasPrefix(line, "HTTP/1.1 403") || strings.Contains(answer, `"created_at"`) {
					t.Errorf("%s, %s: %.300q", path, name, answer)
				}
			}
		}
	}
	rpc := "/sandbox.v1.SandboxService/ListSessions"
	for _, path := range []string{"/." + rpc, "/" + rpc, "/x/.." + rpc, strings.ToUpper(rpc), rpc + "/", rpc + ";x", rpc + "%00", strings.Replace(rpc, "S", "%53", 2) + "x", "/sandbox.v1.SandboxService%2fListSessions", "/health/.." + rpc, "/grpc.health.v1.Health/.." + rpc, "/grpc.health.v1.Health/Check/../../.." + rpc, "/api/sandboxes/..%2f.." + rpc} {
		answer := d.Raw("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		if !strings.HasPrefix(answer, "HTTP/1.1 4") || strings.Contains(answer, "containerId") {
			t.Errorf("%s without a key: %.300q", path, answer)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "HEAD"} {
		if a := acme.Send(method, rpc+"?message=%7B%7D&encoding=json&connect=v1", "", "X-HTTP-Method-Override", "POST"); a.Code != 405 {
			t.Errorf("%s of an rpc: %v", method, a)
		}
	}
	for _, h := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		if a := acme.Send("GET", api+"/sandboxes/dev?_method=DELETE", "", h, "DELETE"); a.Code == 204 {
			t.Errorf("%s: %v", h, a)
		}
		if a := acme.Send("POST", api+"/sandboxes/dev", "{}", h, "DELETE"); a.Code != 405 {
			t.Errorf("%s: %v", h, a)
		}
	}
	if got := acme.Sandboxes(); len(got) != 1 {
		t.Errorf("the sandboxes are %v", got)
	}
	// Ids with a slash or dots in them are ids, not paths.
	for _, id := range []string{"%2e%2e%2fkeys", "..%2f..%2fhealth", "dev%2ffiles", "dev%00", "dev%0a", "%20dev", "dev;x", "DEV"} {
		if a := acme.Send("GET", api+"/sandboxes/"+id, ""); a.Code != 404 {
			t.Errorf("%s: %v", id, a)
		}
	}
	// The control: the plain path works, with an admin's key.
	if a := d.Admin().Send("GET", api+"/keys", ""); a.Code != 200 || !strings.Contains(a.Text, `"created_at"`) {
		t.Errorf("the plain path: %v", a)
	}
}
