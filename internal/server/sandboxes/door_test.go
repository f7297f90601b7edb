package sandboxes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/sandboxes"
)

// TestLimits: what a caller names holds as it is, or is refused; what nobody names is
// the door's.
func TestLimits(t *testing.T) {
	w := start(t)
	for body, want := range map[string]string{
		`{"project_name":"p"}`: "2147483648 2 2g 2.0",
		`{"project_name":"p","memory_limit":"1g","cpu_limit":"1.0"}`:              "1073741824 1 1g 1.0",
		`{"project_name":"p","memory_limit":"512MB","cpu_limit":".5"}`:            "536870912 0.5 512MB .5",
		`{"project_name":"p","memory_limit":536870912,"cpu_limit":1}`:             "536870912 1 536870912 1",
		`{"project_name":"p","memory_limit":null,"cpu_limit":null,"ports":null}`:  "2147483648 2 2g 2.0",
		`{"project_name":"p","surprise":1,"ports":{},"env":{"A":"b"},"image":""}`: "2147483648 2 2g 2.0",
	} {
		sb := w.create(body)
		full, err := w.boxes.Get(t.Context(), sandbox.Caller{Owner: "acme"}, sb.SandboxID)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(full.Limits.Memory, " ", full.Limits.CPUs, " ", sb.ResourceLimits.Memory, " ", sb.ResourceLimits.CPU); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
		if full.Lifetime != sandbox.Never || full.IdleTimeout != time.Hour || full.OnIdle != sandbox.IdleStop || full.Limits.Disk != 10*sandbox.GiB || full.KeepStopped != 24*time.Hour {
			t.Errorf("%s: %+v", body, full)
		}
		w.send(w.user, "DELETE", "/api/sandboxes/"+sb.SandboxID, "")
	}
	id := w.create(`{"project_name":"p","memory_limit":"1g"}`).SandboxID
	if _, err := w.boxes.Update(t.Context(), sandbox.Caller{Owner: "acme"}, id, sandbox.Update{Limits: sandbox.Limits{Memory: 2 * sandbox.GiB}}); err != nil {
		t.Fatal(err)
	}
	if a := w.send(w.user, "GET", "/api/sandboxes/"+id, ""); !strings.Contains(a.text, `"memory":"2g"`) {
		t.Errorf("after another door changed it: %s", a.text)
	}
}

