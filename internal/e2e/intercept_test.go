package e2e

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// secureLab is a TLS server of the test that stands for the outside, and its
// address.
func secureLab(t *testing.T, cert tls.Certificate) (*httptest.Server, string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %d\n", r.Method, r.URL.Path, len(b))
	})
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for kind, b, err := c.Read(r.Context()); err == nil; kind, b, err = c.Read(r.Context()) {
			_ = c.Write(r.Context(), kind, append([]byte("echo "), b...))
		}
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ { // a client that waits for the end would wait for ever
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond) // it only paces the stream
		}
	})
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s, s.Listener.Addr().String()
}

// issuer prints, in a sandbox, whose certificate a server has.
func issuer(addr string) string {
	return pythonTLS + fmt.Sprintf("\nprint(dict(x[0] for x in connect(%q).getpeercert()['issuer'])['commonName'])\nEOF", addr)
}

// pythonTLS connects through the proxy, with the trust that every program has.
const pythonTLS = `python3 - <<'EOF' 2>&1
import socket, ssl
def connect(addr):
    s = socket.create_connection(("127.0.0.1", 3128))
    s.sendall(f"CONNECT {addr} HTTP/1.1\r\nHost: {addr}\r\n\r\n".encode())
    while not s.recv(4096).endswith(b"\r\n\r\n"): pass
    return ssl.create_default_context().wrap_socket(s, server_hostname=addr.split(":")[0])`

const pythonRequests = `no_proxy= NO_PROXY= python3 - <<'EOF' 2>&1
import urllib.request, urllib.error
def ask(method, path):
    try: print(urllib.request.urlopen(urllib.request.Request("https://%[1]s" + path, method=method, data=b"x" if method == "POST" else None)).read().decode(), end="")
    except urllib.error.HTTPError as e: print(e.code, e.read().decode())
ask("GET", "/a/python")
ask("POST", "/a/python")
EOF`

const nodeRequests = `node - <<'EOF' 2>&1
const http = require("http"), https = require("https");
http.request({ host: "127.0.0.1", port: 3128, method: "CONNECT", path: "%[1]s" }).on("connect", (_, socket) => {
  https.get({ socket, host: "127.0.0.1", path: "/a/node", agent: false }, r => r.on("data", b => process.stdout.write(b)));
}).end();
EOF`

const nodeWebSocket = pythonTLS + `
import base64, os
s = connect("%[1]s")
s.sendall(b"GET /ws HTTP/1.1\r\nHost: %[1]s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n\r\n")
head = b""
while not head.endswith(b"\r\n\r\n"): head += s.recv(1)
print(head.split(b"\r\n")[0].decode())
s.sendall(b"\x81\x82\0\0\0\0hi")
print(s.recv(2)[1], s.recv(100).decode())
EOF`

