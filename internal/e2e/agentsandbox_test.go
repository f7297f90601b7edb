package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
)

// The five calls that clients of AgentSandbox know, against the real server. The
// ids of the tests are those of that contract's cases.

// agentSandbox is a client that knows no more than that contract.
type agentSandbox struct {
	*Daemon
	t testing.TB
}

func newAgentSandbox(t *testing.T) *agentSandbox {
	t.Parallel()
	return &agentSandbox{StartDaemon(t), t}
}

// create makes a sandbox and returns its id.
func (a *agentSandbox) create() string {
	a.t.Helper()
	var sb served
	if code := a.Do(a.Key, "POST", "/sandboxes", "{}", &sb); code != 201 {
		a.t.Fatalf("create: %d %+v", code, sb)
	}
	return sb.ID
}

// execute runs a command; that must be possible.
func (a *agentSandbox) execute(id, command string) (res executed) {
	a.t.Helper()
	code, text := a.tryExecute(id, command)
	if err := json.Unmarshal([]byte(text), &res); code != 200 || err != nil {
		a.t.Fatalf("execute %s: %d %s", command, code, text)
	}
	return res
}

// want runs a command that succeeds with this output.
func (a *agentSandbox) want(id, output, command string) {
	a.t.Helper()
	if res := a.execute(id, command); res != (executed{0, output}) {
		a.t.Errorf("%s gives %+v, want %q", command, res, output)
	}
}

func (a *agentSandbox) tryExecute(id, command string) (code int, text string) {
	a.t.Helper()
	body, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		a.t.Fatal(err)
	}
	code, b := a.send(a.Key, "POST", "/sandboxes/"+id+"/execute", string(body))
	return code, string(b)
}

// upload sends a form with one file.
func (a *agentSandbox) upload(id, query, field, name, content string) (code int, text string) {
	a.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile(field, name)
	if err == nil {
		_, err = io.WriteString(part, content)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		a.t.Fatal(err)
	}
	resp, text := a.request("POST", "/sandboxes/"+id+"/files/upload"+query, form.FormDataContentType(), &body)
	return resp.StatusCode, text
}

func (a *agentSandbox) download(id, path string) (*http.Response, string) {
	a.t.Helper()
	return a.request("GET", "/sandboxes/"+id+"/files/download?path="+url.QueryEscape(path), "", nil)
}

func (a *agentSandbox) request(method, path, contentType string, body io.Reader) (*http.Response, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.URL+"/api/v1"+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", a.Key)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return resp, string(text)
}

// problem is an error whose detail is a text.
func (a *agentSandbox) problem(code int, text string, wantCode int, wantDetail string) {
	a.t.Helper()
	var p struct{ Detail string }
	if err := json.Unmarshal([]byte(text), &p); err != nil || code != wantCode || p.Detail != wantDetail {
		a.t.Errorf("%d %s, want %d %q", code, text, wantCode, wantDetail)
	}
}

