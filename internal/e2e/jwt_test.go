package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentbox/internal/egress/token/tokentest"
)

// proxyRig is a server whose signing key the test knows, with the listener for
// sandboxes that have a network of their own, and two sandboxes, which have none.
type proxyRig struct {
	*Client
	t         *testing.T
	key       string // of the variable; empty: it is not set
	port      string // of the listener
	out, evil *lab
	a, b      served
}

func newProxyRig(t *testing.T) *proxyRig {
	t.Helper()
	r := &proxyRig{t: t, key: "a-signing-key-of-the-test", out: newLab(t), evil: newLab(t), port: freePort(t)}
	d := &Daemon{
		t: t, Dir: DataDir(t), logs: &lockedBuffer{},
		args: []string{"--egress-allow-ranges", "127.0.0.0/8"},
		adjust: func(cmd *exec.Cmd) {
			cmd.Env = append(cmd.Env, "PROXY_HOST=127.0.0.1", "PROXY_PORT="+r.port, "SIGNING_KEY="+r.key)
		},
	}
	d.forTest(t)
	r.Client = d.Admin()
	r.a = r.Create(fmt.Sprintf(`{"name":"a","network":{"allow":[%q]}}`, r.out.Addr))
	r.b = r.Create(fmt.Sprintf(`{"name":"b","network":{"allow":[%q]}}`, r.out.Addr))
	return r
}

func (r *proxyRig) forger(sb served) tokentest.Forger {
	return tokentest.Forger{Key: r.key, Session: sb.ID, Lab: r.evil.URL}
}

// proxyURL is the sandbox's proxy with a token.
func proxyURL(token string) string {
	return (&url.URL{Scheme: "http", Host: "127.0.0.1:3128", User: url.UserPassword("sandbox", "jwt_"+token)}).String()
}

func authorization(token string) string {
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("sandbox:jwt_"+token)) + "\r\n"
}

// asker sends each head to the proxy and says how it is answered.
const asker = `
import json, socket
def ask(head):
    s = socket.create_connection(("127.0.0.1", 3128), timeout=60)
    s.sendall(head.encode("latin1"))
    got = b""
    while not got.endswith(b"\r\n\r\n"):
        part = s.recv(1)
        if not part: break
        got += part
    s.close()
    return got.decode("latin1")
print(json.dumps({what: ask(head) for what, head in json.load(open("/workspace/heads.json")).items()}))
`

// answers sends heads of requests from a program in a sandbox to its proxy.
func (r *proxyRig) answers(id string, heads map[string]string) (got map[string]string) {
	r.t.Helper()
	text, err := json.Marshal(heads)
	if err != nil {
		r.t.Fatal(err)
	}
	for path, content := range map[string]string{"/workspace/heads.json": string(text), "/workspace/ask.py": asker} {
		if a := r.Write(id, path, content); a.Code >= 300 {
			r.t.Fatalf("write %s: %v", path, a)
		}
	}
	said := r.Sh(id, "python3 /workspace/ask.py 2>&1")
	if err := json.Unmarshal([]byte(said), &got); err != nil || len(got) != len(heads) {
		r.t.Fatalf("the answers: %v: %.500s", err, said)
	}
	return got
}

// status asks for a page of the allowed server with a token.
func (r *proxyRig) status(id, token string) string {
	r.t.Helper()
	return r.Sh(id, "curl -s -o /dev/null -w '%{http_code}' -m 20 --noproxy '' -x '"+proxyURL(token)+"' "+r.out.URL)
}