// TestInterception: of a host of which only some requests are allowed, the proxy
// sees the requests, and programs take its certificate; others keep theirs.
func TestInterception(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "company")
	_, seen := secureLab(t, ca.loopback())
	_, direct := secureLab(t, ca.loopback())
	_, bad := secureLab(t, newAuthority(t, "stranger").loopback())
	d := StartDaemon(t, "--egress-allow-ranges", "127.0.0.0/8", "--egress-ca-bundle", ca.File)
	c := d.Admin()
	a := c.Create(fmt.Sprintf(`{"name":"a","network":{"allow":["GET https://%s/a*","GET https://%[1]s/ws","GET https://%[1]s/events",%[2]q,%[3]q],"intercept":[%[3]q]}}`, seen, direct, bad))
	own := "agentbox sandbox " + a.ID
	get := func(addr, path string) string { return curl("-p https://" + addr + path) }

	// Programs, each with the trust store that it has.
	for _, p := range []struct{ name, line, want string }{
		{"curl", get(seen, "/a/curl"), "GET /a/curl 0\n"},
		{"curl, without the environment", "env -i " + get(seen, "/a/bare"), "GET /a/bare 0\n"},
		{"python", fmt.Sprintf(pythonRequests, seen), "GET /a/python 0\n403 Request not allowed: \"POST\" \"/a/python\""},
		{"WebSocket", fmt.Sprintf(nodeWebSocket, seen), "HTTP/1.1 101 Switching Protocols\n7 echo hi\n"},
		{"events", "timeout 20 " + get(seen, "/events") + " -N | head -5", "data: 0\n\ndata: 1\n\ndata: 2\n"},
		{"another method", get(seen, "/a -X POST -d x -w ' %{http_code}'"), "Request not allowed: \"POST\" \"/a\" of 127.0.0.1 is not on the sandbox's allow-list 403"},
		{"another path", get(seen, "/b"), "Request not allowed"},
		{"the certificate", issuer(seen), own},
		{"that of a host that is not intercepted", issuer(direct), "company"},
		{"its requests", get(direct, "/b -X POST -d x"), "POST /b 1\n"},
		{"a server that nobody trusts", get(bad, "/a -w ' %{http_code}'"), "Proxy error: the server's certificate is of no authority that the proxy trusts 502"},
	} {
		want(t, p.name, c.Sh("a", p.line), p.want)
	}
	t.Run("node", func(t *testing.T) {
		needImage(t, "default")
		c.Create(fmt.Sprintf(`{"name":"node","image":"default","network":{"allow":["GET https://%s/a*"]}}`, seen))
		want(t, "node", c.Sh("node", fmt.Sprintf(nodeRequests, seen)), "GET /a/node 0\n")
	})
	var all []string
	for _, r := range c.connections("a", 10) {
		all = append(all, fmt.Sprintf("%v %v %v %v", r["verdict"], r["method"], r["path"], r["intercepted"]))
	}
	for _, r := range []string{"allowed GET /a/curl true", "denied POST /a true", "denied GET /b true", "failed GET /a true"} {
		if !strings.Contains(strings.Join(all, "\n"), r) {
			t.Errorf("no record says %q: %q", r, all)
		}
	}

	// After a kill of the server, and after a stop and a start, it is what it was.
	const stores = "sha256sum /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/agentbox.crt"
	before := c.Sh("a", stores)
	d.Kill()
	d.Start()
	want(t, "after a kill of the server", c.Sh("a", get(seen, "/a/2")+";"+stores), "GET /a/2 0\n"+before)
	for _, verb := range []string{"stop", "start"} {
		if a := c.Send("POST", api+"/sandboxes/a/"+verb, ""); a.Code != http.StatusOK {
			t.Fatalf("%s: %v", verb, a)
		}
	}
	want(t, "after a stop and a start", c.Sh("a", get(seen, "/a/3")+";"+stores), "GET /a/3 0\n"+before)

	// It can be changed while the sandbox runs.
	c.setNetwork("a", fmt.Sprintf(`{"allow":[%q,%q],"intercept":[%q]}`, seen, direct, direct))
	want(t, "the other way round", c.Sh("a", issuer(seen)+"\n"+issuer(direct)), "company\n"+own)
	c.setNetwork("a", fmt.Sprintf(`{"allow":[%q]}`, seen))
	want(t, "nothing any more", c.Sh("a", issuer(seen)+"\ngrep -c BEGIN /usr/local/share/ca-certificates/agentbox.crt"), "company\n1\n")

	strangers(t, d, seen)
}

// strangers: what one sandbox trusts means nothing in another, and the key of an
// authority is in none.
func strangers(t *testing.T, d *Daemon, addr string) {
	c := d.Admin()
	for _, name := range []string{"b", "c"} {
		if o := d.Run("create", "--name", name, "--user", "root", "--allow", addr, "--intercept", addr); o.Code != 0 {
			t.Fatalf("create: %+v", o)
		}
	}
	shown := d.Run("egress", "policy", "b")
	want(t, "shown", shown.Stdout, "intercepted:\n  "+addr+"\n")
	b := c.Send("GET", api+"/sandboxes/b", "")
	uid := regexp.MustCompile(`"uid":"([0-9a-f]+)"|"id":"([0-9a-f-]+)"`).FindStringSubmatch(b.Text)
	if uid == nil {
		t.Fatalf("the sandbox is %v", b)
	}
	id := uid[1] + uid[2]
	added := c.Sh("b", "cat /usr/local/share/ca-certificates/agentbox.crt")
	_, last := pem.Decode([]byte(added)) // the operator's comes first
	if a := c.Write("c", "/tmp/b.pem", string(last)); a.Code >= 300 {
		t.Fatalf("write: %v", a)
	}
	want(t, "the sandbox's own", c.Sh("c", curl("-p https://"+addr)), "GET / 0\n")
	want(t, "another one's authority", c.Sh("c", "CURL_CA_BUNDLE=/tmp/b.pem "+curl("-p https://"+addr)), "curl: (60)")

	secret, err := os.ReadFile(filepath.Join(d.Dir, "intercept.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "agentbox interception key v1 0 "+id, 32)
	if err != nil {
		t.Fatal(err)
	}
	const control = "what a sandbox knows of interception"
	c.Background("b", "python3 -c 'import time; s = \"what a sandbox knows \" + \"of interception\"; time.sleep(600)'")
	Until(t, soon, "the control is in the memory", func() bool { return InMemory(t, id, []byte(control)) })
	for what, secret := range map[string][]byte{"the daemon's secret": secret, "the authority's key": key} {
		if InMemory(t, id, secret) {
			t.Errorf("%s is in the sandbox's memory", what)
		}
	}
	if got := c.Sh("b", "grep -rl 'PRIVATE KEY' /etc /run /usr/local /var/lib /root /home /tmp 2>/dev/null | grep -v -e /usr/local/lib -e python"); got != "" {
		t.Errorf("there are keys in the sandbox: %s", got)
	}
}
