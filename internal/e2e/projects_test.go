package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentbox/internal/ids"
)

// The door /api/sandboxes against the real server. The ids of the tests are those of
// its contract's cases.

// project is a sandbox as that door shows it.
type project struct {
	ID        string `json:"sandbox_id"`
	Container string `json:"container_id"`
	Name      string `json:"project_name"`
	Status    string
	Created   time.Time `json:"created_at"`
	Workspace string    `json:"workspace_path"`
	Ports     map[string]int
	Limits    map[string]string `json:"resource_limits"`
}

// projects is a client that knows no more than the contract, as an owner of its own.
type projects struct{ *Client }

func newProjects(t *testing.T) *projects {
	t.Parallel()
	return &projects{SharedDaemon(t).Tenant("projects-" + ids.Hex(3))}
}

// ok sends a request that is answered with 200, and decodes the answer into out.
func (p *projects) ok(method, path, body string, out any) Answer {
	p.t.Helper()
	a := p.Send(method, path, body)
	if a.Code != http.StatusOK {
		p.t.Fatalf("%s %s %s: %v", method, path, body, a)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(a.Text), out); err != nil {
			p.t.Fatalf("%s %s: %v: %v", method, path, a, err)
		}
	}
	return a
}

// make makes a sandbox, which goes with the test.
func (p *projects) make(fields string) (sb project) {
	p.t.Helper()
	p.ok("POST", "/api/sandboxes/", `{"project_name":"test","memory_limit":"512m","cpu_limit":"1.0"`+fields+`}`, &sb)
	p.t.Cleanup(func() {
		if a, err := p.Try("DELETE", "/api/sandboxes/"+sb.ID, strings.NewReader("")); err == nil && a.Code != 200 && a.Code != 404 {
			p.t.Errorf("delete %s: %v", sb.ID, a)
		}
	})
	return sb
}

// commandResult is how a command of that door ended.
type commandResult struct {
	Code   int `json:"exit_code"`
	Stdout string
	Stderr string
}

func (p *projects) run(id string, argv ...string) (r commandResult) {
	p.t.Helper()
	p.ok("POST", "/api/sandboxes/"+id+"/execute", `{"command":`+encode(p.t, argv)+`}`, &r)
	return r
}

func TestR01(t *testing.T) {
	p := newProjects(t)
	var fields map[string]any
	a := p.ok("POST", "/api/sandboxes/", `{"project_name":"test","memory_limit":"1g","cpu_limit":"1.0"}`, &fields)
	var sb project
	if err := json.Unmarshal([]byte(a.Text), &sb); err != nil {
		t.Fatal(err)
	}
	want := []string{"container_id", "created_at", "ports", "project_name", "resource_limits", "sandbox_id", "status", "workspace_path"}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("the fields are %v", got)
	}
	if !regexp.MustCompile(`^sandbox-[0-9a-f]{8}$`).MatchString(sb.ID) || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(sb.Container) || sb.Name != "test" || sb.Status != "running" ||
		!strings.HasSuffix(fields["created_at"].(string), "Z") || time.Since(sb.Created) > time.Hour || sb.Workspace != "/workspace" || fmt.Sprint(fields["ports"]) != "map[]" || fmt.Sprint(sb.Limits) != "map[cpu:1.0 memory:1g]" {
		t.Errorf("made is %s", a.Text)
	}
	p.ok("DELETE", "/api/sandboxes/"+sb.ID, "", nil)
}

func TestR02(t *testing.T) {
	p := newProjects(t)
	var sb project
	p.ok("POST", "/api/sandboxes", `{"project_name":"test","memory_limit":"512m"}`, &sb) // the client follows redirects of POST as GET
	if sb.Status != "running" || sb.Limits["cpu"] != "2.0" && sb.Limits["cpu"] != "1" {
		t.Errorf("made is %+v", sb)
	}
	p.ok("DELETE", "/api/sandboxes/"+sb.ID, "", nil)
}

