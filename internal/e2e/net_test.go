package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// ports that servers of a host are often on.
var hostPorts = []int{21, 22, 25, 53, 80, 111, 443, 631, 2375, 2376, 3306, 5432, 5900, 6080, 6379, 6443, 8080, 8443, 8700, 9090, 9100, 10250, 15004}

// apiPort is where the daemon waits for requests, in the lab.
func (l *netLab) apiPort() int {
	l.t.Helper()
	var port int
	m := regexp.MustCompile(`serves http://127\.0\.0\.1:(\d+)`).FindStringSubmatch(l.Said)
	if m == nil {
		l.t.Fatalf("the daemon says %q", l.Said)
	}
	_, _ = fmt.Sscan(m[1], &port)
	return port
}

// TestNET01_NoWayAroundTheProxy: whatever sockets root in the sandbox makes, and
// whomever it writes to, no packet leaves the host. The control: by the proxy one
// does, and each of the lab's instruments sees it; and they see what is not to
// leave when something sends it.
func TestNET01_NoWayAroundTheProxy(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	const afInet, afInet6, afPacket, stream, datagram, rawSocket, icmp, icmp6, raw, udplite, sctp = 2, 10, 17, 1, 2, 3, 1, 58, 255, 136, 132
	var probes []netProbe
	for _, host := range []string{labAllowed, labEvil, "169.254.169.254", "192.0.2.1", "8.8.8.8", "10.66.0.5", "2001:db8::1", "fd00:ec2::254", "fe80::1", "2606:4700::1111"} {
		for _, port := range []int{22, 53, 80, 443, l.apiPort()} {
			probes = append(probes, netProbe{"via": "tcp", "target": host, "port": port}, netProbe{"via": "udp", "target": host, "port": port})
		}
		family, ping := afInet, icmp
		if strings.Contains(host, ":") {
			family, ping = afInet6, icmp6
		}
		for _, s := range [][2]int{{rawSocket, ping}, {datagram, ping}, {rawSocket, raw}, {rawSocket, 6}, {rawSocket, 17}, {datagram, udplite}, {stream, sctp}} {
			probes = append(probes, netProbe{"via": "packet", "target": host, "family": family, "type": s[0], "protocol": s[1]})
		}
	}
	probes = append(probes, netProbe{"via": "packet", "target": "", "family": afPacket, "type": datagram, "protocol": 8}, netProbe{"via": "packet", "target": "", "family": afPacket, "type": rawSocket, "protocol": 768})
	for i, got := range c.probe(labFull, probes) {
		if got == "connected" || got == "answered" {
			t.Errorf("%v: %v", probes[i], got)
		}
	}
	l.clean()

	c.Sh(labFull, curl("http://allowed.test/net01"))
	if seen := l.net.packets.seen(); !l.net.asked("/net01") || !slices.Contains(seen, "tcp "+labAllowed+":80") || !slices.Contains(l.net.names.asked(), "allowed.test") {
		t.Errorf("control: the instruments do not see a request that is allowed: %v", seen)
	}
	control := newLabNet(t)
	defer control.end()
	if err := control.in(sendAll); err != nil {
		t.Fatal(err)
	}
	want := []string{"tcp 127.0.0.1:80", "tcp " + labEvil + ":443", "tcp [2606:4700::1111]:80", "udp 8.8.8.8:53", "udp 127.0.0.1:5353", "proto 1 169.254.169.254"}
	seen := control.packets.seen()
	for _, place := range want {
		if !slices.Contains(seen, place) {
			t.Errorf("control: the capture does not see %s, only %v", place, seen)
		}
	}
	if len(control.reached()) < 3 {
		t.Errorf("control: the servers of the lab see %+v", control.reached())
	}
}

