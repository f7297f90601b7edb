package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/egress/policy"
)

// compile makes an allow-list.
func compile(t testing.TB, allow ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(policy.Spec{Mode: policy.Allowlist, Allow: allow})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// connect is what a client gets that asks for a host; a host that is none is
// denied.
func connect(p *policy.Policy, host string) policy.Verdict {
	t, err := policy.ParseTarget(host, 443)
	if err != nil {
		return policy.Verdict{Reason: err.Error()}
	}
	return p.Connect(t)
}

func TestConnect(t *testing.T) {
	p := compile(t, "a.test", "*.b.test", "c.test:8443", "*.c.test:8443", "intranet.", "192.0.2.7", "198.51.100.0/24:5432", "[2001:db8::1]:22", "2001:db8:1::/48",
		"GET,HEAD d.test/v1/*", "POST https://d.test/v2", "* http://e.test", "GET a.test/x")
	for host, rule := range map[string]string{
		"a.test": "a.test", "a.test:80": "a.test", "a.test:443": "a.test", "a.test:22": "", "x.a.test": "", "test": "", "aa.test": "", "a.test.evil.test": "",
		"x.b.test": "*.b.test", "x.y.b.test:80": "*.b.test", "b.test": "", "xb.test": "", "x.b.test:8080": "", "b.test.b.test": "*.b.test",
		"c.test:8443": "c.test:8443", "c.test": "", "c.test:80": "", "x.c.test:8443": "*.c.test:8443", "x.c.test": "",
		"intranet": "intranet.", "intranet.": "intranet.", "intranet.test": "",
		"192.0.2.7": "192.0.2.7", "192.0.2.7:22": "", "192.0.2.8": "",
		"198.51.100.255:5432": "198.51.100.0/24:5432", "198.51.100.255": "", "198.51.101.0:5432": "",
		"[2001:db8::1]:22": "[2001:db8::1]:22", "[2001:db8::1]": "", "[2001:db8:1:ffff::]": "2001:db8:1::/48", "[2001:db8:2::]": "",
		"d.test": "GET,HEAD d.test/v1/* (requests)", "d.test:80": "GET,HEAD d.test/v1/* (requests)", "d.test:8080": "", "e.test:80": "* http://e.test/* (requests)", "e.test": "",
	} {
		v := connect(p, host)
		got := v.Rule
		if v.SeeRequest {
			got += " (requests)"
		}
		if got != rule || v.Allow != (rule != "") || v.Allow == (v.Reason != "") {
			t.Errorf("%s: %+v, want rule %q", host, v, rule)
		}
	}
}

func TestReasons(t *testing.T) {
	p := compile(t, "a.test", "GET b.test/x")
	for want, v := range map[string]policy.Verdict{
		"evil.test is not on the sandbox's allow-list":                   connect(p, "evil.test"),
		"port 22 of a.test is not on the sandbox's allow-list":           connect(p, "a.test:22"),
		"port 22 of b.test is not on the sandbox's allow-list":           connect(p, "b.test:22"),
		"the sandbox has no network":                                     connect(nil, "a.test"),
		"localhost is the sandbox itself: it is reached without a proxy": connect(p, "localhost:80"),
		`"PUT" "/x" of b.test is not on the sandbox's allow-list`:        p.Request(policy.Target{Name: "b.test", Port: 443}, "https", "PUT", "/x"),
	} {
		if v.Reason != want || v.Allow {
			t.Errorf("got %+v, want %q", v, want)
		}
	}
}

func TestModes(t *testing.T) {
	full, err := policy.Compile(policy.Spec{Mode: policy.Full})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"a.test", "a.test:22", "192.0.2.1:1", "[2001:db8::1]:65535", "intranet:80"} {
		if v := connect(full, host); !v.Allow || v.Rule != "full" || v.SeeRequest {
			t.Errorf("full: %s: %+v", host, v)
		}
	}
	var zero policy.Policy
	none, err := policy.Compile(policy.Spec{Mode: policy.None})
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]*policy.Policy{"nil": nil, "zero": &zero, "none": none, "empty list": compile(t)} {
		target := policy.Target{Name: "a.test", Port: 443}
		if v := p.Connect(target); v.Allow || v.Reason == "" {
			t.Errorf("%s: Connect: %+v", what, v)
		}
		if v := p.Request(target, "https", "GET", "/"); v.Allow || v.Reason == "" {
			t.Errorf("%s: Request: %+v", what, v)
		}
		if p.Name("a.test") {
			t.Errorf("%s: resolves", what)
		}
		if what != "empty list" && p.Mode() != policy.None {
			t.Errorf("%s: mode %q", what, p.Mode())
		}
	}
	for _, p := range []*policy.Policy{full, compile(t, "a.test")} {
		for _, bad := range []policy.Target{{}, {Name: "a.test"}, {Port: 443}} {
			if v := p.Connect(bad); v.Allow {
				t.Errorf("%s: %+v: %+v", p.Mode(), bad, v)
			}
		}
	}
}