func TestR03(t *testing.T) {
	p := newProjects(t)
	a := p.Send("POST", "/api/sandboxes/", `{"memory_limit":"1g"}`)
	var form struct{ Detail []struct{ Loc []string } }
	if err := json.Unmarshal([]byte(a.Text), &form); err != nil || a.Code != 422 || len(form.Detail) != 1 || strings.Join(form.Detail[0].Loc, ".") != "body.project_name" {
		t.Errorf("%v %v", a, err)
	}
}

func TestR04(t *testing.T) {
	p := newProjects(t)
	sb := p.make("")
	for query, want := range map[string]int{"": 1, "?project_name=test": 1, "?project_name=tes": 0, "?project_name=other": 0, "?project_name=": 0} {
		for _, path := range []string{"/api/sandboxes", "/api/sandboxes/"} {
			var all []project
			if a := p.ok("GET", path+query, "", &all); len(all) != want || want == 1 && all[0].ID != sb.ID {
				t.Errorf("%s%s: %v", path, query, a)
			}
		}
	}
}

func TestR05(t *testing.T) {
	p := newProjects(t)
	sb := p.make("")
	var got project
	if p.ok("GET", "/api/sandboxes/"+sb.ID, "", &got); fmt.Sprint(got) != fmt.Sprint(sb) {
		t.Errorf("got %+v, made was %+v", got, sb)
	}
	if a := p.Send("GET", "/api/sandboxes/sandbox-00000000", ""); a.Code != 404 || a.Problem().Detail != "Sandbox not found" {
		t.Errorf("an unknown one: %v", a)
	}
}

func TestR06(t *testing.T) {
	needImage(t, "default")
	p := newProjects(t)
	if r := p.run(p.make(`,"image":"default"`).ID, "node", "--version"); r.Code != 0 || !strings.HasPrefix(r.Stdout, "v20") {
		t.Errorf("%+v", r)
	}
}

func TestR07(t *testing.T) {
	p := newProjects(t)
	if r := p.run(p.make("").ID, "sh", "-c", "echo out; echo err >&2; exit 7"); r != (commandResult{7, "out\n", "err\n"}) {
		t.Errorf("%+v", r)
	}
}

func TestR08(t *testing.T) {
	p := newProjects(t)
	if r := p.run(p.make("").ID, "echo", "a;b", "$HOME"); r != (commandResult{0, "a;b $HOME\n", ""}) {
		t.Errorf("%+v", r)
	}
}

func TestR09(t *testing.T) {
	p := newProjects(t)
	if r := p.run(p.make("").ID, "no-such-program", "x"); r.Code != 127 || !strings.Contains(r.Stderr, "no-such-program") {
		t.Errorf("%+v", r)
	}
}

func TestR10(t *testing.T) {
	p := newProjects(t)
	sb := p.make("")
	p.run(sb.ID, "sh", "-c", "echo kept >/workspace/f; echo too >/tmp/g")
	p.ok("POST", "/api/sandboxes/"+sb.ID+"/stop", "", nil)
	if a := p.Send("POST", "/api/sandboxes/"+sb.ID+"/execute", `{"command":["true"]}`); a.Code != 400 || a.Problem().Detail != "Sandbox "+sb.ID+" is not running" {
		t.Errorf("a command in a stopped one: %v", a)
	}
	p.ok("POST", "/api/sandboxes/"+sb.ID+"/start", "", nil)
	if r := p.run(sb.ID, "cat", "/workspace/f", "/tmp/g"); r.Stdout != "kept\ntoo\n" {
		t.Errorf("after its start: %+v", r)
	}
}

func TestR11(t *testing.T) {
	p := newProjects(t)
	sb := p.make("")
	for _, c := range []struct{ verb, past, status string }{{"start", "started", "running"}, {"stop", "stopped", "stopped"}, {"stop", "stopped", "stopped"}, {"start", "started", "running"}, {"start", "started", "running"}} {
		a := p.ok("POST", "/api/sandboxes/"+sb.ID+"/"+c.verb, "", nil)
		if want := `{"success":true,"message":"Sandbox ` + sb.ID + ` ` + c.past + ` successfully"}`; strings.TrimSpace(a.Text) != want {
			t.Errorf("%s: %s", c.verb, a.Text)
		}
		var got project
		if p.ok("GET", "/api/sandboxes/"+sb.ID, "", &got); got.Status != c.status {
			t.Errorf("after %s it is %s", c.verb, got.Status)
		}
	}
}