// TestNET04_Denied: a host that is not on the list is refused in each protocol, with
// one record of each attempt that names it.
func TestNET04_Denied(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"net04","network":{"allow":["allowed.test"]}}`)
	got := c.probe("net04", []netProbe{
		{"via": "get", "target": "evil.test"}, {"via": "connect", "target": "evil.test:443"}, {"via": "socks", "target": "evil.test", "port": 443},
	})
	for _, g := range got[:2] {
		if a, ok := g.([]any); !ok || len(a) != 3 || a[0] != 403.0 || a[1] != "host_not_allowed" || a[2] != "Host not allowed: evil.test" {
			t.Errorf("refused with %v", g)
		}
	}
	if got[2] != 2.0 {
		t.Errorf("SOCKS replies %v", got[2])
	}
	recs := c.connections("net04", 3)
	if len(recs) != 3 {
		t.Errorf("%d records", len(recs))
	}
	for i, kind := range []string{"http", "connect", "socks"} {
		r := recs[i]
		if r["kind"] != kind || r["host"] != "evil.test" || r["verdict"] != "denied" || r["code"] != "host_not_allowed" || r["port"] != map[bool]float64{true: 80, false: 443}[kind == "http"] {
			t.Errorf("record %d is %v", i, r)
		}
	}
	l.clean()
}

// net05 are 34 ways to write an address that nobody may reach; those that are names
// are the lab's.
var net05 = strings.Fields("127.0.0.1 127.1 127.0.1 127.255.255.254 0 0.0.0.0 2130706433 017700000001 0x7f000001 0x7F.0.0.1 0177.0.0.1 127.0x0.0.1 127.000.000.001 " +
	"127.0.0.1. localhost LOCALHOST localhost. foo.localhost localhost.localdomain loopback.allowed.test 127。0。0。1 ①②⑦.0.0.1 127.0.0.1%20 169.254.169.254 169.254.43518 " +
	"169.16689662 2852039166 0xa9fea9fe 0xa9.0xfe.0xa9.0xfe 0251.0376.0251.0376 metadata.allowed.test 10.4325381 172097541 0x0a420005")

// TestNET05_Spellings: no spelling of an address that is not public leads there,
// by any protocol, from a sandbox that may reach everything else.
func TestNET05_Spellings(t *testing.T) {
	t.Parallel()
	if len(net05) != 34 {
		t.Fatalf("there are %d spellings", len(net05))
	}
	l := sharedLab(t)
	l.net.names.set("loopback.allowed.test", "127.0.0.1")
	l.net.names.set("metadata.allowed.test", "169.254.169.254")
	l.refusesAll(t, append(net05, "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "[64:ff9b::7f00:1]", "[fd00:ec2::254]"))
}

// refusesAll asks for hosts by GET, CONNECT and SOCKS.
func (l *netLab) refusesAll(t *testing.T, hosts []string) {
	t.Helper()
	var probes []netProbe
	for _, h := range hosts {
		probes = append(probes,
			netProbe{"via": "get", "target": h}, netProbe{"via": "connect", "target": h + ":443"}, netProbe{"via": "connect", "target": h + ":80"},
			netProbe{"via": "socks", "target": strings.Trim(h, "[]")})
	}
	for i, got := range l.Admin().probe(labFull, probes) {
		if n := answerStatus(got); n != 400 && n != 403 && got != 2.0 {
			t.Errorf("%v: %v", probes[i], got)
		}
	}
	l.clean()
	if got := l.Admin().probe(labFull, []netProbe{{"via": "get", "target": "allowed.test"}})[0]; answerStatus(got) != 200 {
		t.Errorf("control: %v", got)
	}
}

// TestNET07_AddressesOfNames: an allowed name that resolves to an address that is
// not public is refused, unless the operator opened that name.
func TestNET07_AddressesOfNames(t *testing.T) {
	t.Parallel()
	sharedLab(t).refusesAddresses(t, "net07", "10.66.0.5", "127.0.0.1", "169.254.169.254", "fd00:66::5", "100.64.0.1", "0.0.0.0")
}

// refusesAddresses asks for allowed names that have addresses.
func (l *netLab) refusesAddresses(t *testing.T, prefix string, addrs ...string) {
	t.Helper()
	var probes []netProbe
	for i, a := range addrs {
		// Behind a good address, too: one is enough to refuse all.
		one, two := fmt.Sprintf("%s-%d.allowed.test", prefix, i), fmt.Sprintf("%s-%d-two.allowed.test", prefix, i)
		l.net.names.set(one, a)
		l.net.names.set(two, labAllowed, a)
		for _, name := range []string{one, two} {
			probes = append(probes, netProbe{"via": "get", "target": name}, netProbe{"via": "connect", "target": name + ":443"})
		}
	}
	c := l.Admin()
	for i, got := range c.probe(labFull, probes) {
		a, _ := got.([]any)
		if answerStatus(got) != 403 || a[1] != "address_not_allowed" {
			t.Errorf("%v: %v", probes[i], got)
		}
	}
	if got := c.probe(labFull, []netProbe{{"via": "get", "target": labPrivate}})[0]; answerStatus(got) != 200 {
		t.Errorf("control: a name that the operator opened: %v", got)
	}
	recs := c.connections(labFull, 1)
	if !slices.ContainsFunc(recs, func(r map[string]any) bool {
		return r["code"] == "address_not_allowed" && strings.Contains(r["reason"].(string), "blocked address")
	}) {
		t.Error("no record says that the address is blocked")
	}
	l.clean()
}

// TestNET10_Redirects: the proxy follows none; what the client asks for next is
// judged.
func TestNET10_Redirects(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	got := l.Admin().Sh(labList, `for code in 301 302 307 308; do for to in http://169.254.169.254/latest/ http://evil.test/ http://127.0.0.1/ file:///etc/passwd //evil.test/ http://allowed.test/end; do
curl -s -L --noproxy '' -o /dev/null -w '%{http_code} %{num_redirects};' http://allowed.test/to/$code?$to; done; echo; done`)
	if want := strings.Repeat("403 1;403 1;403 1;"+"%;403 1;200 1;\n", 4); !regexp.MustCompile("^" + strings.ReplaceAll(want, "%", `30[1278] [01]`) + "$").MatchString(got) {
		t.Errorf("the redirects ended with\n%s", got)
	}
	l.clean()
}