func TestRequest(t *testing.T) {
	p := compile(t, "GET,HEAD d.test/v1/*", "POST https://d.test/v2", "* http://e.test", "PUT *.f.test:8443/a%20b", "GET g.test/x*", "g.test:443", "GET 192.0.2.7/", "* h.test/own")
	for request, allow := range map[string]bool{
		"https d.test:443 GET /v1/": true, "http d.test:80 HEAD /v1/x/y": true, "https d.test:443 GET /v1/x?q=/../": true, "https d.test:443 GET /v1": false,
		"https d.test:443 POST /v1/x": false, "https d.test:443 get /v1/x": false, "https d.test:443 GET /v1x": false, "https d.test:443 GET /V1/": false,
		"https d.test:443 POST /v2": true, "https d.test:443 POST /v2?x": true, "http d.test:80 POST /v2": false, "http d.test:443 POST /v2": false, "https d.test:443 POST /v2/": false, "https d.test:443 POST /%76%32": true,
		"https d.test:8443 GET /v1/": false, "https dd.test:443 GET /v1/": false,
		// Servers differ on these, so they are nobody's /v1/.
		"https d.test:443 GET /v1/../v2": false, "https d.test:443 GET /v1/%2e%2e/v2": false, "https d.test:443 GET /v1/.%2E/v2": false, "https d.test:443 GET /v1/..;a=b/v2": false, "https d.test:443 GET /v1/..%3b/v2": false, "https d.test:443 GET /v1/..": false, "https d.test:443 GET /v1/./x": false,
		"https d.test:443 GET /v1/..%2fv2": false, "https d.test:443 GET /v1/%2f": false, `https d.test:443 GET /v1/..\v2`: false, "https d.test:443 GET /v1/..%5cv2": false, "https d.test:443 GET /v1/%252e%252e/v2": false, "https d.test:443 GET /v1/．．/v2": false, "https d.test:443 GET /v1/..／v2": false, "https d.test:443 GET /v1/%E2%80%A5/v2": false, "https d.test:443 GET /v1/a％2fb": false, "https d.test:443 GET /v1/Ｅé\u0065\u0301ﬁ": true, "https d.test:443 GET /v1/%00": false, "https d.test:443 GET /v1/%ff": false, "https d.test:443 GET /v1/%zz": false, "https d.test:443 GET /v1/#": false, "https d.test:443 GET v1/": false, "https d.test:443 GET http://d.test/v1/": false,
		// With all paths allowed it makes no difference how they are read.
		"http e.test:80 BREW /../%2f": true, "http e.test:80 OPTIONS *": true, "https e.test:443 GET /": false, "https e.test:80 GET /": false,
		"https x.f.test:8443 PUT /a%20b": true, "https x.f.test:8443 PUT /a%20b/": false, "https f.test:8443 PUT /a%20b": false,
		"https g.test:443 DELETE /y": true, "http g.test:80 DELETE /y": false, "http g.test:80 GET /xyz": true,
		"http 192.0.2.7:80 GET /": true, "http 192.0.2.7:80 GET ": true, "http 192.0.2.7:80 GET ?x": true, "http 192.0.2.7:80 GET /x": false,
		"http h.test:80 ANY /own": true,
	} {
		var scheme, host, method, path string
		for part, into := range map[int]*string{0: &scheme, 1: &host, 2: &method, 3: &path} {
			*into = strings.SplitN(request, " ", 4)[part]
		}
		target, err := policy.ParseTarget(host, 0)
		if err != nil {
			t.Fatal(err)
		}
		v := p.Request(target, scheme, method, path)
		if v.Allow != allow || v.Allow == (v.Reason != "") || v.Allow != (v.Rule != "") || v.SeeRequest {
			t.Errorf("%q: %+v, want %v", request, v, allow)
		}
	}
}

