package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/rest/resttest"
)

// routesOf are the routes below a sandbox that the served OpenAPI document has.
func (d *Daemon) routesOf() (list [][2]string) {
	d.t.Helper()
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(d.Admin().Send("GET", "/openapi.json", "").Text), &doc); err != nil {
		d.t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if i := strings.Index(path, "/sandboxes/{id}"); i >= 0 {
				list = append(list, [2]string{strings.ToUpper(method), path[i:]})
			}
		}
	}
	return list
}

// bodies that are right, for routes that take one.
var bodies = map[string]string{
	"POST /execute": `{"command":"id"}`, "POST /execute/stream": `{"command":"id"}`, "POST /sessions": `{"name":"x"}`, "PATCH ": `{}`,
	"POST /execs/x/signal": `{"signal":"TERM"}`, "POST /execs/x/resize": `{"cols":80,"rows":24}`, "POST /files/mkdir": `{"path":"/x"}`,
	"POST /files/move": `{"from":"/a","to":"/b"}`, "POST /files/copy": `{"from":"/a","to":"/b"}`, "POST /files/chmod": `{"path":"/a","mode":"644"}`,
	"POST /files/chown": `{"path":"/a","owner":"0"}`, "POST /files/symlink": `{"path":"/a","target":"/b"}`,
	"POST /packages/pip": `{"packages":["six"]}`, "POST /packages/npm": `{"packages":["express"]}`, "POST /packages/apt": `{"packages":["jq"]}`,
	"PUT /network": `{"mode":"none"}`, "PATCH /network": `{"add":["a.example"]}`, "POST /network/requests/{request}": `{"decision":"deny"}`,
}

// TestB197: with another owner's key there is no way to a sandbox, whatever its
// route, and the refusals are recorded.
func TestB197(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	box := NewRemote(t, sandbox.Limits{})
	made := d.Run("key", "create", "--owner", "b197")
	key := strings.TrimSpace(made.Stdout)
	if made.Code != 0 {
		t.Fatalf("key create: %+v", made)
	}
	routes := d.routesOf()
	if len(routes) < 35 {
		t.Errorf("only %d routes", len(routes))
	}
	for pattern, row := range resttest.InProject {
		if a := d.As(key).ask(pattern, row, box.remote.id, "", ""); a.Code != 404 || a.Problem().Code != "not_found" {
			t.Errorf("%s: %v", pattern, a)
		}
	}
	for _, r := range routes {
		rest := strings.TrimPrefix(strings.NewReplacer("{exec}", "x", "{name}", "x", "{port}", "80").Replace(r[1]), "/sandboxes/{id}")
		path := box.remote.at(rest)
		if strings.HasPrefix(rest, "/files") && r[0] != "POST" {
			path += "?" + query("path", "/etc/passwd")
			if strings.HasSuffix(rest, "/glob") || strings.HasSuffix(rest, "/search") {
				path += "&pattern=x"
			}
		}
		headers := []string{"Content-Type", "application/json"}
		switch {
		case strings.HasSuffix(rest, "/terminal"), strings.HasSuffix(rest, "/connect"):
			headers = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
		case strings.HasSuffix(rest, "/archive"):
			headers = []string{"Content-Type", "application/x-tar"}
		}
		_, err := d.As(key).Request(t.Context(), r[0], path, strings.NewReader(bodies[r[0]+" "+rest]), headers...)
		var p *Problem
		if r[0] == "HEAD" && err != nil && strings.HasPrefix(err.Error(), "status 404 ") {
			continue // it has no body
		}
		if !asProblem(err, &p) || p.Status != 404 && p.Code != "unsupported" && (p.Code != "forbidden" || !strings.HasPrefix(rest, "/network/requests")) { // that is for admins

			t.Errorf("%s %s: %v", r[0], rest, err)
		}
	}
	var all servedList
	if code := d.Do(key, "GET", "/sandboxes", "", &all); code != 200 || len(all.Items) != 0 {
		t.Errorf("its list: %d %+v", code, all)
	}
	var audit struct {
		Items []struct{ Action, Result, Sandbox string }
	}
	if d.Do(key, "GET", "/audit?limit=1000", "", &audit); len(audit.Items) < 10 {
		t.Errorf("%d refusals are recorded", len(audit.Items))
	}
	for _, rec := range audit.Items {
		if rec.Result == "ok" || rec.Sandbox != "" {
			t.Errorf("recorded: %+v", rec)
		}
	}
	box.Want("alive\n", "echo alive")
}

// TestB200: of what was in a sandbox the next ones, of another owner, have nothing.
func TestB200(t *testing.T) {
	t.Parallel()
	d := SharedDaemon(t)
	id := d.Make(nil)
	d.Box(id).Want("", "echo s200 > /tmp/s; echo s200 > ~/s; echo s200 > /var/tmp/s; echo s200 > /dev/shm/s; (sleep 33.200 >/dev/null 2>&1 &)")
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
		t.Fatalf("delete: %d", code)
	}
	other := d.With(t)
	other.Key = d.Tenant("b200").Key
	for range Sized(3, 10) {
		id := other.Make(nil)
		box := other.Box(id)
		box.Want(ids.Short(id)+"\n", "hostname")
		box.Want("", "ls -d /tmp/s ~/s /var/tmp/s /dev/shm/s 2>/dev/null; grep -rl s200 /workspace /tmp /var/tmp /root 2>/dev/null; true")
		if n := box.Count("33.200"); n != 0 {
			t.Errorf("%d processes of another sandbox", n)
		}
		if code := other.Do(other.Key, "DELETE", "/sandboxes/"+id, "", nil); code != 204 {
			t.Errorf("delete: %d", code)
		}
	}
}