// TestNET11_Ports: 80 and 443 and what the list names.
func TestNET11_Ports(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	var probes []netProbe
	for _, port := range []string{"22", "25", "2375", "3306", "5432", "6443", "8080", "0", "65536", "", "080", "+80", "80.", "8o", "443,80"} {
		probes = append(probes, netProbe{"via": "connect", "target": "allowed.test:" + port})
	}
	for i, got := range l.Admin().probe(labList, probes) {
		if n := answerStatus(got); n != 400 && n != 403 {
			t.Errorf("%v: %v", probes[i], got)
		}
	}
	if got := l.Admin().probe(labList, []netProbe{{"via": "connect", "target": "allowed.test:443"}})[0]; answerStatus(got) != 200 {
		t.Errorf("control: %v", got)
	}
	l.clean()
}

// TestNET14_Confusion: a request that two readers may read in two ways is not
// passed on.
func TestNET14_Confusion(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	heads := []string{
		"GET http://allowed.test@evil.test/", "GET http://evil.test#@allowed.test/", "GET http://evil.test\\@allowed.test/", "CONNECT evil.test:443@allowed.test:443",
		"CONNECT http://evil.test:443/", "GET //evil.test/", "GET /", "GET http:/evil.test/", "GET http:///evil.test/", "GET http://evil.test%2f@allowed.test/", "GET http://allowed.test:80:evil.test/",
		"GET https://evil.test/", "GET ftp://evil.test/", "CONNECT evil.test", "CONNECT /evil.test:443", "CONNECT allowed.test:443 evil.test:443", "GET http://allowed.test\x00.evil.test/", "CONNECT evil.test\x00allowed.test:443",
		"CONNECT [evil.test]:443", "CONNECT [::ffff:198.51.100.66]:443", "GET http://[198.51.100.66]/",
		" GET http://evil.test/", "\tGET http://evil.test/", "\x04\x01\x00\x50", "\x16\x03\x01\x00\x05", // of SOCKS4 and TLS
	}
	var probes []netProbe
	for _, h := range heads {
		probes = append(probes, netProbe{"via": "raw", "bytes": h + " HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n"})
	}
	// Framing that is read in two ways: the second request would be another's.
	for _, framing := range []string{
		"Content-Length: 5\r\nTransfer-Encoding: chunked", "Content-Length: 5\r\nContent-Length: 6", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
		"Content-Length: +5", "Host: evil.test", "X: a\r\n Host: evil.test", "X : a", "X: a\x00b",
	} {
		probes = append(probes, netProbe{"via": "raw", "bytes": "POST http://allowed.test/confused HTTP/1.1\r\nHost: allowed.test\r\n" + framing + "\r\n\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"})
	}
	for i, got := range l.Admin().probe(labList, probes) {
		all, _ := got.([]any)
		if len(all) == 0 {
			t.Errorf("%v: %v", probes[i], got)
		}
		for _, a := range all {
			if n := answerStatus(a); n != 400 && n != 403 && n != 501 {
				t.Errorf("%v: %v", probes[i], got)
			}
		}
	}
	if l.net.asked("/confused") {
		t.Error("a request that can be read in two ways was passed on")
	}
	plain := netProbe{"via": "raw", "bytes": "POST http://allowed.test/net14 HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"}
	if l.Admin().probe(labList, []netProbe{plain}); !l.net.asked("/net14") {
		t.Error("control: a request that can be read in one way only was not passed on")
	}
	l.clean()
}

