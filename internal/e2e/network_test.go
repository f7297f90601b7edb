package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lab is a server of the test that sandboxes may reach, or may not: it stands for
// the outside. It is on loopback, which the operator has to open.
type lab struct {
	*httptest.Server
	Addr string
	hits chan string // paths that were asked for
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{hits: make(chan string, 100)}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.hits <- r.URL.Path
		if r.URL.Path != "/endless" {
			fmt.Fprintf(w, "hello from %s", r.URL.Path)
			return
		}
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, "more\n")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond) // it only paces the stream
		}
	}))
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
	})
	l.Addr = l.Listener.Addr().String()
	return l
}

// curl asks the sandbox's proxy also for loopback addresses, which programs reach
// without it.
func curl(url string) string {
	return "curl -sS -m 20 --noproxy '' -x http://127.0.0.1:3128 " + url + " 2>&1"
}

// network is what the API says of a sandbox's network.
type network struct {
	Mode     string
	Allow    []string
	Requests []struct {
		ID, Host string
		Port     int
		Count    int
	}
}

func (c *Client) network(id string) (n network) {
	c.t.Helper()
	if a := c.Send("GET", api+"/sandboxes/"+id+"/network", ""); a.Code != http.StatusOK || json.Unmarshal([]byte(a.Text), &n) != nil {
		c.t.Fatalf("the network: %v", a)
	}
	return n
}

func (c *Client) setNetwork(id, body string) {
	c.t.Helper()
	if a := c.Send("PUT", api+"/sandboxes/"+id+"/network", body); a.Code != http.StatusOK {
		c.t.Fatalf("set the network to %s: %v", body, a)
	}
}

// connections waits for n records of a sandbox and returns them, oldest first.
func (c *Client) connections(id string, n int) (items []map[string]any) {
	c.t.Helper()
	Until(c.t, soon, fmt.Sprintf("%d connections are recorded", n), func() bool {
		var list struct{ Items []map[string]any }
		a := c.Send("GET", api+"/sandboxes/"+id+"/network/log?order=oldest", "")
		if a.Code != http.StatusOK || json.Unmarshal([]byte(a.Text), &list) != nil {
			c.t.Fatalf("the log of connections: %v", a)
		}
		items = list.Items
		return len(items) >= n
	})
	return items
}

func want(t *testing.T, what, got, part string) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s: %q, want %q in it", what, got, part)
	}
}

// TestNetwork goes through the life of a sandbox with a network: what is not
// allowed is refused at once with the reason and recorded; what it may reach
// changes while it runs; a kill of the server, a stop and a start leave it so.
func TestNetwork(t *testing.T) {
	t.Parallel()
	out, evil := newLab(t), newLab(t)
	d := StartDaemon(t, "--egress-allow-ranges", "127.0.0.0/8")
	c, other := d.Admin(), d.Tenant("other")
	c.Create(`{"name":"none"}`)
	want(t, "without a network", c.Sh("none", "env | grep -ic proxy; "+curl(out.URL)), "0\ncurl: (7)")
	c.Create(fmt.Sprintf(`{"name":"net","network":{"allow":[%q]}}`, out.Addr))
	want(t, "allowed", c.Sh("net", "env | grep -c ^HTTPS_PROXY=http://127.0.0.1:3128; "+curl(out.URL+"/a")), "1\nhello from /a")
	want(t, "another port", c.Sh("net", curl(evil.URL)), "Host not allowed: 127.0.0.1")
	want(t, "by CONNECT", c.Sh("net", curl("-p "+evil.URL)), "403")
	want(t, "by SOCKS", c.Sh("net", "curl -sS -m 20 --noproxy '' -x socks5h://127.0.0.1:3128 "+evil.URL+" 2>&1"), "curl: (97)")
	recs := c.connections("net", 4)
	if r := recs[0]; r["verdict"] != "allowed" || r["path"] != "/a" || r["received"].(float64) < 10 || r["address"] != "127.0.0.1" {
		t.Errorf("the first record is %v", r)
	}
	for _, r := range recs[1:4] {
		if r["verdict"] != "denied" || r["code"] != "host_not_allowed" {
			t.Errorf("a record of what was denied is %v", r)
		}
	}
	for _, path := range []string{"/network", "/network/log"} {
		if a := other.Send("GET", api+"/sandboxes/net"+path, ""); a.Code != http.StatusNotFound {
			t.Errorf("another owner asks for %s: %v", path, a)
		}
	}
	if a := other.Send("PUT", api+"/sandboxes/net/network", `{"mode":"none"}`); a.Code != http.StatusNotFound {
		t.Errorf("another owner changes it: %v", a)
	}

	// What was asked for can be allowed, by an admin.
	asked := c.network("net").Requests
	if len(asked) != 1 || asked[0].Host != "127.0.0.1" || asked[0].Count != 3 {
		t.Fatalf("requests: %+v", asked)
	}
	decide := api + "/sandboxes/net/network/requests/" + asked[0].ID
	var user struct{ Key string }
	if code := d.Do(d.Key, "POST", "/keys", `{"owner":"default"}`, &user); code != http.StatusCreated {
		t.Fatalf("make a key: %d", code)
	}
	if a := d.As(user.Key).Send("POST", decide, `{"decision":"allow"}`); a.Code != http.StatusForbidden {
		t.Errorf("decided without an admin's key: %v", a)
	}
	if a := c.Send("POST", decide, `{"decision":"allow"}`); a.Code != http.StatusOK || len(c.network("net").Requests) != 0 {
		t.Errorf("allow a request: %v", a)
	}
	want(t, "allowed later", c.Sh("net", curl(evil.URL+"/b")), "hello from /b")
	if a := c.Send("POST", decide, `{"decision":"deny"}`); a.Code != http.StatusNotFound {
		t.Errorf("decided twice: %v", a)
	}

	d.Kill()
	d.Start()
	want(t, "after a kill of the server", c.Sh("net", curl(out.URL+"/c")+"; "+curl(evil.URL+"/c")), "hello from /chello from /c")
	if a := c.Send("POST", api+"/sandboxes/net/stop", ""); a.Code != http.StatusOK {
		t.Fatalf("stop: %v", a)
	}
	c.setNetwork("net", fmt.Sprintf(`{"allow":[%q]}`, evil.Addr))
	if a := c.Send("POST", api+"/sandboxes/net/start", ""); a.Code != http.StatusOK {
		t.Fatalf("start: %v", a)
	}
	want(t, "after a stop and a start", c.Sh("net", curl(evil.URL+"/d")+"; "+curl(out.URL)), "hello from /dHost not allowed")

	c.setNetwork("net", `{"mode":"none"}`)
	want(t, "taken away", c.Sh("net", "env | grep -ic proxy; "+curl(evil.URL)), "0\ncurl: (7)")
	c.setNetwork("none", fmt.Sprintf(`{"allow":[%q]}`, out.Addr))
	want(t, "given while it runs", c.Sh("none", curl(out.URL+"/e")), "hello from /e")
	var st struct {
		In  int `json:"network_in"`
		Out int `json:"network_out"`
	}
	if d.Do(d.Key, "GET", "/sandboxes/none/stats", "", &st); st.In < 20 || st.Out < 20 {
		t.Errorf("stats: %+v", st)
	}
}

