package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestServer goes through the life of a sandbox by HTTP, as the server's own
// words tell a new user to.
func TestServer(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)

	out, err := exec.Command("bash", "-c", d.Curl).Output()
	var sb served
	if e := json.Unmarshal(out, &sb); err != nil || e != nil || sb.Status != "running" || len(sb.ID) != 64 { // Q1
		t.Fatalf("%s gives %q, %v", d.Curl, out, err)
	}
	if len(SandboxPids(t, sb.ID)) == 0 || len(cgroupDirs(sb.ID)) == 0 {
		t.Error("nothing runs on the host")
	}
	var got served
	if code := d.Do(d.Key, "GET", "/sandboxes/"+sb.ShortID, "", &got); code != 200 || got.ID != sb.ID { // Q7
		t.Errorf("get: %d %+v", code, got)
	}
	if code := d.Do(d.Key, "GET", "/sandboxes/"+sb.ID[:6], "", &got); code != 404 || got.Detail != "Sandbox not found" {
		t.Errorf("a part of the id: %d %+v", code, got)
	}
	var all servedList
	if code := d.Do(d.Key, "GET", "/sandboxes", "", &all); code != 200 || len(all.Items) != 1 {
		t.Errorf("list: %d %+v", code, all)
	}
	var stats struct{ Memory, Processes int64 }
	if code := d.Do(d.Key, "GET", "/sandboxes/"+sb.ID+"/stats", "", &stats); code != 200 || stats.Processes == 0 {
		t.Errorf("stats: %d %+v", code, stats)
	}
	for command, want := range map[string]executed{
		`echo hi`:                                  {0, "hi\n"},                  // Q4
		`sh -c 'echo a; echo b >&2; exit 3'`:       {3, "a\nb\n"},                // Q5
		`echo a | tr a b`:                          {0, "b\n"},                   // Q6
		`id -un; pwd; touch f && kill -0 $$ && ls`: {0, "user\n/workspace\nf\n"}, // Q14
	} {
		var res executed
		body, err := json.Marshal(map[string]string{"command": command})
		if err != nil {
			t.Fatal(err)
		}
		if code := d.Do(d.Key, "POST", "/sandboxes/"+sb.ID+"/execute", string(body), &res); code != 200 || res != want {
			t.Errorf("%s: %d %+v", command, code, res)
		}
	}
	if code := d.Do(d.Key, "DELETE", "/sandboxes/"+sb.ID, "", nil); code != 204 { // Q12
		t.Errorf("delete: %d", code)
	}
	if pids, groups := SandboxPids(t, sb.ID), cgroupDirs(sb.ID); len(pids)+len(groups) != 0 {
		t.Errorf("left on the host: %v %v", pids, groups)
	}
	for range 2 {
		if code := d.Do(d.Key, "DELETE", "/sandboxes/"+sb.ID, "", &got); code != 404 || got.Code != "sandbox_destroyed" || got.Reason != "destroyed" {
			t.Errorf("delete again: %d %+v", code, got)
		}
	}
	for _, key := range []string{"", "abx_0000000000000000000000000000000000000000", d.Key + "0"} {
		if code := d.Do(key, "GET", "/sandboxes", "", nil); code != 401 {
			t.Errorf("with the key %q: %d", key, code)
		}
	}
	if out := Run(t, d.Dir, "", "serve", "--listen", "127.0.0.1:0"); out.Code == 0 || !strings.Contains(out.Stderr, "another daemon") {
		t.Errorf("a second daemon: %+v", out)
	}
	if out := Run(t, d.Dir, "", "purge", "--yes"); out.Code == 0 || !strings.Contains(out.Stderr, "another daemon") {
		t.Errorf("purge: %+v", out)
	}
}