// TestNET15_Spellings: case and one dot at the end are the host; letters that only
// look like it are not.
func TestNET15_Spellings(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	same := []string{"ALLOWED.TEST", "allowed.test.", "aLLowed.TeSt."}
	other := []string{
		"xn--llowed-cvf.test", "аllowed.test", "allowed。test", "all\u00adowed.test", "all\u200dowed.test", "all\u200bowed.test", "ａllowed.test", "allowed.test..", ".allowed.test", "allowed..test", "allowed.test%00",
		"allowed%2etest", "allowed.test\t", "allowed_test", "notallowed.test", "allowed.test.evil.test", "allowed.tes", "ſallowed.test",
	}
	for list, fine := range map[*[]string]bool{&same: true, &other: false} {
		var probes []netProbe
		for _, host := range *list {
			probes = append(probes, netProbe{"via": "get", "target": host}, netProbe{"via": "connect", "target": host + ":443"}, netProbe{"via": "socks", "target": host})
		}
		for i, got := range l.Admin().probe(labList, probes) {
			n := answerStatus(got)
			if fine && n != 200 && got != 0.0 || !fine && n != 400 && n != 403 && got != 2.0 {
				t.Errorf("%v: %v", probes[i], got)
			}
		}
	}
	l.clean()
}

// TestNET18_EmptyLists: nothing, null, an empty list and what is no host give no
// network, or are refused; localhost leads nowhere.
func TestNET18_EmptyLists(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	for i, n := range []string{`null`, `{}`, `{"allow":[]}`, `{"allow":null}`, `{"mode":"none"}`, `{"mode":"allowlist"}`, `{"mode":"allowlist","allow":[]}`, ""} {
		name, field := fmt.Sprintf("net18-%d", i), `,"network":`+n
		if n == "" {
			field = ""
		}
		a := c.Send("POST", api+"/sandboxes", `{"name":"`+name+`"`+field+`}`)
		if a.Refused() {
			continue
		}
		if a.Code != http.StatusCreated {
			t.Errorf("%q: %v", n, a)
			continue
		}
		if got := c.Sh(name, curl("http://allowed.test/net18")); strings.Contains(got, "lab:") {
			t.Errorf("%q is %q", n, got)
		}
		if a := c.Send("DELETE", api+"/sandboxes/"+name, ""); a.Code != http.StatusNoContent {
			t.Errorf("destroy %s: %v", name, a)
		}
	}
	for _, n := range []string{`[""]`, `["none"]`, `["null"]`, `["*"]`, `["all"]`, `["full"]`, `["0.0.0.0/0"]`, `[" "]`, `{}`, `"allowed.test"`} {
		if a := c.Send("POST", api+"/sandboxes", `{"network":{"allow":`+n+`}}`); !a.Refused() {
			t.Errorf("allow %s: %v", n, a)
		}
	}
	c.Create(`{"name":"net18","network":{"allow":["localhost"]}}`)
	for _, got := range c.probe("net18", []netProbe{{"via": "get", "target": "localhost"}, {"via": "connect", "target": "localhost:443"}, {"via": "socks", "target": "localhost"}}) {
		if n := answerStatus(got); n != 403 && got != 2.0 {
			t.Errorf("localhost: %v", got)
		}
	}
	if o := l.Run("create", "--name", "net18-cli"); o.Code != 0 || c.network("net18-cli").Mode != "none" {
		t.Errorf("agentbox create without a list: %+v", o)
	}
	if l.net.asked("/net18") {
		t.Error("a sandbox without a network reached a host")
	}
	l.clean()
}

