package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestAPI06_Packages: what is named as a package is one, or refused; nothing of it is
// run, neither in the sandbox nor on the host.
func TestAPI06_Packages(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	c.Create(`{"name":"net","user":"root","env":{"PIP_RETRIES":"0"},"network":{"allow":["python","node"]}}`)
	c.Create(`{"name":"none"}`)
	pwn := "/pwn-" + c.Create(`{"name":"third","network":{"allow":["pypi.org"]}}`).ID[:12]
	install := func(box, tool string, packages ...string) Answer {
		body, err := json.Marshal(map[string][]string{"packages": append([]string{}, packages...)})
		if err != nil {
			t.Fatal(err)
		}
		return c.Send("POST", api+"/sandboxes/"+box+"/packages/"+tool, string(body))
	}
	for _, p := range []string{
		"x; touch " + pwn, "$(touch " + pwn + ")", "`touch " + pwn + "`", "x && touch " + pwn, "x\ntouch " + pwn, "'; touch " + pwn + "; '",
		"--index-url=https://evil.example", "--index-url", "-r /etc/passwd", "-r", "git+file:///", "git+https://evil.example/x", "https://evil.example/x.whl",
		"x @ https://evil.example/x", "./x", "../x", "/etc/passwd", "-rf", "", " ", "six\n",
	} {
		for _, tool := range []string{"pip", "npm", "apt"} {
			if a := install("net", tool, "six", p); a.Code != http.StatusBadRequest || !strings.Contains(a.Text, `"field":"packages"`) {
				t.Errorf("%s install %q: %v", tool, p, a)
			}
		}
	}
	if out := c.Sh("net", "ls -d "+pwn+" 2>&1; pip list 2>/dev/null | grep -c six"); !strings.Contains(out, "No such file") || !strings.HasSuffix(out, "\n0\n") {
		t.Errorf("something was run: %s", out)
	}
	if _, err := os.Stat(pwn); err == nil {
		t.Errorf("%s is on the host", pwn)
	}
	for _, box := range []string{"none", "third"} {
		if a := install(box, "pip", "six"); a.Code != http.StatusForbidden || !strings.Contains(a.Text, "pip install requires pypi.org and files.pythonhosted.org in allowed_hosts") {
			t.Errorf("in %s, without its hosts: %v", box, a)
		}
	}
	if a := install("none", "gem", "x"); a.Code != http.StatusNotFound {
		t.Errorf("a package manager that there is not: %v", a)
	}
	// What pip says itself is a result.
	var r executed
	if a := install("net", "pip"); a.Code != http.StatusOK || json.Unmarshal([]byte(a.Text), &r) != nil || r.ExitCode == 0 || !strings.Contains(r.Output, "at least one requirement") {
		t.Errorf("nothing to install: %v", a)
	}
	if o := d.Run("install", "net", "agentbox-has-no-such-package"); o.Code != 1 || !strings.Contains(o.Stderr, "agentbox egress log net\n") {
		t.Errorf("what can't be installed: %+v", o)
	}
	if o := d.Run("install", "net", "-r"); o.Code != 125 {
		t.Errorf("by the command line: %+v", o)
	}
	if o := d.Run("install", "net", "x;id"); o.Code != 125 || !strings.Contains(o.Stderr, "packages") {
		t.Errorf("by the command line: %+v", o)
	}
}

// TestQ13: the network is off by default, without even a route, and on after
// network_enabled.
func TestQ13(t *testing.T) {
	t.Parallel()
	out := newLab(t)
	d := StartDaemon(t, "--egress-full", "--egress-allow-ranges", "127.0.0.0/8")
	c := d.Admin()
	c.Create(`{"name":"off"}`)
	c.Create(`{"name":"said","network_enabled":false}`)
	c.Create(`{"name":"on","network_enabled":true}`)
	for _, box := range []string{"off", "said"} {
		got := c.Sh(box, "cat /proc/net/route | grep -v lo | tail -n +2; "+curl(out.URL))
		if !strings.HasPrefix(got, "curl: (7)") {
			t.Errorf("%s: %q", box, got)
		}
	}
	want(t, "on", c.Sh("on", curl(out.URL+"/q13")), "hello from /q13")
}

