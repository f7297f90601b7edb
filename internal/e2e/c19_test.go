package e2e

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Reports of users about what egress lets through (C19) and the forms of addresses
// (C20), in a lab where a mistake would be seen.

// TestB126_ConnectIsJudged: CONNECT to a host that is not on the list is refused,
// with one record of each.
func TestB126_ConnectIsJudged(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	c.Create(`{"name":"b126","network":{"allow":["allowed.test"]}}`)
	asks := func(host string) string {
		return c.Sh("b126", fmt.Sprintf(`curl -sk -o /dev/null -w '%%{http_connect} %%{http_code};' https://%s/; curl -s -o /dev/null -w '%%{http_code}' http://%s/`, host, host))
	}
	if got := asks("denied.test"); got != "403 000;403" {
		t.Errorf("denied: %q", got)
	}
	if got := asks("allowed.test"); got != "200 200;200" {
		t.Errorf("allowed: %q", got)
	}
	denied := slices.DeleteFunc(c.connections("b126", 4), func(r map[string]any) bool { return r["verdict"] == "allowed" })
	if len(denied) != 2 {
		t.Fatalf("records of what was denied: %v", denied)
	}
	for _, r := range denied {
		if r["host"] != "denied.test" || !strings.Contains(r["reason"].(string), "denied.test is not on the sandbox's allow-list") {
			t.Errorf("a record: %v", r)
		}
	}
	l.clean()
}

// TestB129_Spellings of one host on the list.
func TestB129_Spellings(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	l.net.names.set("xn--bcher-kva.allowed.test", labAllowed)
	c.Create(`{"name":"b129","network":{"allow":["Allowed.test","bücher.allowed.test"]}}`)
	for _, row := range []struct {
		via, target string
		status      int
	}{
		{"get", "ALLOWED.test", 200},
		{"get", "allowed.test.", 200},
		{"connect", "allowed.test:443", 200},
		{"connect", "allowed.test:22", 403},
		{"get", "allowed.test@denied.test", 400},
		{"get", "allowed.test denied.test", 400},
		{"get", "bücher.allowed.test", 200},
		{"get", "xn--bcher-kva.allowed.test", 200},
		{"get", "XN--BCHER-KVA.allowed.test", 200},
	} {
		if got := c.probe("b129", []netProbe{{"via": row.via, "target": row.target}})[0]; answerStatus(got) != row.status {
			t.Errorf("%s %s: %v, want %d", row.via, row.target, got, row.status)
		}
	}
	l.clean()
}

// TestB130_NamesOfHexLetters are names, and judged as such.
func TestB130_NamesOfHexLetters(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	for _, host := range []string{"cafe", "deadbeef:80", "f00d.test", "deadbeef", "cafe."} {
		if got := l.Admin().probe(labList, []netProbe{{"via": "get", "target": host}})[0]; answerStatus(got) != 403 {
			t.Errorf("%s: %v", host, got)
		}
	}
	l.clean()
}

// TestB132_LongLists: a thousand hosts work from the first to the last; more, and
// what is no host, is refused by its place in the list.
func TestB132_LongLists(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	list := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("%q", fmt.Sprintf("host-%d.allowed.test", i))
		}
		return strings.Join(all, ",")
	}
	l.net.names.set("host-0.allowed.test", labAllowed)
	l.net.names.set("host-999.allowed.test", labAllowed)
	c.Create(`{"name":"b132","network":{"allow":[` + list(1000) + `]}}`)
	got := c.probe("b132", []netProbe{{"via": "get", "target": "host-0.allowed.test"}, {"via": "get", "target": "host-999.allowed.test"}, {"via": "get", "target": "host-1000.allowed.test"}})
	if answerStatus(got[0]) != 200 || answerStatus(got[1]) != 200 || answerStatus(got[2]) != 403 {
		t.Errorf("with a thousand hosts: %v", got)
	}
	if a := c.Send("POST", api+"/sandboxes", `{"network":{"allow":[`+list(1001)+`]}}`); !a.Refused() || !strings.Contains(a.Text, "1000") {
		t.Errorf("one host more: %v", a)
	}
	for _, entry := range []string{"http://x", "", "a b", "*", "*.com", strings.Repeat("a", 300) + ".test", "host:0", "host:65536"} {
		if a := c.Send("POST", api+"/sandboxes", `{"network":{"allow":["fine.test",`+quoted("%s", entry)+`]}}`); !a.Refused() || !strings.Contains(a.Text, "network.allow[1]") {
			t.Errorf("%.20q: %v", entry, a)
		}
	}
	for _, entry := range []string{"localhost", "host:443"} { // a name of this network, and one that leads nowhere
		c.setNetwork("b132", `{"allow":["`+entry+`"]}`)
	}
	l.clean()
}