// TestBadRequests: the form of a request is told field by field (422), a value that is
// not allowed by its field (400), and nothing is made.
func TestBadRequests(t *testing.T) {
	w := start(t)
	for body, want := range map[string]string{
		``: "422 [body]", `{`: "422 [body]", `[]`: "422 [body]", `null`: "422 [body]", `{"project_name":"a","project_name":"b"}`: "422 [body]",
		`{}`: "422 [body project_name]", `{"project_name":null}`: "422 [body project_name]", `{"project_name":1}`: "422 [body project_name]",
		`{"project_name":"p","memory_limit":true}`: "422 [body memory_limit]", `{"project_name":"p","cpu_limit":[]}`: "422 [body cpu_limit]",
		`{"project_name":"p","ports":[]}`: "422 [body ports]", `{"project_name":"p","ports":{"80":"x"}}`: "422 [body ports]", `{"project_name":"p","env":{"A":1}}`: "422 [body env]",
		`{"project_name":"p","image":7}`: "422 [body image]",
		`{"project_name":""}`:            "400 project_name", `{"project_name":"../x"}`: "400 project_name", `{"project_name":"` + strings.Repeat("x", 129) + `"}`: "400 project_name",
		`{"project_name":"p","memory_limit":"lots"}`: "400 memory_limit", `{"project_name":"p","memory_limit":"0"}`: "400 memory_limit", `{"project_name":"p","memory_limit":"900g"}`: "400 memory",
		`{"project_name":"p","cpu_limit":"0"}`: "400 cpu_limit", `{"project_name":"p","cpu_limit":"1e0"}`: "400 cpu_limit", `{"project_name":"p","cpu_limit":"nan"}`: "400 cpu_limit", `{"project_name":"p","cpu_limit":"-1"}`: "400 cpu_limit", `{"project_name":"p","cpu_limit":"64"}`: "400 cpus",
		`{"project_name":"p","ports":{"0":80}}`: "400 ports", `{"project_name":"p","ports":{"x":80}}`: "400 ports", `{"project_name":"p","ports":{"80":70000}}`: "400 ports", `{"project_name":"p","ports":{"80":1.5}}`: "400 ports", `{"project_name":"p","ports":{"80":-1}}`: "400 ports", `{"project_name":"p","ports":{"80":22}}`: "400 ports",
		`{"project_name":"p","env":{"A=":"x"}}`: "400 env", `{"project_name":"p","image":"missing"}`: "400 image",
	} {
		a := w.send(w.user, "POST", "/api/sandboxes", body, "Content-Type", "application/json")
		if got := told(a); got != want {
			t.Errorf("%s: %s (%s), want %s", body, got, a.text, want)
		}
	}
	if a := w.send(w.user, "POST", "/api/sandboxes", `{"project_name":"p"}`, "Content-Type", "text/plain"); a.code != http.StatusUnsupportedMediaType {
		t.Errorf("a form of a page: %+v", a)
	}
	id := w.create(`{"project_name":"p"}`).SandboxID
	for body, want := range map[string]string{
		`{}`: "422 [body command]", `{"command":{}}`: "422 [body command]", `{"command":[1]}`: "422 [body command]", `{"command":[]}`: "400 command", `{"command":""}`: "400 command",
		`{"command":["x"],"workdir":1}`: "422 [body workdir]", `{"command":["x"],"env":[]}`: "422 [body env]", `{"command":["x"],"env":{"A=":"b"}}`: "400 env",
		`{"command":["x"],"timeout":0}`: "400 timeout", `{"command":["x"],"timeout":"soon"}`: "400 timeout", `{"command":["x"],"timeout":999999999}`: "400 timeout", `{"command":["x"],"timeout":[]}`: "422 [body timeout]",
	} {
		if a := w.send(w.user, "POST", "/api/sandboxes/"+id+"/execute", body); told(a) != want {
			t.Errorf("execute %s: %s (%s), want %s", body, told(a), a.text, want)
		}
	}
	for path, want := range map[string]string{
		"DELETE /api/sandboxes/" + id + "?remove_volume=perhaps": "422 [query remove_volume]", "DELETE /api/sandboxes/" + id + "?remove_volume=0&remove_volume=1": "422 [query remove_volume]",
		"POST /api/sandboxes/x/cleanup?hours=-1": "422 [query hours]", "POST /api/sandboxes/x/cleanup?hours=x": "422 [query hours]", "POST /api/sandboxes/x/cleanup?hours=%zz": "422 [query]",
	} {
		method, path, _ := strings.Cut(path, " ")
		if a := w.send(w.user, method, path, ""); told(a) != want {
			t.Errorf("%s %s: %s, want %s", method, path, a.text, want)
		}
	}
	if a := w.send(w.user, "GET", "/api/sandboxes", ""); strings.Count(a.text, "sandbox_id") != 1 || len(w.kept()) != 1 {
		t.Errorf("there are %s and %v", a.text, w.kept())
	}
}

// told is the status of an error and what it is about.
func told(a answer) string {
	var form struct{ Detail []struct{ Loc []any } }
	if json.Unmarshal([]byte(a.text), &form) == nil && len(form.Detail) > 0 {
		return fmt.Sprint(a.code, " ", form.Detail[0].Loc)
	}
	var p struct{ Field string }
	_ = json.Unmarshal([]byte(a.text), &p) // empty, then
	return fmt.Sprint(a.code, " ", p.Field)
}

