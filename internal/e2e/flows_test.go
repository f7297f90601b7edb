package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// flow is something that people do with a network. Its commands are run in a
// sandbox that may reach the host, and then again when it may not.
type flow struct {
	name string
	long bool // it needs what takes minutes to install, or the image default
	root bool
	// setup runs first, once, and do must end well and say says.
	setup, do, says string
	// denied is what is done when the host is not allowed; empty: the same as do. It
	// must not end well, and says why.
	denied, why string
}

// flows, in their order: later ones use what earlier ones installed. Those with
// fetch, https.get and aiohttp without trust_env need the resolver: they take no
// proxy by themselves.
var flows = []flow{
	{name: "pip install", do: `pip install -q --no-cache-dir requests && python3 -c 'import requests, urllib3, idna, certifi; print("imported")'`, says: "imported",
		denied: "pip install --retries 1 --no-cache-dir six", why: "Host not allowed: pypi.org"},
	{name: "npm install", long: true, do: `mkdir -p n && cd n && npm install --no-audit --no-fund express && node -e '
const app = require("express")(); app.get("/", (q, r) => r.send("by express"))
const s = app.listen(0, "127.0.0.1", () => require("http").get({port: s.address().port}, r => r.on("data", d => { console.log(String(d)); s.close() })))'`, says: "by express",
		denied: "cd n && npm install --no-audit --no-fund left-pad", why: "Host not allowed: registry.npmjs.org"},
	{name: "apt-get install", root: true, do: "apt-get -q update && apt-get -q install -y --no-install-recommends hello && hello", says: "Hello, world!",
		denied: "apt-get -q update -o APT::Update::Error-Mode=any", why: "Host not allowed: deb.debian.org"},
	{name: "git clone", do: "rm -rf r && git clone -q https://flows.test/repo.git r && cat r/f", says: "cloned", why: "response 403"},
	{name: "curl", do: "curl -sS https://flows.test/hello", says: "hello", why: "response 403"},
	{name: "curl, plain HTTP", do: "head -c 5000000 /dev/zero | curl -sS --fail-with-body --data-binary @- http://flows.test/upload", says: "5000000 bytes", why: "Host not allowed: flows.test"},
	{name: "curl, SOCKS", do: "curl -sS -x socks5h://127.0.0.1:3128 https://flows.test/hello", says: "hello", why: "(97)"},
	{name: "wget", long: true, do: "wget -O- https://flows.test/hello", says: "hello", why: "Host not allowed: flows.test"},
	{name: "Python urllib", do: `python3 -c 'import urllib.request as u; print(u.urlopen("https://flows.test/hello").read())'`, says: "hello", why: "Host not allowed: flows.test"},
	{name: "Python requests", do: `python3 -c 'import requests; print(requests.get("https://flows.test/hello").text)'`, says: "hello", why: "Host not allowed: flows.test"},
	{name: "SSE stream", do: `python3 -c '
import requests
lines = (l for l in requests.get("https://flows.test/events", stream=True).iter_lines() if l)
print(next(lines)); requests.get("https://flows.test/ack"); print(next(lines))'`, says: "data: second", why: "Host not allowed: flows.test"},
	{name: "WebSocket", setup: "pip install -q --no-cache-dir websockets", do: `python3 -c '
from websockets.sync.client import connect
with connect("wss://flows.test/echo") as c:
    c.send("echoed"); print(c.recv())'`, says: "echoed", why: "403"},
	{name: "Node fetch", long: true, do: `node -e 'fetch("https://flows.test/hello").then(r => r.text()).then(console.log, e => { console.log(e.cause.message); process.exit(1) })'`, says: "hello", why: "ENOTFOUND flows.test"},
	{name: "Node https", long: true, do: `node -e 'require("https").get("https://flows.test/hello", r => r.on("data", d => console.log(String(d)))).on("error", e => { console.log(e.message); process.exit(1) })'`, says: "hello", why: "ENOTFOUND flows.test"},
	{name: "Python httpx", setup: "pip install -q --no-cache-dir httpx", do: `python3 -c 'import httpx; print(httpx.get("https://flows.test/hello").text)'`, says: "hello", why: "Host not allowed: flows.test"},
	{name: "Python aiohttp", long: true, setup: "pip install -q --no-cache-dir aiohttp", do: `cat >aio.py <<'EOS'
import asyncio, aiohttp
async def main(trust_env):
    async with aiohttp.ClientSession(trust_env=trust_env) as s:
        async with s.get("https://flows.test/hello") as r: print(await r.text())
asyncio.run(main(False)); asyncio.run(main(True))
EOS
python3 aio.py`, says: "hello\n\nhello", why: "flows.test"},
	{name: "go get", long: true, setup: install("golang-go"), do: "mkdir -p g && cd g && rm -f go.* && go mod init x && GOTOOLCHAIN=local go get golang.org/x/text@v0.3.8", says: "added golang.org/x/text",
		denied: "cd g && GOTOOLCHAIN=local go get rsc.io/quote@v1.5.2", why: "Host not allowed: proxy.golang.org"},
	{name: "Go client", long: true, setup: `cat >c.go <<'EOS'
package main

import (
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	r, err := http.Get("https://flows.test/hello")
	if err != nil {
		log.Fatal(err)
	}
	io.Copy(os.Stdout, r.Body)
}
EOS
GOTOOLCHAIN=local go build -o c c.go`, do: "./c", says: "hello", why: "Host not allowed: flows.test"},
	{name: "cargo fetch", long: true, setup: install("cargo"), do: "rm -rf r1 && cargo new -q --vcs none r1 && cd r1 && echo 'itoa = \"1\"' >>Cargo.toml && cargo fetch && ls $HOME/.cargo/registry/cache/*", says: "itoa-1",
		denied: "rm -rf r2 && cargo new -q --vcs none r2 && cd r2 && echo 'ryu = \"1\"' >>Cargo.toml && CARGO_NET_RETRY=0 cargo fetch", why: "403"},
	{name: "Java client", long: true, setup: install("default-jdk-headless") + ` && cat >C.java <<'EOS'
import java.net.URI;
import java.net.http.*;
class C {
    public static void main(String[] a) throws Exception {
        System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("https://flows.test/hello")).build(), HttpResponse.BodyHandlers.ofString()).body());
    }
}
EOS
javac C.java`, do: "java C", says: "hello", why: "403"},
}