// TestRunNetwork: agentbox run has a network if it is given one, and says at the end
// what was denied and how to allow it.
func TestRunNetwork(t *testing.T) {
	t.Parallel()
	out, evil := newLab(t), newLab(t)
	dir := SharedDir(t)
	run := func(args ...string) Out {
		return Run(t, dir, "", append([]string{"run", "--egress-allow-ranges", "127.0.0.0/8"}, args...)...)
	}
	none := run(Image, "--", "sh", "-c", "env | grep -ic proxy; "+curl(out.URL))
	want(t, "without", none.Stdout, "0\ncurl: (7)")
	o := run("--allow", out.Addr, "--allow", "python", Image, "--", "sh", "-c", curl(out.URL+"/a")+"; "+curl(evil.URL)+"; "+curl(evil.URL)+"; getent hosts nowhere.example; getent hosts pypi.org")
	want(t, "allowed", o.Stdout, "hello from /a")
	want(t, "denied", o.Stdout, "Host not allowed: 127.0.0.1")
	want(t, "without a proxy", o.Stdout, "127.64.0.1")
	want(t, "what was denied", o.Stderr, fmt.Sprintf("agentbox: denied: %s; allow it with --allow %s (2 times)\n", evil.Addr, evil.Addr))
	want(t, "what was denied", o.Stderr, "agentbox: denied: nowhere.example; allow it with --allow nowhere.example")
	if strings.Contains(o.Stderr, out.Addr) || strings.Contains(o.Stderr, "pypi") {
		t.Errorf("what was allowed is denied: %s", o.Stderr)
	}
	o = run("--allow", "python", "--resolver=false", Image, "--", "getent", "hosts", "pypi.org")
	if o.Code == 0 || o.Stderr != "" {
		t.Errorf("without the resolver: %+v", o)
	}
	o = Run(t, dir, "", "run", "--network", "full", Image, "--", "sh", "-c", curl(out.URL))
	want(t, "an address that is not public", o.Stderr, "not public (loopback); open it with --egress-allow-ranges 127.0.0.1")
	for _, bad := range [][]string{{"--allow", "not a host"}, {"--network", "some"}, {"--network", "none", "--allow", "a.example"}, {"--network", "full", "--egress-resolver", "x"}} {
		if o := Run(t, dir, "", append(append([]string{"run"}, bad...), Image, "--", "true")...); o.Code != 125 {
			t.Errorf("%q: %+v", bad, o)
		}
	}
	if o := Run(t, dir, "", "run", "--network", "none", Image, "--", "true"); o.Code != 0 || o.Stderr != "" {
		t.Errorf("none: %+v", o)
	}
	select {
	case path := <-evil.hits:
		t.Errorf("what was denied was reached: %s", path)
	default:
	}
}

// TestRunSeesRequests: agentbox run ends the TLS of hosts of which a list names
// requests, with a certificate that programs in the sandbox trust.
func TestRunSeesRequests(t *testing.T) {
	t.Parallel()
	args := []string{"run", "--allow", "GET https://" + siteName + "/hel*"}
	for _, a := range newNameServer(t, newSite(t)).args(t) {
		args = append(args, strings.Replace(a, "--egress-ca-bundle", "--ca-bundle", 1))
	}
	const get = "curl -sS https://" + siteName
	o := Run(t, SharedDir(t), "", append(args, Image, "--", "sh", "-c", get+"/hello; "+get+"/upload -d x; curl -sS http://"+siteName+"/hello")...)
	want(t, "what is named", o.Stdout, "hello\n")
	if strings.Count(o.Stdout, "hello\n") != 1 || strings.Contains(o.Stdout, "1 bytes") {
		t.Errorf("what is not named: %s", o.Stdout)
	}
	want(t, "what was denied", o.Stderr, "agentbox: denied: "+siteName+":443: ")
}