// TestNET20_EachRequestIsJudged, on one connection.
func TestNET20_EachRequestIsJudged(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	one := func(host string) string {
		return "GET http://" + host + "/net20 HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	}
	got := l.Admin().probe(labList, []netProbe{{"via": "raw", "bytes": one("allowed.test") + one("evil.test") + one("169.254.169.254") + one("allowed.test")}})
	all, _ := got[0].([]any)
	var codes []int
	for _, a := range all {
		codes = append(codes, answerStatus(a))
	}
	if !slices.Equal(codes, []int{200, 403, 403, 200}) {
		t.Errorf("the answers are %v", got)
	}
	l.clean()
}

// TestNET23_PortsOfTheHost: of all ports that a sandbox finds, only its proxy and
// its resolver answer; by the proxy it reaches none of the host's.
func TestNET23_PortsOfTheHost(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	ports := append([]int{l.apiPort(), 3128}, hostPorts...)
	var probes []netProbe
	for _, port := range ports {
		probes = append(probes, netProbe{"via": "tcp", "target": "127.0.0.1", "port": port})
		for _, host := range []string{"127.0.0.1", "192.0.2.1", "[2001:db8::1]", "localhost"} {
			probes = append(probes, netProbe{"via": "connect", "target": fmt.Sprintf("%s:%d", host, port)})
		}
	}
	for i, got := range c.probe(labFull, probes) {
		p := probes[i]
		switch {
		case p["port"] == 3128:
			if got != "connected" {
				t.Errorf("the proxy: %v", got)
			}
		case p["via"] == "tcp" && got == "connected", p["via"] == "connect" && answerStatus(got) != 403:
			t.Errorf("%v: %v", p, got)
		}
	}
	l.clean()
}

// TestNET26_Flood: a thousand connections at once are capped with an answer, and
// another sandbox has its network meanwhile.
func TestNET26_Flood(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"net26","network":{"allow":["allowed.test:2222"]}}`)
	n := Sized(400, 1000)
	job := c.Background("net26", fmt.Sprintf(`python3 - <<'END'
import collections, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))
held, said = [], collections.Counter()
for i in range(%d):
    try:
        s = socket.create_connection(("127.0.0.1", 3128), 20)
        s.settimeout(20)
        s.sendall(b"CONNECT allowed.test:2222 HTTP/1.1\r\n\r\n")
        line = s.recv(12)
        said[line[9:12].decode() or "closed"] += 1
        held.append(s)
    except OSError as e:
        said[type(e).__name__] += 1
open("/workspace/said", "w").write(repr(sorted(said.items())))
import time
time.sleep(600)
END`, n))
	defer c.Send("POST", api+"/sandboxes/net26/execs/"+job+"/signal", `{"signal":"KILL"}`)
	var said string
	Until(t, time.Minute, "the flood is answered", func() bool {
		// The neighbour's network works whatever the flood has reached by now.
		want(t, "the neighbour", c.Sh(labList, curl("http://allowed.test/net26")), "lab: allowed.test")
		said = c.Sh("net26", "cat /workspace/said 2>/dev/null")
		return said != ""
	})
	m := regexp.MustCompile(`'200', (\d+)`).FindStringSubmatch(said)
	served := 0
	if m != nil {
		_, _ = fmt.Sscan(m[1], &served)
	}
	if served == 0 || served > 224 {
		t.Errorf("of %d connections %d were served at once: %s", n, served, said)
	}
	l.clean()
}