// TestB202: on a host that can't enforce a limit, one that was asked for is
// refused and a default is named.
func TestB202(t *testing.T) {
	t.Parallel()
	dir := ordinaryUser(t)
	d := &Daemon{t: t, Dir: filepath.Join(dir, "data"), logs: &lockedBuffer{}, adjust: func(cmd *exec.Cmd) {
		cmd.Path, cmd.Env = filepath.Join(dir, "agentbox"), []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "AGENTBOX_DATA_DIR=" + filepath.Join(dir, "data")}
		asUser(cmd, uid)
	}}
	d.forTest(t)
	var sb struct {
		ID          string
		NotEnforced []string `json:"not_enforced"`
	}
	if code := d.Do(d.Key, "POST", "/sandboxes", "{}", &sb); code != 201 || sb.NotEnforced == nil {
		t.Fatalf("create: %d %+v", code, sb)
	}
	d.Box(sb.ID).Want("ok\n", "echo ok")
	t.Logf("not enforced: %v", sb.NotEnforced)
	for limit, body := range map[string]string{
		sandbox.LimitMemory: `{"memory":"256m"}`, sandbox.LimitCPUs: `{"cpus":0.5}`, sandbox.LimitPids: `{"pids":100}`, sandbox.LimitDisk: `{"disk":"100m"}`,
	} {
		var p struct {
			Code, Detail string
			NotEnforced  []string `json:"not_enforced"`
		}
		code := d.Do(d.Key, "POST", "/sandboxes", body, &p)
		if refused := slices.Contains(sb.NotEnforced, limit); refused && (p.Code != "unsupported" || !strings.Contains(p.Detail, limit)) || !refused && code != 201 {
			t.Errorf("%s: %d %+v; not enforced are %v", body, code, p, sb.NotEnforced)
		}
	}
}

// TestB203: nothing that only agentbox may know is in the environment or command
// line of a process in the sandbox.
func TestB203(t *testing.T) {
	t.Parallel()
	box := SharedRemote(t)
	for _, user := range []string{"", "root"} {
		res := box.Exec(sandbox.Command{User: user, Shell: `cat /proc/[0-9]*/environ | tr '\0' '\n' | grep -viE '^(PWD|OLDPWD)=' | grep -iE 'key|secret|token|jwt|pass'; cat /proc/[0-9]*/cmdline | tr '\0' ' ' | grep -oE 'abx_[0-9a-f]+'; true`}, nil)
		if len(res.Stdout) != 0 {
			t.Errorf("user %q sees %q", user, res.Stdout)
		}
	}
	// The control: what a command is given is seen that way.
	res := box.Exec(sandbox.Command{Env: []string{"API_TOKEN=x"}, Shell: `cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -c API_TOKEN`}, nil)
	if n := strings.TrimSpace(string(res.Stdout)); n == "0" || n == "" {
		t.Errorf("a variable is seen %q times", n)
	}
}

// TestB205: nothing of the daemon's environment is in a sandbox, at any door.
func TestB205(t *testing.T) {
	t.Parallel()
	canaries := NewCanaries(t) // also in the environment
	t.Log("in the environment:", len(canaries.texts))
	d := StartDaemon(t)
	box := d.Box(d.Make(nil))
	const look = `env; cat /proc/*/environ /proc/*/cmdline | tr '\0' '\n'`
	var texts []string
	for _, user := range []string{"", "root"} {
		texts = append(texts, string(box.Exec(sandbox.Command{Shell: look, User: user}, nil).Stdout))
	}
	texts = append(texts, string(box.InSession("s").Sh(look).Stdout))
	w := box.OpenTerminal("")
	w.Type(look + "; echo en\"\"d\n")
	w.WaitFor(`[\r\n]end\r\n`)
	texts = append(texts, w.Screen())
	for i, text := range texts {
		if !strings.Contains(text, "PATH=") {
			t.Errorf("text %d shows no environment: %.200q", i, text)
		}
	}
	canaries.Check(texts...)
	canaries.Check(d.logs.String())
}

// TestB207: a sandbox sees its own processes only.
func TestB207(t *testing.T) {
	t.Parallel()
	box, other := NewRemote(t, sandbox.Limits{}), SharedRemote(t)
	job := encode(t, map[string]any{"command": "sleep 33.207", "detach": true})
	if code := box.remote.d.Do(box.remote.d.Key, "POST", box.remote.at("/execute"), job, nil); code != 202 {
		t.Fatalf("a command: %d", code)
	}
	box.WaitCount("33.207", 1, 10*time.Second)
	if n := other.Count("33.207"); n != 0 {
		t.Errorf("another sandbox sees %d of its processes", n)
	}
	res := box.Exec(sandbox.Command{User: "root", Shell: `ls /proc | grep -cE '^[0-9]+$'; cat /proc/[0-9]*/cmdline | tr '\0' ' '`}, nil)
	var n int
	if _, err := fmt.Sscan(string(res.Stdout), &n); err != nil || n < 2 || n > 15 {
		t.Errorf("it sees %d processes, %v: %s", n, err, res.Stdout)
	}
	for _, theirs := range []string{"agentbox serve", "--data-dir", box.remote.d.Dir, "e2e.test"} {
		if strings.Contains(string(res.Stdout), theirs) {
			t.Errorf("it sees %q: %s", theirs, res.Stdout)
		}
	}
}