func (r *proxyRig) wantStatus(what, id, token, want string) {
	r.t.Helper()
	if got := r.status(id, token); got != want {
		r.t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestJWT10_InSandboxes: a token that a program sends to its sandbox's proxy is
// checked, though none is needed; each that is not good gets 407, and nobody is
// reached: neither what is allowed nor what the token or its header names.
func TestJWT10_InSandboxes(t *testing.T) {
	t.Parallel()
	r := newProxyRig(t)
	good := r.forger(r.a).Good()
	if got := r.Sh("a", "echo $HTTP_PROXY $https_proxy; env | grep -c -e jwt_ -e 15004 -e SIGNING"); got != "http://127.0.0.1:3128 http://127.0.0.1:3128\n0\n" {
		t.Errorf("PROXY_HOST changes what a sandbox of gVisor is told: %q", got)
	}
	for _, pid := range SandboxPids(t, r.a.ID) {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && strings.Contains(string(env), r.key) {
			t.Errorf("process %d of the sandbox has the signing key in its environment", pid)
		}
	}
	curls := func(what, options, want string) {
		t.Helper()
		if got := r.Sh("a", "curl -sS -m 20 --noproxy '' "+options+" 2>&1"); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	curls("J2", "-x '"+proxyURL(good)+"' "+r.out.URL+"/j2", "hello from /j2")
	curls("J3", "-p -x '"+proxyURL(good)+"' "+r.out.URL+"/j3", "hello from /j3")
	curls("J5", "-x '"+proxyURL(r.forger(r.a).Token(tokentest.Header, strings.Replace(r.forger(r.a).Claims(tokentest.Forever), "a.test", "*,127.0.0.1", 1)))+"' "+r.evil.URL, "Host not allowed: 127.0.0.1")
	curls("J6, no token is needed", "-x http://127.0.0.1:3128 "+r.out.URL+"/j6", "hello from /j6")
	curls("J6, CONNECT", "-p -x '"+proxyURL("x")+"' "+r.out.URL, "407")
	python := `import urllib.request as u
print(u.build_opener(u.ProxyHandler({"http": "` + proxyURL(good) + `"})).open("` + r.out.URL + `/py").read())`
	if got := r.Sh("a", "no_proxy= NO_PROXY= python3 -c '"+python+"' 2>&1"); !strings.Contains(got, "hello from /py") {
		t.Errorf("python: %q", got)
	}

	heads := map[string]string{}
	plain, connect := "GET "+r.out.URL+"/ HTTP/1.1\r\nHost: x\r\n", "CONNECT "+r.out.Addr+" HTTP/1.1\r\n"
	other := r.forger(r.b)
	bad := r.forger(r.a).Bad()
	bad["another sandbox's"], bad["no sandbox's"] = other.Good(), tokentest.Forger{Key: r.key, Session: strings.Repeat("0", 64)}.Good()
	bad["by its name"] = tokentest.Forger{Key: r.key, Session: "a"}.Good()
	for what, token := range bad {
		heads[what], heads[what+", CONNECT"] = plain+authorization(token)+"\r\n", connect+authorization(token)+"\r\n"
	}
	one := authorization(good)
	for what, fields := range map[string]string{
		"Bearer": "Proxy-Authorization: Bearer jwt_" + good + "\r\n", "empty": "Proxy-Authorization:\r\n", "Basic alone": "Proxy-Authorization: Basic\r\n",
		"twice": one + one, "no prefix": "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("sandbox:"+good)) + "\r\n",
		"a password": "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("user:password")) + "\r\n",
	} {
		heads[what] = plain + fields + "\r\n"
	}
	served := len(r.out.hits)
	for what, got := range r.answers("a", heads) {
		if !strings.HasPrefix(got, "HTTP/1.1 407 ") || !strings.Contains(got, "Proxy-Authenticate: Basic realm=\"agentbox\"\r\n") {
			t.Errorf("%s: %q", what, got)
		}
	}
	if n := len(r.out.hits); n != served || len(r.evil.hits) != 0 {
		t.Errorf("%d requests reached the allowed server, %d the other one", n-served, len(r.evil.hits))
	}
	r.replayed(good)
	if log := r.d.Log(); strings.Contains(log, good) || strings.Contains(log, r.key) || strings.Contains(r.Send("GET", api+"/sandboxes/b/network/log", "").Text, "eyJ") {
		t.Error("the log has a token or the key")
	}
	if n := r.d.metric("agentbox_egress_tokens_refused_total"); n < float64(len(heads)) {
		t.Errorf("%v refused tokens are counted of %d", n, len(heads))
	}
}

// replayed takes sandbox a's token to where it is worth nothing: to b, to the
// listener, which has no address of a gVisor sandbox, and behind a's end.
func (r *proxyRig) replayed(token string) {
	r.t.Helper()
	r.wantStatus("J12, in another sandbox", "b", token, "407")
	at := "127.0.0.1:" + r.port
	for what, u := range map[string]*url.URL{
		"no token": {Scheme: "http", Host: at}, "the sandbox's": {Scheme: "http", Host: at, User: url.UserPassword("sandbox", "jwt_"+token)},
	} {
		c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}}
		resp, err := c.Get("http://allowed.test/")
		if err != nil {
			r.t.Errorf("the listener, %s: %v", what, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusProxyAuthRequired || len(body) == 0 {
			r.t.Errorf("the listener, %s: %s %q", what, resp.Status, body)
		}
	}
	if a := r.Send("DELETE", api+"/sandboxes/a", ""); a.Code != http.StatusNoContent {
		r.t.Fatalf("destroy: %v", a)
	}
	r.wantStatus("J8, after destroy", "b", token, "407")
	r.wantStatus("b's own", "b", r.forger(r.b).Good(), "200")
}

// TestJ11_NoOtherWay: what a sandbox may reach it reaches by its proxy only, whatever
// it may reach and whoever asks in it. (The resolver leads to the proxy, too.)
func TestJ11_NoOtherWay(t *testing.T) {
	t.Parallel()
	out := newLab(t)
	c := StartDaemon(t, "--egress-full", "--egress-allow-ranges", "127.0.0.0/8").Admin()
	c.Create(`{"name":"net","user":"root","network":{"mode":"full","resolver":false}}`)
	want(t, "by the proxy", c.Sh("net", curl(out.URL)), "hello from /")
	served := len(out.hits)
	got := c.Sh("net", fmt.Sprintf("for at in %s http://198.51.100.1 http://169.254.169.254 http://[2001:db8::1] https://example.com; do curl -s -m 10 --noproxy '*' $at; echo $?; done", out.URL))
	if got != "7\n7\n7\n7\n6\n" || len(out.hits) != served { // no connection, no name
		t.Errorf("without the proxy: %q, %d requests reached the server", got, len(out.hits)-served)
	}
}

// TestJWT06_Rotation: an operator changes the key with a restart; tokens of the one
// before are good for the overlap. A key that is too short keeps the server from
// starting, and nothing shows one.
func TestJWT06_Rotation(t *testing.T) {
	t.Parallel()
	r := newProxyRig(t)
	first := r.forger(r.b).Good()
	r.wantStatus("the first key", "b", first, "200")
	restart := func(key string, more ...string) {
		t.Helper()
		if code := r.d.Stop(); code != 0 {
			t.Fatalf("stop: %d", code)
		}
		r.key = key
		if err := r.d.StartWith(more...); err != nil {
			t.Fatal(err)
		}
	}
	restart("")
	r.wantStatus("without the variable the key stays", "b", first, "200")
	restart("the-second-key-of-the-test")
	second := r.forger(r.b).Good()
	r.wantStatus("within the overlap", "b", first, "200")
	r.wantStatus("the second key", "b", second, "200")
	restart("the-third-key-of-the-test", "AGENTBOX_EGRESS_SIGNING_KEY_OVERLAP=0")
	r.wantStatus("without an overlap", "b", second, "407")
	r.wantStatus("an older key within its own", "b", first, "200")
	r.wantStatus("the third key", "b", r.forger(r.b).Good(), "200")
	path := filepath.Join(r.d.Dir, "signing-keys.json")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the file of keys: %v, %v", info, err)
	}
	if code := r.d.Stop(); code != 0 {
		t.Fatalf("stop: %d", code)
	}
	if _, err := net.DialTimeout("tcp", "127.0.0.1:"+r.port, time.Second); err == nil {
		t.Error("the listener is there without the server")
	}
	r.key = "fifteen-bytes-1"
	if err := r.d.StartWith(); err == nil || !strings.Contains(err.Error(), "env SIGNING_KEY: invalid egress.signing_key") || !strings.Contains(err.Error(), "16 bytes") || strings.Contains(err.Error(), r.key) {
		t.Errorf("with a short key: %v", err)
	}
	r.key = ""
	other, err := net.Listen("tcp", "127.0.0.1:"+r.port)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.d.StartWith(); err == nil || !strings.Contains(err.Error(), "--egress-proxy-port") {
		t.Errorf("while its port is somebody else's: %v", err)
	}
	other.Close()
	r.d.Start()
	shown := r.d.Run("config", "show", "--egress-signing-key", "a-key-that-is-long-enough")
	if shown.Code != 0 || !slices.ContainsFunc(strings.Split(shown.Stdout, "\n"), func(l string) bool {
		return strings.Contains(l, "signing_key") && strings.Contains(l, "(hidden)")
	}) || strings.Contains(shown.Stdout, "long-enough") {
		t.Errorf("config show: %+v", shown)
	}
}