// TestNetworkCut: a connection goes on when its host is taken off the list, unless
// it is to be cut.
func TestNetworkCut(t *testing.T) {
	t.Parallel()
	out := newLab(t)
	d := StartDaemon(t, "--egress-allow-ranges", "127.0.0.0/8")
	c := d.Admin()
	c.Create(fmt.Sprintf(`{"name":"net","network":{"allow":[%q]}}`, out.Addr))
	job := c.Background("net", curl("-N -m 600 "+out.URL+"/endless")+" >/workspace/got")
	size := func() string { return c.Sh("net", "stat -c %s /workspace/got 2>/dev/null || echo 0") }
	grows := func() bool {
		before := size()
		time.Sleep(300 * time.Millisecond) // in which the server sends a dozen lines
		return size() != before
	}
	Until(t, soon, "the stream runs", grows)
	c.setNetwork("net", `{"allow":["example.com"]}`)
	Until(t, soon, "the stream goes on", grows)
	want(t, "a new connection", c.Sh("net", curl(out.URL)), "Host not allowed")
	c.setNetwork("net", `{"allow":["example.com"],"cut":true}`)
	a := c.Send("POST", api+"/sandboxes/net/execs/"+job+"/wait?timeout=30", "")
	var ended struct{ Result executed }
	if err := json.Unmarshal([]byte(a.Text), &ended); err != nil || ended.Result.ExitCode == 0 {
		t.Errorf("the cut stream ended with %s", a.Text)
	}
	Until(t, soon, "the cut is recorded", func() bool {
		a := c.Send("GET", api+"/sandboxes/net/network/log", "")
		return strings.Contains(a.Text, `"code":"policy_changed"`)
	})
}