// TestNET11_Ports: ports are those of the entry, 80 and 443 if it has none.
func TestNET11_Ports(t *testing.T) {
	p := compile(t, "allowed.test")
	for _, port := range []string{":22", ":25", ":2375", ":3306", ":5432", ":6443", ":8080", ":0", ":65536", ":"} {
		if v := connect(p, "allowed.test"+port); v.Allow {
			t.Errorf("port %q: %+v", port, v)
		}
	}
	for _, port := range []string{"", ":443", ":80"} {
		if v := connect(p, "allowed.test"+port); !v.Allow {
			t.Errorf("port %q: %+v", port, v)
		}
	}
}

func TestB149_PortsOfTheirOwn(t *testing.T) {
	p := compile(t, "allowed.test", "allowed.test:2222")
	for host, allow := range map[string]bool{"allowed.test:2222": true, "allowed.test:443": true, "allowed.test:2223": false} {
		if v := connect(p, host); v.Allow != allow {
			t.Errorf("%s: %+v", host, v)
		}
	}
}

// TestNET15_Spellings: case and one dot at the end make no difference, on either
// side; what only looks like the name, or is mapped to it, is not the name.
func TestNET15_Spellings(t *testing.T) {
	for _, entry := range []string{"allowed.test", "ALLOWED.TEST", "Allowed.Test."} {
		p := compile(t, entry)
		for _, host := range []string{"allowed.test", "ALLOWED.TEST", "allowed.test."} {
			if v := connect(p, host); !v.Allow || v.Rule != "allowed.test" || !p.Name(host) {
				t.Errorf("entry %s: %s: %+v", entry, host, v)
			}
		}
		for what, host := range map[string]string{
			"homograph": "\u0430llowed.test", "homograph xn--": "xn--llowed-8of.test", "ideographic full stop": "allowed\u3002test", "halfwidth full stop": "allowed\uff61test", "full-width full stop": "allowed\uff0etest",
			"soft hyphen": "allo\u00adwed.test", "ZWJ": "allo\u200dwed.test", "ZWNJ": "allo\u200cwed.test", "ZWSP": "allo\u200bwed.test", "word joiner": "allo\u2060wed.test", "BOM": "\ufeffallowed.test",
			"full-width": "\uff41\uff4c\uff4c\uff4f\uff57\uff45\uff44.test", "full-width capital": "\uff21llowed.test", "ligature": "allowed.te\ufb06", "long s": "allowed.te\u017ft", "superscript": "\u1d43llowed.test",
			"combining": "allowed\u0301.test", "ASCII in xn--": "xn--allowed-.test", "two dots": "allowed.test..",
		} {
			if v := connect(p, host); v.Allow || p.Name(host) {
				t.Errorf("entry %s: %s %q: %+v", entry, what, host, v)
			}
		}
	}
}

func TestB129_Spellings(t *testing.T) {
	p := compile(t, "Allowed.test")
	for host, allow := range map[string]bool{
		"ALLOWED.TEST": true, "allowed.test.": true, "allowed.test:443": true, "allowed.test:22": false, "allowed.test@denied.test": false, "allowed.test denied.test": false,
	} {
		if v := connect(p, host); v.Allow != allow {
			t.Errorf("%q: %+v", host, v)
		}
	}
	for _, entry := range []string{"bücher.test", "BÜCHER.test", "xn--bcher-kva.test"} {
		p := compile(t, entry)
		for _, host := range []string{"bücher.test", "Bücher.TEST.", "xn--bcher-kva.test", "XN--bcher-kva.test"} {
			if v := connect(p, host); !v.Allow || v.Rule != "xn--bcher-kva.test" {
				t.Errorf("entry %s: %s: %+v", entry, host, v)
			}
		}
	}
}