// form is an error of a request's form: the places and kinds of what is wrong.
func (a *agentSandbox) form(code int, text string, want ...string) {
	a.t.Helper()
	var p struct {
		Detail []struct {
			Type string
			Loc  []any
			Msg  string
		}
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil || code != 422 {
		a.t.Errorf("%d %s, want 422 and a list", code, text)
		return
	}
	var got []string
	for _, e := range p.Detail {
		loc, _ := json.Marshal(e.Loc) // it was JSON
		got = append(got, e.Type+" "+string(loc))
		if e.Msg == "" {
			a.t.Errorf("%s says nothing in words", text)
		}
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		a.t.Errorf("%s\nsays %q, want %q", text, got, want)
	}
}

func TestQ01_CreateWithEmptyObject(t *testing.T) {
	a := newAgentSandbox(t)
	for _, body := range []string{`{}`, `{"network_enabled":false}`, `{"network_enabled":"No"}`, `{"network_enabled":0}`} {
		code, text := a.send(a.Key, "POST", "/sandboxes", body)
		var sb map[string]any
		if err := json.Unmarshal(text, &sb); err != nil || code != 201 {
			t.Fatalf("%s: %d %s", body, code, text)
		}
		id, _ := sb["id"].(string)
		if !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(id) || sb["status"] != "running" {
			t.Errorf("%s gives the id %v and the status %v", body, sb["id"], sb["status"])
		}
	}
}

func TestQ02_CreateWithoutBody(t *testing.T) {
	a := newAgentSandbox(t)
	for _, c := range []struct{ contentType, body, want string }{
		{"", "", `missing ["body"]`}, {"application/json", "", `missing ["body"]`}, {"application/json", "{", `json_invalid ["body"]`},
		{"application/json", "[]", `dict_type ["body"]`}, {"application/json", `"x"`, `dict_type ["body"]`}, {"application/json", "null", `dict_type ["body"]`},
	} {
		resp, text := a.request("POST", "/sandboxes", c.contentType, strings.NewReader(c.body))
		a.form(resp.StatusCode, text, c.want)
	}
}

func TestQ03_CreateWithNoBoolean(t *testing.T) {
	a := newAgentSandbox(t)
	for _, value := range []string{`"maybe"`, `2`, `[]`} {
		code, text := a.send(a.Key, "POST", "/sandboxes", `{"network_enabled":`+value+`}`)
		a.form(code, string(text), `bool_parsing ["body","network_enabled"]`)
	}
}

func TestQ04_Execute(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	a.want(id, "hi\n", "echo hi")
	for body, want := range map[string]string{`{}`: `missing ["body","command"]`, `{"command":7}`: `string_type ["body","command"]`, ``: `missing ["body"]`} {
		code, text := a.send(a.Key, "POST", "/sandboxes/"+id+"/execute", body)
		a.form(code, string(text), want)
	}
	// What is no UTF-8 is no failure.
	a.want(id, "\uFFFD\uFFFDz\n", `printf '\377\376z\n'`)
}

func TestQ05_ExitCodeAndBothStreams(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	res := a.execute(id, `sh -c 'echo a; echo b >&2; exit 3'`)
	if res.ExitCode != 3 || !strings.Contains(res.Output, "a\n") || !strings.Contains(res.Output, "b\n") {
		t.Errorf("%+v", res)
	}
	// The order of arrival; a busy machine can miss it once.
	for try := 1; ; try++ {
		res := a.execute(id, `for i in 1 2 3; do echo o$i; sleep 0.3; echo e$i >&2; sleep 0.3; done`)
		if res.Output == "o1\ne1\no2\ne2\no3\ne3\n" {
			break
		}
		if try == 5 {
			t.Fatalf("the order is %q", res.Output)
		}
	}
	if res := a.execute(id, `kill -9 $$`); res.ExitCode != 137 {
		t.Errorf("killed by signal 9: %+v", res)
	}
}

func TestQ06_Shell(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	a.want(id, "b\n", "echo a | tr a b")
	a.want(id, "/workspace\n", "pwd")
}

func TestQ07_UnknownIDs(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	foreign := NewBox(t, sandbox.Limits{}) // the same back end made it, for somebody else
	for _, unknown := range []string{ids.Hex(32), id[:6], id[:63], id + "0", foreign.ID, foreign.ID[:12], "x"} {
		code, text := a.tryExecute(unknown, "true")
		a.problem(code, text, 404, "Sandbox not found")
		code, text = a.upload(unknown, "", "file", "x", "x")
		a.problem(code, text, 404, "Sandbox not found")
		resp, text := a.download(unknown, "x")
		a.problem(resp.StatusCode, text, 404, "Sandbox not found")
		resp, text = a.request("DELETE", "/sandboxes/"+unknown, "", nil)
		a.problem(resp.StatusCode, text, 404, "Sandbox not found")
	}
	a.want(id[:12], "hi\n", "echo hi")
	foreign.Want("still here\n", "echo still here")
}

func TestQ08_Upload(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	for _, c := range []struct{ query, name, at string }{
		{"", "a.txt", "/workspace/a.txt"}, {"?path=", "b.txt", "/workspace/b.txt"}, {"?path=sub/dir", "c d.txt", "/workspace/sub/dir/c d.txt"},
		{"?path=sub/dir/", "e.txt", "/workspace/sub/dir/e.txt"}, {"", "", "/workspace/uploaded_file"}, {"?path=/workspace/abs", "f.txt", "/workspace/abs/f.txt"},
	} {
		for _, content := range []string{"first, and longer\n", "second\n"} { // the second replaces the first
			if code, text := a.upload(id, c.query, "file", c.name, content); code != 204 || text != "" {
				t.Errorf("%+v: %d %q", c, code, text)
			}
		}
		a.want(id, "second\nuser\n", `cat "`+c.at+`"; stat -c %U "`+c.at+`"`)
	}
	a.want(id, "user user\n", "stat -c %U sub sub/dir | xargs")
	code, text := a.upload(id, "", "other", "x", "x")
	a.form(code, text, `missing ["body","file"]`)
	resp, text := a.request("POST", "/sandboxes/"+id+"/files/upload", "", nil)
	a.form(resp.StatusCode, text, `missing ["body","file"]`)
}

func TestQ09_UploadStaysInside(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	a.want(id, "", "ln -s /tmp out; ln -s /etc etc")
	for _, c := range []struct{ query, name string }{
		{"?path=../..", "x"}, {"?path=/etc", "x"}, {"", "../x"}, {"", "/tmp/x"}, {"", ".."}, {"?path=a/../../b", "x"}, {"?path=/workspace_evil", "x"},
		{"?path=out", "x"}, {"?path=etc/new", "x"},
	} {
		if code, text := a.upload(id, c.query, "file", c.name, "x"); code < 400 || code > 499 {
			t.Errorf("%+v: %d %s", c, code, text)
		}
	}
	a.want(id, "", "ls -d /x /tmp/x /etc/x /etc/new /workspace_evil /b /workspace/x 2>/dev/null || true")
	if _, err := os.Lstat("/etc/x"); err == nil {
		t.Error("the host has a new file")
	}
}

func TestQ10_Download(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	content := "\x00\xff" + strings.Repeat("all bytes \r\n", 100_000)
	if code, text := a.upload(id, "?path=sub", "file", "report.csv", content); code != 204 {
		t.Fatalf("upload: %d %s", code, text)
	}
	for _, path := range []string{"sub/report.csv", "/workspace/sub/report.csv"} {
		resp, text := a.download(id, path)
		if h := resp.Header; resp.StatusCode != 200 || text != content || h.Get("Content-Disposition") != `attachment; filename="report.csv"` ||
			!strings.HasPrefix(h.Get("Content-Type"), "text/csv") {
			t.Errorf("%s: %d, %d bytes, %v", path, resp.StatusCode, len(text), h)
		}
	}
	for _, path := range []string{"none", "sub", "sub/none", "."} {
		resp, text := a.download(id, path)
		a.problem(resp.StatusCode, text, 404, "File not found in sandbox")
	}
	resp, text := a.request("GET", "/sandboxes/"+id+"/files/download", "", nil)
	a.form(resp.StatusCode, text, `missing ["query","path"]`)
}

func TestQ11_DownloadStaysInside(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	a.want(id, "", "ln -s /etc/passwd link; ln -s ../../../../etc up; mkfifo pipe")
	for _, path := range []string{"../../etc/passwd", "/etc/passwd", "link", "up/passwd", "/workspace/../etc/passwd", "/proc/1/environ", "pipe"} {
		resp, text := a.download(id, path)
		if resp.StatusCode != 404 && resp.StatusCode != 403 || strings.Contains(text, "root:") {
			t.Errorf("%s: %d %.200s", path, resp.StatusCode, text)
		}
	}
}

func TestQ12_Delete(t *testing.T) {
	a := newAgentSandbox(t)
	id := a.create()
	if resp, text := a.request("DELETE", "/sandboxes/"+id, "", nil); resp.StatusCode != 204 || text != "" {
		t.Errorf("delete: %d %q", resp.StatusCode, text)
	}
	resp, text := a.request("DELETE", "/sandboxes/"+id, "", nil)
	a.problem(resp.StatusCode, text, 404, "Sandbox not found")
	code, text := a.tryExecute(id, "true")
	a.problem(code, text, 404, "Sandbox not found")
	if pids := SandboxPids(t, id); len(pids) != 0 {
		t.Errorf("processes are left: %v", pids)
	}
}