func TestR12(t *testing.T) {
	p := newProjects(t)
	for _, call := range []string{"POST /api/sandboxes/sandbox-00000000/start", "POST /api/sandboxes/sandbox-00000000/stop", "DELETE /api/sandboxes/sandbox-00000000"} {
		method, path, _ := strings.Cut(call, " ")
		if a := p.Send(method, path, ""); a.Code != 404 || a.Problem().Detail != "Sandbox not found" {
			t.Errorf("%s: %v", call, a)
		}
	}
	if a := p.Send("POST", "/api/sandboxes/sandbox-00000000/execute", `{"command":["true"]}`); a.Code != 404 || a.Problem().Detail != "Sandbox sandbox-00000000 not found" {
		t.Errorf("execute: %v", a)
	}
}

func TestR13(t *testing.T) {
	p := newProjects(t)
	id := p.make("").ID
	p.run(id, "sh", "-c", "echo kept >/workspace/f")
	p.ok("DELETE", "/api/sandboxes/"+id+"?remove_volume=false", "", nil)
	id = p.make("").ID
	if r := p.run(id, "cat", "/workspace/f"); r.Stdout != "kept\n" {
		t.Errorf("the next one of the project: %+v", r)
	}
	p.ok("DELETE", "/api/sandboxes/"+id, "", nil)
	if r := p.run(p.make("").ID, "ls", "-A", "/workspace"); strings.Contains(r.Stdout, "f\n") {
		t.Errorf("after its removal: %+v", r)
	}
}

func TestR14(t *testing.T) {
	p := newProjects(t)
	runs, one, two := p.make(""), p.make(""), p.make("")
	other := p.Create(`{}`) // of another door
	for _, id := range []string{one.ID, two.ID, other.ShortID} {
		p.ok("POST", "/api/sandboxes/"+id+"/stop", "", nil)
	}
	for query, want := range map[string]string{"": "0", "?hours=1": "0"} {
		if a := p.ok("POST", "/api/sandboxes/any/cleanup"+query, "", nil); a.Text != `{"success":true,"message":"Cleaned up `+want+` stopped sandbox(es)"}`+"\n" {
			t.Errorf("%s: %v", query, a)
		}
	}
	if a := p.ok("POST", "/api/sandboxes/"+runs.ID+"/cleanup?hours=0", "", nil); a.Text != `{"success":true,"message":"Cleaned up 2 stopped sandbox(es)"}`+"\n" {
		t.Errorf("hours=0: %v", a)
	}
	var left []project
	p.ok("GET", "/api/sandboxes", "", &left)
	if len(left) != 2 || left[0].ID != runs.ID || left[1].ID != other.ShortID {
		t.Errorf("left are %+v", left)
	}
	p.ok("DELETE", "/api/sandboxes/"+other.ID, "", nil)
}

func TestR15(t *testing.T) {
	p := newProjects(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	ports := `,"ports":{"3000":` + strconv.Itoa(port) + `}`
	sb := p.make(ports)
	if fmt.Sprint(sb.Ports) != fmt.Sprintf("map[3000:%d]", port) {
		t.Errorf("the ports are %v", sb.Ports)
	}
	p.run(sb.ID, "sh", "-c", "echo hello >/workspace/f; cd /workspace; python3 -m http.server 3000 >/dev/null 2>&1 &")
	Until(t, soon, "the server in the sandbox", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/f", port))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b) == "hello\n"
	})
	if a := p.Send("POST", "/api/sandboxes", `{"project_name":"test","memory_limit":"512m"`+ports+`}`); a.Code != 409 || !strings.Contains(a.Problem().Detail, strconv.Itoa(port)) {
		t.Errorf("the same port again: %v", a)
	}
	var all []project
	if p.ok("GET", "/api/sandboxes", "", &all); len(all) != 1 {
		t.Errorf("there are %+v", all)
	}
}