// TestNetworkOfServer: what the operator does not allow is refused, and
// network_enabled alone is what the operator allows.
func TestNetworkOfServer(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	c := d.Admin()
	for body, part := range map[string]string{
		`{"network":{"mode":"full"}}`:                                      "egress.full",
		`{"network":{"allow":["not a host"]}}`:                             "network.allow[0]",
		`{"network":{"mode":"none","allow":["a.example"]}}`:                "network.allow",
		`{"network_enabled":true,"network":{"mode":"none"}}`:               "network_enabled",
		`{"network":{"mode":"allowlist","allow":["10.0.0.1","nonsense"]}}`: "network.allow[1]",
	} {
		if a := c.Send("POST", api+"/sandboxes", body); !a.Refused() || !strings.Contains(a.Text, part) {
			t.Errorf("%s: %v", body, a)
		}
	}
	c.Create(`{"name":"net","network_enabled":true}`)
	if n := c.network("net"); n.Mode != "allowlist" || len(n.Allow) != 1 || n.Allow[0] != "default" {
		t.Errorf("network_enabled is %+v", n)
	}
	// Addresses that are not public are not reached, whatever the list says.
	out := newLab(t)
	c.setNetwork("net", fmt.Sprintf(`{"allow":[%q,"169.254.169.254"]}`, out.Addr))
	want(t, "loopback of the host", c.Sh("net", curl(out.URL)), "not allowed")
	want(t, "metadata", c.Sh("net", curl("http://169.254.169.254/latest/")), "not allowed")
	select {
	case path := <-out.hits:
		t.Errorf("the host's loopback was reached: %s", path)
	default:
	}
	full := StartDaemon(t, "--egress-full")
	full.Admin().Create(`{"name":"net","network_enabled":true}`)
	if n := full.Admin().network("net"); n.Mode != "full" {
		t.Errorf("network_enabled where full is allowed is %+v", n)
	}
}

// TestNetworkByCommands: the command line makes, changes and shows networks.
func TestNetworkByCommands(t *testing.T) {
	t.Parallel()
	out := newLab(t)
	d := StartDaemon(t, "--egress-allow-ranges", "127.0.0.0/8")
	must := func(args ...string) string {
		t.Helper()
		o := d.Run(args...)
		if o.Code != 0 {
			t.Fatalf("%q: %+v", args, o)
		}
		return o.Stdout
	}
	must("create", "--name", "net", "--allow", "python", "--allow", "api.example.com")
	want(t, "policy", must("egress", "policy", "net"), "network: allowlist\n  python\n  api.example.com\n")
	want(t, "denied", must("exec", "net", "--", "sh", "-c", curl(out.URL)), "Host not allowed")
	denied := regexp.MustCompile(`(r[0-9a-f]{16}) +` + regexp.QuoteMeta(out.Addr)).FindStringSubmatch(must("egress", "policy", "net"))
	if denied == nil {
		t.Fatal("what was denied is not shown")
	}
	want(t, "denied, of all owners", must("egress", "requests"), denied[1])
	must("egress", "allow", "net", denied[1], "b.example.com")
	want(t, "allowed", must("exec", "net", "--", "sh", "-c", curl(out.URL+"/a")), "hello from /a")
	must("egress", "deny", "net", "python", "--cut")
	want(t, "changed", must("egress", "policy", "net"), "network: allowlist\n  api.example.com\n  "+out.Addr+"\n  b.example.com\n")
	if o := d.Run("egress", "deny", "net", "python"); o.Code != 125 || !strings.Contains(o.Stderr, "not on the list") {
		t.Errorf("denied twice: %+v", o)
	}
	must("egress", "policy", "net", "--mode", "none")
	want(t, "no network", must("egress", "policy", "net"), "network: none\n")
	log := must("egress", "log", "net")
	want(t, "log", log, "denied    "+out.Addr)
	want(t, "log", log, "allowed   "+out.Addr)
	if o := d.Run("create", "--allow", "not a host"); o.Code != 125 || !strings.Contains(o.Stderr, "network.allow[0]") {
		t.Errorf("a host that is none: %+v", o)
	}
}

// TestNetworkIsTakenAway also when the sandbox does not go along: it is the server
// that decides.
func TestNetworkIsTakenAway(t *testing.T) {
	t.Parallel()
	out := newLab(t)
	d := StartDaemon(t, "--egress-allow-ranges", "127.0.0.0/8")
	c := d.Admin()
	c.Create(fmt.Sprintf(`{"name":"net","user":"root","network":{"allow":[%q],"resolver":true}}`, out.Addr))
	want(t, "before", c.Sh("net", curl(out.URL+"/a")), "hello from /a")
	c.Sh("net", "rm -f /etc/resolv.conf; mkdir /etc/resolv.conf") // its agent can't take the resolver away
	c.setNetwork("net", `{"mode":"none"}`)
	if n := c.network("net"); n.Mode != "none" {
		t.Errorf("the network is %+v", n)
	}
	if got := c.Sh("net", curl(out.URL+"/b")); strings.Contains(got, "hello") {
		t.Errorf("after it was taken away: %q", got)
	}
	// A guest that is frozen in the middle of a connection does not hold up its end.
	frozen := c.Create(fmt.Sprintf(`{"name":"frozen","network":{"allow":[%q]}}`, out.Addr))
	c.Background("frozen", curl("-N -m 600 "+out.URL+"/endless")+" >/workspace/got")
	Until(t, soon, "the stream runs", func() bool { return len(out.hits) > 1 })
	for _, pid := range SandboxPids(t, frozen.ID) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if a := c.Send("DELETE", api+"/sandboxes/frozen", ""); a.Code != http.StatusNoContent {
		t.Errorf("destroy a frozen sandbox: %v", a)
	}
	if took := time.Since(began); took > 10*time.Second+Slack() {
		t.Errorf("that took %v", took)
	}
}