// TestWorkspaces: each sandbox has its own, which goes with it or is kept for the next
// of the same project and owner; nobody else's files go.
func TestWorkspaces(t *testing.T) {
	w := start(t)
	keep := func(project, text string) {
		sb := w.create(`{"project_name":"` + project + `"}`)
		w.run(sb.SandboxID, "echo "+text+" >/workspace/f")
		if a := w.send(w.user, "DELETE", "/api/sandboxes/"+sb.SandboxID+"?remove_volume=false", ""); a.code != 200 {
			t.Fatalf("%+v", a)
		}
	}
	keep("a", "first")
	keep("a-sandbox-00000000", "other")
	long := strings.Repeat("x", 128)
	keep(long, "long")
	if got := w.kept(); len(got) != 3 {
		t.Fatalf("kept are %v", got)
	}
	one := w.create(`{"project_name":"a"}`)
	if got := w.run(one.SandboxID, "cat /workspace/f"); got != "first\n" {
		t.Errorf("the next one of the project has %q", got)
	}
	two := w.create(`{"project_name":"a"}`)
	if got := w.run(two.SandboxID, "ls /workspace"); got != "" {
		t.Errorf("a second one beside it has %q", got)
	}
	if got := w.run(w.create(`{"project_name":"`+long+`"}`).SandboxID, "cat /workspace/f"); got != "long\n" {
		t.Errorf("a project of a long name has %q", got)
	}
	if a := w.send(w.admin, "POST", "/api/sandboxes", `{"project_name":"a-sandbox-00000000"}`); a.code != 200 {
		t.Fatal(a)
	}
	for _, id := range []string{one.SandboxID, two.SandboxID} {
		w.send(w.user, "DELETE", "/api/sandboxes/"+id, "")
	}
	if got := strings.Join(w.kept(), " "); strings.Contains(got, "autocoder-a-sandbox-"+one.SandboxID[len("sandbox-"):]) || len(w.kept()) != 2 {
		t.Errorf("left are %s", got)
	}
	// A volume that somebody mounted by another door is not this door's to remove.
	if _, err := w.volumes.Create(t.Context(), "acme", "mine", 0); err != nil {
		t.Fatal(err)
	}
	sb, err := w.boxes.Create(t.Context(), sandbox.Caller{Owner: "acme"}, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Name: "mine", Path: sandbox.WorkspacePath}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if a := w.send(w.user, "DELETE", "/api/sandboxes/"+sb.UID+"?remove_volume=true", ""); a.code != 200 || !strings.Contains(strings.Join(w.kept(), " "), "mine") {
		t.Errorf("%+v, left are %v", a, w.kept())
	}
}

// TestFailedCreate: what is the caller's fault leaves nothing.
func TestFailedCreate(t *testing.T) {
	w := start(t)
	if a := w.send(w.user, "POST", "/api/sandboxes", `{"project_name":"p","image":"missing"}`); a.code != 400 {
		t.Errorf("%+v", a)
	}
	for i := range 9 { // the owner may have eight
		a := w.send(w.user, "POST", "/api/sandboxes", `{"project_name":"p"}`)
		if want := map[bool]int{true: 200, false: 429}[i < 8]; a.code != want {
			t.Errorf("number %d: %+v", i, a)
		}
	}
	if got := w.kept(); len(got) != 8 {
		t.Errorf("%d volumes for 8 sandboxes: %v", len(got), got)
	}
}

// TestEnded: a sandbox that ended by itself stays, with the reason, until it is
// deleted; its workspace is there for the next one.
func TestEnded(t *testing.T) {
	w := start(t)
	sb := w.create(`{"project_name":"p"}`)
	w.run(sb.SandboxID, "echo x >/workspace/f")
	if err := w.host.Kill(sb.ContainerID, sandbox.ReasonCrashed, "it was killed"); err != nil {
		t.Fatal(err)
	}
	var got sandboxes.Sandbox
	for deadline := time.Now().Add(time.Minute); got.Status != "error"; {
		a := w.send(w.user, "GET", "/api/sandboxes/"+sb.SandboxID, "")
		if err := json.Unmarshal([]byte(a.text), &got); err != nil || a.code != 200 || time.Now().After(deadline) {
			t.Fatalf("%+v", a)
		}
	}
	if got.ErrorReason != "crashed" || got.SandboxID != sb.SandboxID {
		t.Errorf("%+v", got)
	}
	if a := w.send(w.user, "POST", "/api/sandboxes/"+sb.SandboxID+"/execute", `{"command":["true"]}`); a.code != 400 || a.detail() != "Sandbox "+sb.SandboxID+" is not running" {
		t.Errorf("a command: %+v", a)
	}
	if a := w.send(w.user, "POST", "/api/sandboxes/"+sb.SandboxID+"/start", ""); a.code != 409 {
		t.Errorf("a start: %+v", a)
	}
	if a := w.send(w.user, "DELETE", "/api/sandboxes/"+sb.SandboxID+"?remove_volume=0", ""); a.code != 200 {
		t.Errorf("%+v", a)
	}
	if got := w.run(w.create(`{"project_name":"p"}`).SandboxID, "cat /workspace/f"); got != "x\n" {
		t.Errorf("the next one has %q", got)
	}
}