// TestServerIsKilled: after a kill -9 the next daemon has the sandboxes, with
// their processes, and what was destroyed stays destroyed. A run beside it takes
// nothing away.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	var kept, gone, again served
	d.Do(d.Key, "POST", "/sandboxes", `{"name":"kept","labels":{"a":"1"}}`, &kept)
	d.Do(d.Key, "POST", "/sandboxes", `{"name":"gone"}`, &gone)
	if code := d.Do(d.Key, "DELETE", "/sandboxes/gone", "", nil); code != 204 {
		t.Fatalf("delete: %d", code)
	}
	var job struct {
		ExecID string `json:"exec_id"`
	}
	if code := d.Do(d.Key, "POST", "/sandboxes/kept/execute", `{"command":"i=0; while sleep 0.1; do i=$((i+1)); echo $i; done","detach":true}`, &job); code != 202 || job.ExecID == "" {
		t.Fatalf("a command in the background: %d %+v", code, job)
	}
	before := SandboxPids(t, kept.ID)
	d.Kill()
	if out := Run(t, d.Dir, "", "run", Image, "--", "true"); out.Code != 0 {
		t.Errorf("run beside a dead daemon: %+v", out)
	}
	key := d.Key
	d.Start()
	if d.Key != key {
		t.Error("the second start made a key")
	}
	if code := d.Do(key, "GET", "/sandboxes/kept", "", &again); code != 200 || again.ID != kept.ID || again.Status != "running" {
		t.Fatalf("after the kill: %d %+v", code, again)
	}
	if after := SandboxPids(t, kept.ID); len(before) == 0 || len(after) == 0 || before[0] != after[0] {
		t.Errorf("its processes were %v, and are %v", before, after)
	}
	// Its command goes on, and what it said meanwhile is there.
	output := func() string { return d.Text(key, "/sandboxes/kept/execs/"+job.ExecID+"/output?stream=stdout") }
	first, end := output(), time.Now().Add(10*time.Second+Slack())
	for next := first; ; next = output() {
		if !strings.HasPrefix(next, "1\n2\n"[:min(len(next), 4)]) || !strings.HasPrefix(next, first) {
			t.Fatalf("its command said %q, and later %q", first, next)
		}
		if len(next) > len(first)+4 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("its command says nothing more than %q", next)
		}
		time.Sleep(50 * time.Millisecond)
	}
	var events struct{ Items []struct{ Type string } }
	if d.Do(key, "GET", "/sandboxes/kept/events", "", &events); len(events.Items) != 3 || events.Items[2].Type != "adopted" {
		t.Errorf("its events: %+v", events)
	}
	if code := d.Do(key, "GET", "/sandboxes/"+gone.ID, "", &again); code != 404 || again.Reason != "destroyed" {
		t.Errorf("the destroyed one: %d %+v", code, again)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("told to end it ended with %d", code)
	}
	if len(SandboxPids(t, kept.ID)) == 0 {
		t.Error("the sandbox went with the daemon")
	}
	d.Start()
	if code := d.Do(key, "DELETE", "/sandboxes/kept", "", nil); code != 204 || len(SandboxPids(t, kept.ID)) != 0 {
		t.Errorf("delete after the second start: %d", code)
	}
}

// TestServerTEN01: two owners never see each other's sandboxes, whatever they
// call them by, and a revoked key lets nobody in.
func TestServerTEN01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	keys := map[string]string{}
	for _, owner := range []string{"acme", "zeta"} {
		out := d.Run("key", "create", "--owner", owner)
		if keys[owner] = strings.TrimSpace(out.Stdout); out.Code != 0 || !strings.HasPrefix(keys[owner], "abx_") {
			t.Fatalf("key create: %+v", out)
		}
	}
	var sb served
	d.Do(keys["acme"], "POST", "/sandboxes", `{"name":"dev"}`, &sb)
	for _, other := range []string{keys["zeta"], d.Key} { // also not an admin
		for _, id := range []string{sb.ID, sb.ShortID, "dev"} {
			for _, call := range []string{"GET ", "DELETE ", "PATCH ", "POST /start", "POST /stop", "GET /stats", "GET /events", "GET /isolation"} {
				method, suffix, _ := strings.Cut(call, " ")
				body := map[string]string{"PATCH": "{}"}[method]
				var p served
				if code := d.Do(other, method, "/sandboxes/"+id+suffix, body, &p); code != 404 || p.Code != "not_found" || p.Detail != "Sandbox not found" {
					t.Errorf("%s of %s: %d %+v", call, id, code, p)
				}
			}
		}
		var all servedList
		if d.Do(other, "GET", "/sandboxes", "", &all); len(all.Items) != 0 {
			t.Errorf("another owner's list has %+v", all)
		}
	}
	if code := d.Do(keys["acme"], "GET", "/keys", "", nil); code != 403 {
		t.Errorf("keys without an admin key: %d", code)
	}
	if code := d.Do(keys["acme"], "GET", "/sandboxes/dev", "", nil); code != 200 {
		t.Errorf("its owner: %d", code)
	}
	var list []struct{ ID, Owner string }
	if out := d.Run("key", "ls", "--json"); json.Unmarshal([]byte(out.Stdout), &list) != nil || len(list) != 3 {
		t.Fatalf("key ls: %+v", out)
	}
	if out := d.Run("key", "revoke", list[1].ID); out.Code != 0 {
		t.Errorf("key revoke: %+v", out)
	}
	if code := d.Do(keys["acme"], "GET", "/sandboxes/dev", "", nil); code != 401 {
		t.Errorf("a revoked key: %d", code)
	}
}