// TestB134_EveryFormIsEnforced: of each form of an entry one host is allowed and one
// is not.
func TestB134_EveryFormIsEnforced(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	l.net.names.set("sub.allowed.test", labAllowed)
	l.net.names.set("a.sub.allowed.test", labAllowed)
	c.Create(`{"name":"b134"}`)
	head := func(method, url string) netProbe {
		return netProbe{"via": "raw", "bytes": method + " " + url + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}
	}
	get := func(url string) netProbe { return head("GET", "http://"+url) }
	connect := func(to string) netProbe { return netProbe{"via": "connect", "target": to} }
	for _, row := range []struct {
		entry           string
		allowed, denied []netProbe
	}{
		{"allowed.test", []netProbe{get("allowed.test/"), connect("allowed.test:443")}, []netProbe{get("sub.allowed.test/"), connect("evil.test:443")}},
		{"*.allowed.test", []netProbe{get("sub.allowed.test/"), get("a.sub.allowed.test/")}, []netProbe{get("allowed.test/"), get("notallowed.test/")}},
		{"allowed.test:2222", []netProbe{connect("allowed.test:2222")}, []netProbe{connect("allowed.test:443"), get("allowed.test/")}},
		{labAllowed, []netProbe{get(labAllowed + "/"), connect(labAllowed + ":443")}, []netProbe{get(labEvil + "/"), get("allowed.test/")}},
		{"198.51.100.8/29", []netProbe{get(labAllowed + "/")}, []netProbe{get(labEvil + "/"), get("198.51.100.16/")}},
		{"198.51.100.8/29:2222", []netProbe{connect(labAllowed + ":2222")}, []netProbe{get(labAllowed + "/")}},
		{"GET,HEAD http://allowed.test/v1/*", []netProbe{get("allowed.test/v1/a"), head("HEAD", "http://allowed.test/v1/")}, []netProbe{get("allowed.test/v2"), head("POST", "http://allowed.test/v1/a"), get("allowed.test/v1/../v2"), get("allowed.test/v1/%2e%2e/v2"), connect("allowed.test:443")}},
	} {
		c.setNetwork("b134", `{"allow":[`+quoted("%s", row.entry)+`]}`)
		got := c.probe("b134", append(slices.Clone(row.allowed), row.denied...))
		for i, g := range got {
			all, _ := g.([]any)
			n := answerStatus(g)
			if len(all) > 0 && n == 0 { // of raw: a list of answers
				n = answerStatus(all[0])
			}
			if want := map[bool]int{true: 200, false: 403}[i < len(row.allowed)]; n != want {
				t.Errorf("%s: probe %d: %v, want %d", row.entry, i, g, want)
			}
		}
	}
	l.clean()
}

// TestB135_BadConfiguration: a server with one does not start, and says why. What
// becomes of sandboxes whose proxy is killed is F14's.
func TestB135_BadConfiguration(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, row := range []struct {
		env  string
		args []string
		says string
	}{
		{args: []string{"--egress-allow-ranges", "nonsense"}, says: "egress.allow_ranges"},
		{args: []string{"--egress-private-hosts", "10.0.0.1"}, says: "private hosts"},
		{args: []string{"--egress-private-hosts", "*.example.com"}, says: "private hosts"},
		{args: []string{"--egress-connections", "0"}, says: "egress.connections"},
		{args: []string{"--egress-resolver", "nonsense"}, says: "egress.resolver"},
		{args: []string{"--egress-ca-bundle", "/dev/null"}, says: "/dev/null"},
		{args: []string{"--egress-proxy-host", "127.0.0.1", "--egress-proxy-port", port}, says: "--egress-proxy-port"},
		{env: "SIGNING_KEY=abc", says: "env SIGNING_KEY: invalid egress.signing_key"},
		{env: "AGENTBOX_EGRESS_SIGNING_KEY=fifteen-bytes-1", says: "env AGENTBOX_EGRESS_SIGNING_KEY: invalid egress.signing_key"},
		{env: "PROXY_PORT=65536", says: "PROXY_PORT is wrong"},
	} {
		d := &Daemon{t: t, Dir: DataDir(t), args: row.args, logs: &lockedBuffer{}}
		err := d.StartWith(row.env)
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%+v: %v", row, err)
			d.Kill()
		} else if key := strings.TrimPrefix(row.env, "SIGNING_KEY="); key != row.env && strings.Contains(err.Error(), key) {
			t.Errorf("%+v: the error has the key: %v", row, err)
		}
	}
}

// TestB136_AddressesOfNames: an allowed name that resolves to what is not public.
func TestB136_AddressesOfNames(t *testing.T) {
	t.Parallel()
	sharedLab(t).refusesAddresses(t, "b136", "169.254.169.254", "127.0.0.1", "10.1.2.3", "192.168.1.1", "100.64.0.1", "0.0.0.0", "::1", "fe80::1", "fc00::1")
}

// TestB138_Spellings of IPv4 addresses are neither names nor addresses.
func TestB138_Spellings(t *testing.T) {
	t.Parallel()
	sharedLab(t).refusesAll(t, []string{"2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "127.0.0.1."})
}

// TestB140_ListedByTheCaller: what callers put on their list opens nothing that the
// operator did not.
func TestB140_ListedByTheCaller(t *testing.T) {
	t.Parallel()
	l := sharedLab(t)
	c := l.Admin()
	a := c.Send("POST", api+"/sandboxes", `{"name":"b140","network":{"allow":["127.0.0.1","169.254.169.254","10.0.0.0/8","[::1]","127.0.0.0/8","fe80::/16"]}}`)
	if a.Code != http.StatusCreated {
		t.Fatalf("create: %v", a)
	}
	for _, host := range []string{"127.0.0.1", "169.254.169.254", "10.66.0.5", "[::1]", "127.9.9.9", "[fe80::1]"} {
		for _, got := range c.probe("b140", []netProbe{{"via": "get", "target": host}, {"via": "connect", "target": host + ":443"}}) {
			if answer, _ := got.([]any); answerStatus(got) != 403 || answer[1] != "address_not_allowed" {
				t.Errorf("%s: %v", host, got)
			}
		}
	}
	l.clean()
}