// TestSettingsAct: what an owner set is the default of the owner's sandboxes.
func TestSettingsAct(t *testing.T) {
	w := start(t)
	if a := w.send(w.user, "PATCH", "/api/settings", `{"sandbox_memory":"1gb","sandbox_timeout":"60","sandbox_image_size":"5gb","sandbox_auto_cleanup":false,"model":"x"}`); a.code != 200 {
		t.Fatalf("%+v", a)
	}
	id := w.create(`{"project_name":"p"}`).SandboxID
	sb, err := w.boxes.Get(t.Context(), sandbox.Caller{Owner: "acme"}, id)
	if err != nil || sb.Limits.Memory != sandbox.GiB || sb.Limits.Disk != 5*sandbox.GiB || sb.IdleTimeout != time.Minute || sb.KeepStopped != 0 {
		t.Errorf("%+v %v", sb, err)
	}
	if a := w.send(w.admin, "GET", "/api/settings", ""); !strings.Contains(a.text, `"sandbox_memory":"4gb"`) {
		t.Errorf("another owner's: %s", a.text)
	}
}

// TestRecords: what is done by this door is in the audit log, with the sandbox's own
// id.
func TestRecords(t *testing.T) {
	w := start(t)
	sb := w.create(`{"project_name":"p"}`)
	at := "/api/sandboxes/" + sb.SandboxID
	for _, call := range []string{"POST " + at + "/execute", "POST " + at + "/stop", "POST " + at + "/start", "DELETE " + at, "PATCH /api/settings"} {
		method, path, _ := strings.Cut(call, " ")
		body := map[string]string{"POST " + at + "/execute": `{"command":["true"]}`, "PATCH /api/settings": `{"use_sandbox":true}`}[call]
		if a := w.send(w.user, method, path, body, "X-Request-ID", "r-"+method); a.code != 200 {
			t.Errorf("%s: %+v", call, a)
		}
	}
	page, err := w.audit.Query(t.Context(), audit.Query{Owner: "acme", OldestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range page.Records {
		if r.Sandbox != sb.ContainerID && r.Action != audit.Policy || r.Result != audit.OK || r.RequestID == "" || r.KeyID == "" {
			t.Errorf("%+v", r)
		}
		got = append(got, string(r.Action))
	}
	if want := "create exec stop start destroy policy"; strings.Join(got, " ") != want {
		t.Errorf("recorded is %v, want %s", got, want)
	}
}

// TestOpenRoutes: who has no key learns that the server is there, and no more.
func TestOpenRoutes(t *testing.T) {
	w := start(t)
	for path, want := range map[string]string{
		"/api/health": `{"status":"healthy"}`, "/api/setup/status": `{"claude_cli":false,"credentials":false,"node":false,"npm":false}`,
		"/health": `{"status":"ok"}`, "/readiness": `{"status":"ready"}`,
	} {
		if a := w.send("", "GET", path, ""); a.code != 200 || strings.TrimSpace(a.text) != want {
			t.Errorf("%s: %+v", path, a)
		}
	}
	for _, path := range []string{"/api/health/x", "/api/healthy", "/api/setup/status/x", "/api/settings", "/metrics", "/api/sandboxes", "/api/sandbox/x"} {
		if a := w.send("", "GET", path, ""); a.code != 401 {
			t.Errorf("%s: %+v", path, a)
		}
	}
}

// TestNoBackEnd: a test that fails is a success of HTTP.
func TestNoBackEnd(t *testing.T) {
	w := start(t, func(p *auth.Policy) { p.NoAuth = true })
	a := w.send("", "POST", "/api/sandboxes/test", `{"use_sandbox":true,"sandbox_memory":"900g"}`)
	if a.code != 200 || !strings.Contains(a.text, `"success":false`) || !strings.Contains(a.text, "Sandbox test failed: ") {
		t.Errorf("%+v", a)
	}
	if a = w.send("", "POST", "/api/sandboxes/test", `{"use_sandbox":true,"sandbox_memory":"1gb"}`); a.code != 200 || !strings.Contains(a.text, `"success":true`) {
		t.Errorf("%+v", a)
	}
	if a = w.send("", "GET", "/api/sandboxes", ""); a.text != "[]\n" {
		t.Errorf("left is %s", a.text)
	}
	page, err := w.audit.Query(t.Context(), audit.Query{AllOwners: true, Action: audit.Exec})
	if err != nil || len(page.Records) != 1 || page.Records[0].Details["exec_id"] == "" {
		t.Errorf("of its command the log has %+v, %v", page.Records, err)
	}
}