func TestB126_HostsThatAreNotListed(t *testing.T) {
	p := compile(t, "allowed.test")
	if v := connect(p, "denied.test"); v.Allow {
		t.Errorf("denied.test: %+v", v)
	}
	if v := connect(p, "allowed.test"); !v.Allow {
		t.Errorf("allowed.test: %+v", v)
	}
}

// TestB130_NamesOfHexLetters: they are names and judged as such.
func TestB130_NamesOfHexLetters(t *testing.T) {
	for _, host := range []string{"cafe:80", "deadbeef:80", "f00d.test:80", "fade.beef", "e3b0c44298fc"} {
		target, err := policy.ParseTarget(host, 443)
		if err != nil || target.Name == "" {
			t.Errorf("%s: %+v, %v: want a name", host, target, err)
		}
		if v := connect(compile(t, "allowed.test", "192.0.2.0/24", "2001:db8::/32"), host); v.Allow {
			t.Errorf("%s: %+v", host, v)
		}
		if v := connect(compile(t, strings.Replace(target.Name+".", "..", ".", 1)), host); !v.Allow {
			t.Errorf("%s on the list: %+v", host, v)
		}
	}
}

// TestB142_Names: which names a resolver may be asked for.
func TestB142_Names(t *testing.T) {
	p := compile(t, "a.test", "*.b.test:8443", "GET c.test/x", "192.0.2.0/24")
	for name, may := range map[string]bool{
		"a.test": true, "A.test.": true, "x.b.test": true, "c.test": true,
		"b.test": false, "s3cret.exfil.test": false, "a.test.exfil.test": false, "xa.test": false, "": false, ".": false, "192.0.2.1": false, "2001:db8::1": false, "127.1": false, "localhost": false, "a.localhost": false, "a test": false, "a.test:80": false,
	} {
		if p.Name(name) != may {
			t.Errorf("Name(%q) = %v", name, !may)
		}
	}
	full, err := policy.Compile(policy.Spec{Mode: policy.Full})
	if err != nil {
		t.Fatal(err)
	}
	for name, may := range map[string]bool{"a.test": true, "localhost": false, "LOCALHOST.": false, "192.0.2.1": false, "127.1": false, "": false} {
		if full.Name(name) != may {
			t.Errorf("full: Name(%q) = %v", name, !may)
		}
	}
}

// TestWide: ranges may be as wide as four of the widest, all together.
func TestWide(t *testing.T) {
	four := []string{"10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"}
	six := []string{"2000::/16", "2001::/16", "2002::/16", "2003::/16"}
	for _, row := range []struct {
		list []string
		wide bool
	}{
		{nil, false}, {four, false}, {append(slices.Clone(six), four...), false}, {append(slices.Clone(four), "192.0.2.1"), true},
		{append(slices.Clone(six), "2a00:1::/64"), true}, {append(slices.Clone(six), "::1", "*.a.test", "a.test"), true},
	} {
		if p := compile(t, row.list...); p.Wide() != row.wide {
			t.Errorf("%q: %v", row.list, p.Wide())
		}
	}
}