// TestServerEphemeral: without keys, for this machine only, and with sandboxes
// that go with the daemon. The command line is a client of it.
func TestServerEphemeral(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--ephemeral", "--no-auth")
	made := d.Run("create", "--name", "dev", "--label", "a=1")
	if id := strings.TrimSpace(made.Stdout); made.Code != 0 || len(id) != 12 {
		t.Fatalf("create: %+v", made)
	}
	for _, c := range []struct{ args, want string }{
		{"ls -q", strings.TrimSpace(made.Stdout)}, {"ls --label a=2 -q", ""}, {"ls", "dev"}, {"get dev", `"name": "dev"`},
	} {
		if out := d.Run(strings.Fields(c.args)...); out.Code != 0 || !strings.Contains(out.Stdout, c.want) || c.want == "" && out.Stdout != "" {
			t.Errorf("%s: %+v", c.args, out)
		}
	}
	for _, c := range []struct {
		in, args, stdout, stderr string
		code                     int
	}{
		{"", "exec dev -- sh -c", "", "", 2}, // of sh itself
		{"", "exec -e A=b dev -- printenv A", "b\n", "", 0},
		{"", "exec -w /tmp dev -- pwd", "/tmp\n", "", 0},
		{"\x00\xff\n", "exec -i dev -- cat", "\x00\xff\n", "", 0},
		{"", "exec dev -- ls /none", "", "/none", 2},
		{"", "exec --timeout 1s dev -- sleep 60", "", "", 124},
		{"", "exec dev -- nosuchprogram", "", "nosuchprogram", 127},
		{"", "exec none -- true", "", `no sandbox "none"`, 125},
		{"", "exec dev true", "", "put -- before", 125},
	} {
		out := Run(t, d.Dir, c.in, strings.Fields(c.args)...)
		if out.Code != c.code || out.Stdout != c.stdout || !strings.Contains(out.Stderr, c.stderr) {
			t.Errorf("%s: %+v", c.args, out)
		}
	}
	var sb served
	if code := d.Do("", "GET", "/sandboxes/dev", "", &sb); code != 200 {
		t.Errorf("without a key: %d", code)
	}
	r, err := http.NewRequestWithContext(t.Context(), "POST", d.URL+"/api/v1/sandboxes", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Origin", "https://evil.example")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 { // WEB-01
		t.Errorf("a foreign page: %d", resp.StatusCode)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if pids, groups := SandboxPids(t, sb.ID), cgroupDirs(sb.ID); len(pids)+len(groups) != 0 {
		t.Errorf("left on the host: %v %v", pids, groups)
	}
	if left, err := filepath.Glob(filepath.Join(d.Dir, "daemon", "*", sb.ID+"*")); err != nil || len(left) != 0 {
		t.Errorf("left on the disk: %v %v", left, err)
	}
	if out := d.Run("ls"); out.Code == 0 || !strings.Contains(out.Stderr, "agentbox serve") {
		t.Errorf("ls without a server: %+v", out)
	}
	// Told before an image is made, which takes minutes.
	if out := Run(t, d.Dir, "", "serve", "--no-auth", "--listen", "0.0.0.0:0", "--sandbox-image", "nosuch"); out.Code == 0 || !strings.Contains(out.Stderr, "without authentication") {
		t.Errorf("without keys for everybody: %+v", out)
	}
}