// install installs a package of Debian, as the user who runs it.
func install(name string) string {
	return "apt-get -q install -y --no-install-recommends " + name
}

// ran is what became of a command.
type ran struct {
	executed
	took time.Duration
}

func (c *Client) flow(id, user, line string) ran {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"command": line, "user": user, "timeout": 600})
	if err != nil {
		c.t.Fatal(err)
	}
	began := time.Now()
	a := c.Send("POST", api+"/sandboxes/"+id+"/execute", string(body))
	r := ran{took: time.Since(began)}
	if err := json.Unmarshal([]byte(a.Text), &r.executed); err != nil || a.Code != http.StatusOK {
		c.t.Fatalf("%s: %v", line, a)
	}
	return r
}

// TestFlows: what people do with a network works with nothing set but the hosts, and
// fails at once, with the reason, when these are not allowed. The registries are the
// public ones, as this machine reaches them.
func TestFlows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	names := newNameServer(t, s, "pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "deb.debian.org", "proxy.golang.org", "index.crates.io", "static.crates.io")
	d := StartDaemon(t, names.args(t)...)
	c := d.Admin()
	image := Image
	if Soak() {
		image = "default"
	}
	c.Create(`{"name":"net","image":"` + image + `","memory":"1g","disk":"6g","network":{"allow":["python","node","debian","go","rust","flows.test"]}}`)
	done, all := 0, 0
	for _, f := range flows {
		if f.long && !Soak() {
			continue
		}
		all++
		user := ""
		if f.root {
			user = "root"
		}
		if f.setup != "" {
			as := user
			if strings.HasPrefix(f.setup, "apt-get") {
				as = "root"
			}
			if r := c.flow("net", as, f.setup); r.ExitCode != 0 {
				t.Errorf("%s: what it needs: %d: %s", f.name, r.ExitCode, r.Output)
				continue
			}
		}
		r := c.flow("net", user, f.do)
		if r.ExitCode != 0 || !strings.Contains(r.Output, f.says) {
			t.Errorf("%s: %d: %s", f.name, r.ExitCode, r.Output)
			continue
		}
		done++
		t.Logf("%-18s allowed in %v", f.name, r.took.Round(time.Millisecond))
	}
	t.Logf("%d of %d flows work", done, all)
	for i, line := range [][]string{{"install", "net", "iniconfig"}, {"install", "--with", "npm", "net", "is-odd"}, {"install", "--with", "apt", "net", "tree"}} {
		if i > 0 && !Soak() {
			break
		}
		if o := d.Run(line...); o.Code != 0 {
			t.Errorf("agentbox %q: %+v", line, o)
		}
	}
	if r := c.flow("net", "", "python3 -c 'import iniconfig'"); r.ExitCode != 0 {
		t.Errorf("what was installed: %+v", r)
	}

	c.setNetwork("net", `{"allow":["elsewhere.example"],"cut":true}`)
	names.wasAsked("")
	for _, f := range flows {
		if f.long && !Soak() {
			continue
		}
		user, line := "", f.denied
		if f.root {
			user = "root"
		}
		if line == "" {
			line = f.do
		}
		r := c.flow("net", user, line)
		if r.ExitCode == 0 || !strings.Contains(r.Output, f.why) {
			t.Errorf("%s, denied: %d: %s", f.name, r.ExitCode, r.Output)
		}
		if limit := 5*time.Second + Slack(); r.took > limit {
			t.Errorf("%s, denied: it took %v", f.name, r.took)
		}
		t.Logf("%-18s denied in %v", f.name, r.took.Round(time.Millisecond))
	}
	for _, name := range []string{siteName, "pypi.org", "registry.npmjs.org"} {
		if names.wasAsked(name) {
			t.Errorf("the name server was asked for %s, which was not allowed", name)
		}
	}
	if out := c.flow("net", "", "getent hosts flows.test"); out.ExitCode == 0 {
		t.Errorf("a denied name has an address: %s", out.Output)
	}
}