func TestPresets(t *testing.T) {
	want := []string{"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "github.com", "raw.githubusercontent.com", "objects.githubusercontent.com", "index.crates.io", "static.crates.io"}
	if got, ok := policy.Preset("default"); !ok || !slices.Equal(got, want) {
		t.Errorf("the default list is %q, want %q", got, want)
	}
	for _, name := range []string{"default", "python", "node", "git", "rust", "go", "debian"} {
		if !slices.Contains(policy.Presets(), name) {
			t.Errorf("there is no preset %s", name)
		}
	}
	for _, name := range policy.Presets() {
		hosts, _ := policy.Preset(name)
		p := compile(t, name)
		if len(hosts) == 0 {
			t.Errorf("%s is empty", name)
		}
		for _, h := range hosts {
			if v := connect(p, strings.Replace(h, "*", "x", 1)); !v.Allow || v.Rule != name+": "+h {
				t.Errorf("%s of %s: %+v", h, name, v)
			}
		}
		if v := connect(p, "evil.test"); v.Allow {
			t.Errorf("%s: evil.test: %+v", name, v)
		}
	}
	hosts, _ := policy.Preset("default")
	hosts[0] = "evil.test"
	if again, _ := policy.Preset("default"); again[0] != want[0] {
		t.Error("a caller can change a preset")
	}
}

func BenchmarkConnect(b *testing.B) {
	p := compile(b, thousand()...)
	for name, target := range map[string]policy.Target{"exact": {Name: "h500.example.com", Port: 443}, "below": {Name: "a.b.c.w500.example.com", Port: 443}, "denied": {Name: "evil.example.org", Port: 443}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.Connect(target)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	spec := policy.Spec{Allow: thousand()}
	for b.Loop() {
		if _, err := policy.Compile(spec); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseTarget(b *testing.B) {
	for _, host := range []string{"files.example.org:443", "bücher.example.org:443"} {
		b.Run(host, func(b *testing.B) {
			for b.Loop() {
				if _, err := policy.ParseTarget(host, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// thousand is the longest list: hosts, wildcards, ranges.
func thousand() []string {
	var all []string
	for i := range policy.MaxEntries {
		switch i % 3 {
		case 0:
			all = append(all, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256))
		case 1:
			all = append(all, fmt.Sprintf("*.w%d.example.com", i))
		default:
			all = append(all, fmt.Sprintf("h%d.example.com", i))
		}
	}
	return all
}

// TestIntercept: what is listed for it, and hosts of which only some requests over
// TLS are allowed.
func TestIntercept(t *testing.T) {
	p, err := policy.Compile(policy.Spec{
		Allow:     []string{"a.test", "b.test", "b.test:8443", "GET c.test/x", "GET http://d.test:443/x", "GET https://e.test/x", "GET f.test/x", "f.test", "GET https://192.0.2.1:8443/x", "g.test"},
		Intercept: []string{"b.test", "*.below.test", "198.51.100.0/24", "node"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"a.test:443": false, "b.test:443": true, "b.test:8443": false, "x.below.test:443": true, "below.test:443": false, "198.51.100.7:443": true,
		"registry.npmjs.org:443": true, "c.test:443": true, "d.test:443": false, "e.test:443": true, "f.test:443": false, "192.0.2.1:8443": true, "192.0.2.1:443": false, "g.test:443": false,
	} {
		target, err := policy.ParseTarget(host, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Intercept(target); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
	for _, c := range []struct {
		spec policy.Spec
		want bool
	}{
		{policy.Spec{}, false}, {policy.Spec{Allow: []string{"a.test", "GET http://a.test/"}}, false}, {policy.Spec{Allow: []string{"GET a.test/"}}, true},
		{policy.Spec{Mode: policy.Full, Intercept: []string{"a.test"}}, true},
	} {
		p, err := policy.Compile(c.spec)
		if err != nil || p.Intercepts() != c.want {
			t.Errorf("%+v: %v, %v", c.spec, p.Intercepts(), err)
		}
	}
	var none *policy.Policy
	if none.Intercepts() || none.Intercept(policy.Target{Name: "a.test", Port: 443}) {
		t.Error("no policy intercepts")
	}
	for field, spec := range map[string]policy.Spec{
		"network.intercept":    {Intercept: []string{"a.test"}},
		"network.intercept[1]": {Allow: []string{"a.test"}, Intercept: []string{"a.test", "GET a.test/"}},
		"network.intercept[0]": {Allow: []string{"a.test"}, Intercept: []string{"nonsense"}},
	} {
		_, err := policy.Compile(spec)
		invalid(t, err, field)
	}
}
