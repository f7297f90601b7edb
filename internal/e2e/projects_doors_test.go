package e2e

import (
	"encoding/base64"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestR18: the logins of autocoder, on a server that its variables configure.
func TestR18(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	nobody := &Client{t: t, d: d}
	again := func(env ...string) {
		t.Helper()
		if code := d.Stop(); code != 0 {
			t.Errorf("it ended with %d", code)
		}
		if err := d.StartWith(env...); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(want int, headers ...string) Answer {
		t.Helper()
		a := nobody.Send("GET", "/api/sandboxes", "", headers...)
		if a.Code != want {
			t.Errorf("%q: %v, want %d", headers, a, want)
		}
		return a
	}
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	again("AUTOCODER_AUTH_ENABLED=true", "AUTOCODER_AUTH_USER=me", "AUTOCODER_AUTH_PASS=secret", "AUTOCODER_ROOT_PASS=more", "AUTOCODER_ENABLE_METRICS=1", "AUTOCODER_ALLOW_REMOTE=0")
	if a := ask(401); a.Header.Get("WWW-Authenticate") != `Basic realm="Autocoder"` {
		t.Errorf("it asks for %v", a.Header)
	}
	ask(401, "Authorization", "Basic x")
	ask(403, "Authorization", basic("me:wrong"))
	ask(200, "Authorization", basic("me:secret"))
	ask(200, "Authorization", basic("root:more"))
	ask(200, "X-API-Key", d.Key)
	for pair, want := range map[string]int{"me:secret": 403, "root:more": 200} { // an admin's
		if a := nobody.Send("GET", api+"/keys", "", "Authorization", basic(pair)); a.Code != want {
			t.Errorf("%s: %v", pair, a)
		}
	}
	if a := nobody.Send("GET", "/metrics", ""); a.Code != 200 || !strings.Contains(a.Text, "http_requests_total") {
		t.Errorf("/metrics: %v", a)
	}
	again("AUTOCODER_AUTH_ENABLED=1", "AUTOCODER_AUTH_TYPE=token", "AUTOCODER_API_KEY=token-1", "AUTOCODER_ALLOW_REMOTE=1")
	ask(401)
	ask(401, "X-AUTOCODER-API-KEY", "token-2")
	ask(401, "Authorization", "Bearer token-2")
	ask(200, "X-AUTOCODER-API-KEY", "token-1")
	ask(200, "Authorization", "Bearer token-1")
	if log := d.Log(); strings.Contains(log, "token-1") || strings.Contains(log, "secret") {
		t.Error("a secret is in the log")
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if err := d.StartWith("AUTOCODER_AUTH_TYPE=oauth", "AUTOCODER_AUTH_ENABLED=1"); err == nil || !strings.Contains(err.Error(), "AUTOCODER_AUTH_TYPE") {
		t.Errorf("an unknown type: %v", err)
	}
	d.Start()
}

// TestR18_Remote: with remote access off, clients of other addresses are refused, on a
// server that listens for them; nothing said changes nothing.
func TestR18_Remote(t *testing.T) {
	t.Parallel()
	own := ownAddress(t)
	d := &Daemon{t: t, Dir: DataDir(t), args: []string{"--listen", "0.0.0.0:0"}, logs: &lockedBuffer{}}
	d.forTest(t)
	ask := func(want map[string]int) {
		t.Helper()
		_, port, err := net.SplitHostPort(strings.TrimPrefix(d.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range want {
			d.URL = "http://" + net.JoinHostPort(host, port)
			for _, path := range []string{"/api/sandboxes", "/health"} {
				a := d.Admin().Send("GET", path, "", "X-Forwarded-For", "127.0.0.1")
				if a.Code != want || want == 403 && a.Problem().Detail != "Localhost access only" {
					t.Errorf("%s from %s: %v", path, host, a)
				}
			}
		}
	}
	ask(map[string]int{own: 200, "127.0.0.1": 200})
	if code := d.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if err := d.StartWith("AUTOCODER_ALLOW_REMOTE=0"); err != nil {
		t.Fatal(err)
	}
	ask(map[string]int{own: 403, "127.0.0.1": 200})
}

// ownAddress is one of this machine that is not its loopback's.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but those of its loopback; TestR18_LocalOnly shows the same without")
	return ""
}

// TestX08_Sandboxes: what was kept of a project is its owner's volume, which another
// door can give to a sandbox, too.
func TestX08_Sandboxes(t *testing.T) {
	p := newProjects(t)
	id := p.make("").ID
	p.run(id, "sh", "-c", "echo kept >/workspace/f")
	p.ok("DELETE", "/api/sandboxes/"+id+"?remove_volume=false", "", nil)
	volume := "autocoder-test-" + id
	sb := p.Create(`{"volumes":[{"name":"` + volume + `","path":"/data"}]}`)
	if got := p.Sh(sb.ID, "cat /data/f"); got != "kept\n" {
		t.Errorf("%q", got)
	}
	if next := p.make(""); p.run(next.ID, "ls", "/workspace").Stdout != "" {
		t.Error("a workspace that a sandbox has went to another")
	}
	p.ok("DELETE", "/api/sandboxes/"+sb.ID, "", nil)
	if a := p.Send("DELETE", api+"/volumes/"+volume, ""); a.Code != 204 {
		t.Errorf("it went with a sandbox of another door: %v", a)
	}
}

// TestX12: both spellings of the collection answer, without a redirect.
func TestX12(t *testing.T) {
	p := newProjects(t)
	for _, path := range []string{"/api/sandboxes", "/api/sandboxes/"} {
		for method, body := range map[string]string{"GET": "", "POST": "{}"} {
			req, err := http.NewRequestWithContext(t.Context(), method, p.d.URL+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-API-Key", p.Key)
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if want := map[string]int{"GET": 200, "POST": 422}[method]; resp.StatusCode != want {
				t.Errorf("%s %s: %d", method, path, resp.StatusCode)
			}
		}
	}
}

// TestX17_Sandboxes: a new server has the sandboxes, their aliases, what runs in them,
// and the settings.
func TestX17_Sandboxes(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	p := &projects{d.Admin()}
	var sb, stopped project
	p.ok("POST", "/api/sandboxes", `{"project_name":"a","memory_limit":"512m"}`, &sb)
	p.ok("POST", "/api/sandboxes", `{"project_name":"b","memory_limit":"512m"}`, &stopped)
	p.run(sb.ID, "sh", "-c", "echo x >f; sleep 1000 >/dev/null 2>&1 &")
	p.ok("POST", "/api/sandboxes/"+stopped.ID+"/stop", "", nil)
	p.ok("PATCH", "/api/settings", `{"sandbox_timeout":"7200"}`, nil)
	d.Kill()
	d.Start()
	p = &projects{d.Admin()}
	var all []project
	if p.ok("GET", "/api/sandboxes", "", &all); len(all) != 2 || all[0].ID != sb.ID || all[0].Status != "running" || all[1].ID != stopped.ID || all[1].Status != "stopped" {
		t.Errorf("there are %+v", all)
	}
	if r := p.run(sb.ID, "sh", "-c", "cat f; pgrep -c sleep || ps | grep -c '[s]leep'"); r.Stdout != "x\n1\n" {
		t.Errorf("in it: %+v", r)
	}
	if a := p.ok("GET", "/api/settings", "", nil); !strings.Contains(a.Text, `"7200"`) {
		t.Errorf("the settings: %v", a)
	}
}

// TestX20_Sandboxes, and what else a result tells: signals, time-outs and bytes that
// are no text fail nothing.
func TestX20_Sandboxes(t *testing.T) {
	p := newProjects(t)
	id := p.make("").ID
	if r := p.run(id, "sh", "-c", "kill -9 $$"); r.Code != 137 {
		t.Errorf("signal 9: %+v", r)
	}
	if r := p.run(id, "printf", `a\377b`); r != (commandResult{0, "a\ufffdb", ""}) {
		t.Errorf("no UTF-8: %+v", r)
	}
	began := time.Now()
	var r commandResult
	p.ok("POST", "/api/sandboxes/"+id+"/execute", `{"command":["sh","-c","echo part; echo err >&2; sleep 100.20"],"timeout":1}`, &r)
	if r != (commandResult{-1, "part\n", "err\nCommand timed out"}) || time.Since(began) > time.Second+Slack() {
		t.Errorf("a time-out after %v: %+v", time.Since(began), r)
	}
	if r = p.run(id, "sh", "-c", "ps -ef | grep -c '[s]leep 100.20'"); r.Stdout != "0\n" {
		t.Errorf("left of it: %+v", r)
	}
	if r = p.run(id, "sh", "-c", "sleep 60 & echo done"); r != (commandResult{0, "done\n", ""}) {
		t.Errorf("with a child in the background: %+v", r)
	}
	p.ok("POST", "/api/sandboxes/"+id+"/execute", `{"command":"echo $A | tr a b","env":{"A":"a"}}`, &r)
	if r.Stdout != "b\n" {
		t.Errorf("a line for the shell: %+v", r)
	}
}

// TestSandboxesCalls does what docs/SANDBOXES.md says, as it stands there; a server
// with keys gets one from curl's own configuration.
func TestSandboxesCalls(t *testing.T) {
	t.Parallel()
	lines := documentedLines(t, "docs/SANDBOXES.md", "Calls")
	for name, args := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := StartDaemon(t, args...)
			var script []string
			for _, line := range lines {
				script = append(script, strings.NewReplacer("http://127.0.0.1:8700", d.URL, "curl -sS", "curl -sS --fail-with-body").Replace(line))
			}
			out := shell(t, script, curlHome(t, d))
			for _, want := range []string{
				`^\[\{"sandbox_id":"sandbox-`, `"stdout":"hi\\n"`, `stopped successfully`, `started successfully`, `(?s)"stdout":"kept\\n".*destroyed successfully.*"stdout":"kept\\n"`,
				`Cleaned up 1 stopped`, `Sandbox test passed!`, `Direct execution mode`, `"sandbox_timeout":"7200"`, `\{"status":"healthy"\}`, `"claude_cli":false`,
			} {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("nothing says %s:\n%s", want, out)
				}
			}
		})
	}
}
