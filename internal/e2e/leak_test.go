package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentbox/internal/ids"
	"agentbox/internal/server/rest/resttest"
)

// holds are the files below a data directory that have a text in them.
func holds(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() { // gone meanwhile, or what all tests share
			return nil
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestLEAK01: of a sandbox that was destroyed nothing is left, neither on the host
// nor in the next one of its name.
func TestLEAK01(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Tenant("acme")
	secret := ids.Hex(16)
	sb := c.Create(`{"name":"dev","env":{"SECRET":"` + secret + `"},"labels":{"note":"` + secret + `"}}`)
	once := c.Send("POST", api+"/sandboxes", `{"env":{"SECRET":"`+secret+`"}}`, "Idempotency-Key", "once", "Content-Type", "application/json")
	for _, path := range []string{"/workspace/f", "/tmp/f", "/dev/shm/f", "/home/user/.bash_history", "/var/tmp/f"} {
		if a := c.Write("dev", path, secret+"\n"); a.Code/100 != 2 {
			t.Errorf("%s: %v", path, a)
		}
	}
	c.Send("POST", api+"/sandboxes/dev/execute", `{"command":"cat; env","env":{"MORE":"`+secret+`"},"stdin":"`+secret+`"}`)
	c.Send("POST", api+"/sandboxes/dev/sessions", `{"name":"s"}`)
	c.Send("POST", api+"/sandboxes/dev/execute", `{"command":"X=$SECRET; echo $X >.history; sleep 0","session":"s"}`)
	where := "grep -rlsa " + secret[:16] + "[" + secret[16:17] + "]" + secret[17:] + " /workspace /tmp /dev/shm /home /var /root /run /etc /proc/self/environ /proc/1/environ /proc/1/cmdline; env | grep " + secret[:16]
	if got := c.Sh("dev", where); strings.Count(got, "\n") < 6 { // the control
		t.Errorf("the search finds %q in the sandbox", got)
	}
	if got := holds(t, d.Dir, secret); len(got) == 0 {
		t.Error("the search finds nothing of a sandbox that is there: its environment is in the store")
	}
	for _, id := range []string{sb.ID, idOf(t, once)} {
		if a := c.Send("DELETE", api+"/sandboxes/"+id, ""); a.Code != 204 {
			t.Errorf("delete: %v", a)
		}
	}
	if got := holds(t, d.Dir, secret); len(got) > 0 {
		t.Errorf("on the host the secret is in %q", got)
	}
	if strings.Contains(d.Log(), secret) {
		t.Error("the secret is in the log")
	}
	c.Create(`{"name":"dev"}`)
	if got := c.Sh("dev", where); got != "" {
		t.Errorf("the next sandbox of the name has it: %q", got)
	}
	for _, path := range []string{"/sandboxes/" + sb.ID, "/sandboxes/dev/execs", "/sandboxes/dev/events", "/audit", "/sandboxes/" + sb.ID + "/events"} {
		if a := c.Send("GET", api+path, ""); strings.Contains(a.Text, secret) {
			t.Errorf("%s: %v", path, a)
		}
	}
	d.Kill() // and a new daemon brings nothing back
	d.Start()
	if got := holds(t, d.Dir, secret); len(got) > 0 {
		t.Errorf("after a start the secret is in %q", got)
	}
}

// inward is what an answer must not tell: paths of the host, the program's stack, its
// parts and their versions, addresses.
var inward = regexp.MustCompile(`(?i)goroutine \d|\.go:\d|\bpanic\b|runtime error|huma|sqlite|gvisor|runsc|yamux|golang|agentbox/internal|/var/lib/|/root/|/tmp/ab|go1\.\d|\b(10|172|192\.168|127)\.\d+\.\d+|nil pointer|(?-i:json: )|strconv|unexpected EOF|no such table`)

// TestLEAK10: what is wrong with a request is told in the API's words only.
func TestLEAK10(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t, "--rate-limit-refused", "0")
	c, nobody := d.Admin(), &Client{t: t, d: d}
	c.Create(`{"name":"dev"}`)
	n := 0
	check := func(what string, a Answer) {
		t.Helper()
		n++
		told := a.Text
		for name, values := range a.Header {
			told += "\n" + name + ": " + strings.Join(values, ", ")
		}
		if leak := inward.FindString(told); leak != "" || a.Code >= 500 || strings.Contains(told, d.Dir) {
			t.Errorf("%s tells %q: %v", what, leak, a)
		}
	}
	bodies := []string{``, `{`, `null`, `[]`, `"x"`, `{"x":1}`, "\xff\xfe", `{"path":1}`, `{"command":{}}`, `{"path":"\u0000"}`, `{"name":"../../etc"}`, strings.Repeat("x", 5000), `{"signal":99}`, `{"path":"/proc/self/mem"}`}
	for _, pattern := range d.Routes() {
		method, _, _ := strings.Cut(pattern, " ")
		if method == "DELETE" || strings.HasSuffix(pattern, "/stop") || strings.Contains(pattern, "/watch") || strings.HasSuffix(pattern, "/pull") || strings.HasSuffix(pattern, "/isolation") {
			continue // the last one tells of the back end on purpose
		}
		row, _ := resttest.Of(pattern)
		for i, id := range []string{"dev", "none", "%ff", "..%2f", strings.Repeat("x", 200)} {
			body := bodies[(n+i)%len(bodies)]
			target := row.Target(pattern, id, "no%00ne", "x y")
			check(pattern+" "+body, c.Send(method, target, body, "Content-Type", "application/json"))
			check(pattern+" refused", nobody.Send(method, target, body))
		}
	}
	for _, query := range []string{"path=%00", "path=" + strings.Repeat("x", 5000), "path=/proc/self/mem&offset=x", "path=/none&user=nobody-there", "path=/dev/null&mode=99999", "path=%ff", "", "path=a&path=b", "path=/sys/kernel/none", "path=/proc/1/mem"} {
		for _, call := range []string{"GET /files", "PUT /files", "GET /files/stat", "GET /files/list", "GET /files/archive", "GET /files/download", "GET /files/glob", "GET /files/search"} {
			method, path, _ := strings.Cut(call, " ")
			check(call+"?"+query, c.Send(method, api+"/sandboxes/dev"+path+"?"+query, ""))
		}
	}
	for _, body := range []string{`{"image":"none-such"}`, `{"image":"/etc/passwd"}`, `{"image":"localhost:1/x"}`, `{"image":"a@sha256:0"}`, `{"user":"nobody-there"}`, `{"workdir":"/proc/1/none"}`, `{"name":"` + strings.Repeat("x", 500) + `"}`} {
		check("create "+body, c.Send("POST", api+"/sandboxes", body))
	}
	for _, body := range []string{`{"command":["/none"]}`, `{"command":["/etc"]}`, `{"command":"x","user":"none"}`, `{"command":"x","workdir":"/none"}`, `{"command":"x","timeout":"1e9h"}`, `{"command":"x","stdin_base64":"*"}`, `{"command":"x","session":"none"}`} {
		check("execute "+body, c.Send("POST", api+"/sandboxes/dev/execute", body))
	}
	for _, request := range []string{
		"\x00\x01\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", "POST /api/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nContent-Length: -1\r\n\r\n",
		"POST /api/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{", "POST /api/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
		"PUT /api/v1/sandboxes/dev/files?path=x HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "PUT /api/v1/sandboxes/dev/files/archive?path=x HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nContent-Type: application/x-tar\r\nContent-Length: 9\r\n\r\nzz\r\n",
		"POST /api/v1/sandboxes/dev/files/upload HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 900\r\n\r\n--b\r\n",
		"GET /api/v1/sandboxes/dev/terminal HTTP/1.1\r\nHost: localhost\r\nX-API-Key: " + c.Key + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 12\r\nSec-WebSocket-Key: x\r\n\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n",
	} {
		n++
		if leak := inward.FindString(d.Raw(request)); leak != "" {
			t.Errorf("%.60q tells %q", request, leak)
		}
	}
	if n < 200 {
		t.Errorf("only %d requests", n)
	}
	t.Logf("%d malformed requests", n)
	if log := d.Log(); strings.Contains(log, "goroutine ") || strings.Contains(log, "level=ERROR") {
		t.Error("the daemon had an error of its own")
	}
	// The control: the search knows such things when it sees them.
	control, _ := json.Marshal(fmt.Sprintf("open %s/agentbox.db: goroutine 7 at main.go:12", d.Dir))
	if inward.FindString(string(control)) == "" {
		t.Error("the search finds nothing")
	}
}