func TestR16(t *testing.T) {
	p := newProjects(t)
	for _, path := range []string{"/api/sandboxes/test", "/api/sandbox/test"} {
		if a := p.ok("POST", path, `{"use_sandbox":false}`, nil); a.Text != `{"success":true,"message":"Direct execution mode - no sandbox testing required."}`+"\n" {
			t.Errorf("%s without: %v", path, a)
		}
		if a := p.ok("POST", path, `{"use_sandbox":true,"sandbox_image_size":"10gb","sandbox_memory":"512mb"}`, nil); a.Text != `{"success":true,"message":"Sandbox test passed! gVisor is working with 512mb memory limit."}`+"\n" {
			t.Errorf("%s with: %v", path, a)
		}
		if a := p.Send("POST", path, `{}`); a.Code != 422 {
			t.Errorf("%s without saying: %v", path, a)
		}
		if a := p.ok("POST", path, `{"use_sandbox":true,"sandbox_memory":"9000gb"}`, nil); !strings.Contains(a.Text, `"success":false`) {
			t.Errorf("%s with too much: %v", path, a)
		}
	}
	if a := p.ok("GET", "/api/sandboxes", "", nil); a.Text != "[]\n" {
		t.Errorf("left is %v", a)
	}
}

func TestR17(t *testing.T) {
	p := newProjects(t)
	want := func(what, text string) {
		t.Helper()
		if a := p.ok("GET", "/api/settings", "", nil); a.Text != text+"\n" {
			t.Errorf("%s: %s", what, a.Text)
		}
	}
	first := `{"use_sandbox":false,"sandbox_image_size":"10gb","sandbox_memory":"4gb","sandbox_timeout":"3600","sandbox_auto_cleanup":true}`
	want("at first", first)
	changed := strings.Replace(first, "4gb", "8gb", 1)
	if a := p.ok("PATCH", "/api/settings", `{"sandbox_memory":"8gb","yolo_mode":true,"model":"x"}`, nil); a.Text != changed+"\n" {
		t.Errorf("the change: %v", a)
	}
	want("after a change", changed)
	for _, body := range []string{
		`{"sandbox_memory":"32gb"}`, `{"sandbox_memory":"512mb"}`, `{"sandbox_memory":"x"}`, `{"sandbox_image_size":"1gb"}`, `{"sandbox_image_size":"51gb"}`, `{"sandbox_timeout":"59"}`, `{"sandbox_timeout":"86401"}`,
		`{"sandbox_timeout":"1h"}`, `{"sandbox_timeout":[]}`, `{"use_sandbox":"perhaps"}`, `{"use_sandbox":true,"sandbox_memory":"0"}`, `[]`,
	} {
		if a := p.Send("PATCH", "/api/settings", body); a.Code != 422 || !strings.HasPrefix(a.Text, `{"detail":[`) {
			t.Errorf("%s: %v", body, a)
		}
	}
	want("after changes that were refused", changed)
}

func TestR19(t *testing.T) {
	p := newProjects(t)
	if a := p.Send("GET", "/api/sandboxes", "", "X-Request-ID", "my-request.1"); a.Header.Get("X-Request-ID") != "my-request.1" {
		t.Errorf("its own: %v", a.Header)
	}
	if a := p.Send("GET", "/api/sandboxes/none", ""); !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(a.Header.Get("X-Request-ID")) || a.Problem().RequestID != a.Header.Get("X-Request-ID") {
		t.Errorf("none: %v %v", a, a.Header)
	}
}

func TestR20(t *testing.T) {
	p := newProjects(t)
	sb := p.make("")
	for _, pid := range append(CgroupPids(sb.Container), SandboxPids(t, sb.Container)...) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	}
	var got project
	Until(t, 10*time.Second, "the sandbox to be stopped or in error", func() bool {
		p.ok("GET", "/api/sandboxes/"+sb.ID, "", &got)
		return got.Status == "error" || got.Status == "stopped"
	})
	if a := p.Send("POST", "/api/sandboxes/"+sb.ID+"/execute", `{"command":["true"]}`); a.Code != 400 {
		t.Errorf("a command in it: %v", a)
	}
}
