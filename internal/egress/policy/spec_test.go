package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// invalid sees to it that err names the field, in a form that callers understand.
func invalid(t *testing.T, err error, field string) {
	t.Helper()
	var bad *sandbox.InvalidError
	if !errors.As(err, &bad) || !errdefs.IsInvalidArgument(err) || bad.Field != field || bad.Allowed == "" {
		t.Errorf("got %v, want an InvalidError of %s", err, field)
	} else if len(err.Error()) > 1024 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

// TestNET18_Compile: nothing said and an empty list mean no network; an empty
// entry is no entry; the names that lead nowhere lead nowhere.
func TestNET18_Compile(t *testing.T) {
	for what, spec := range map[string]policy.Spec{"omitted": {}, "null": {Allow: nil}, "[]": {Allow: []string{}}, "allowlist of nothing": {Mode: policy.Allowlist, Allow: []string{}}} {
		p, err := policy.Compile(spec)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, host := range []string{"allowed.test", "pypi.org", "localhost", "192.0.2.1"} {
			if v := connect(p, host); v.Allow || p.Name(host) {
				t.Errorf("%s: %s: %+v", what, host, v)
			}
		}
	}
	_, err := policy.Compile(policy.Spec{Allow: []string{""}})
	invalid(t, err, "network.allow[0]")
	_, err = policy.Compile(policy.Spec{Allow: []string{"none"}})
	invalid(t, err, "network.allow[0]")
	for _, entry := range []string{"localhost", "LOCALHOST", "localhost:8700", "localhost.", "foo.localhost", "localhost.localdomain"} {
		p, err := policy.Compile(policy.Spec{Allow: []string{entry}})
		if err != nil {
			t.Errorf("%s: %v", entry, err)
		}
		for _, host := range []string{"localhost", "LOCALHOST", "localhost.", "localhost:8700", "foo.localhost", "localhost.localdomain", "127.0.0.1", "[::1]"} {
			if v := connect(p, host); v.Allow || p.Name(host) {
				t.Errorf("%s allows %s: %+v", entry, host, v)
			}
		}
	}
}

func TestB132_Entries(t *testing.T) {
	for _, n := range []int{1, 100, 1000} {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("h%d.example.com", i))
		}
		p := compile(t, all...)
		for _, host := range all {
			if v := connect(p, host); !v.Allow || v.Rule != host {
				t.Fatalf("%d entries: %s: %+v", n, host, v)
			}
		}
	}
	_, err := policy.Compile(policy.Spec{Allow: make([]string, policy.MaxEntries+1)})
	invalid(t, err, "network.allow")
	compile(t, "host:443")
	for _, entry := range []string{
		"http://x", "https://x.test", "x.test/", "", " ", "a b", "*", "*.com", "*.", "*.*.x.test", "a.*.test", "*x.test", "**.x.test", "*.192.0.2.1", "*.[2001:db8::1]", strings.Repeat("a", 300), strings.Repeat("a", 300) + ".test",
		"x.test:", "x.test:0", "x.test:65536", "x.test:http", "x.test:*", "user@x.test", "x.test,y.test", " x.test", "x.test ", "x..test", "allowed。test",
		"pyhton", "None", "Python", "127.1", "2130706433", "0x7f.1", "127.0.0.1.", "[192.0.2.1]", "::ffff:192.0.2.1", "fe80::1%eth0",
		"0.0.0.0/0", "::/0", "0.0.0.0/7", "2000::/3", "10.1.2.3/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "10.0.0.0/8:", "10.0.0.0/8:0", "10.0.0.0/08", "::ffff:10.0.0.0/104", "[2001:db8::/32", "[2001:db8::/32]443", "[2001:db8::/32]:", "fe80::%eth0/64",
		"get x.test", "GET", "GET ", "GET  x.test", "GET, x.test", ",GET x.test", "CONNECT x.test", "GET,CONNECT x.test", "G x.test", "GET ftp://x.test", "GET http://", "GET http:///x", "GET x.test/a*b", "GET x.test/a?b", "GET x.test/../a", "GET x.test/a%2fb", "GET x.test/%2a", "GET x.test/%zz", "GET x.test/a b", "GET *.com/x", "GET 10.0.0.0/8/x:1:2:3:", "GET user@x.test/", "* *",
		strings.Repeat("a.", 300) + "test", "GET x.test/" + strings.Repeat("a", policy.MaxEntry), "x.test\x00", "x.test\n", "\xff.test",
	} {
		_, err := policy.Compile(policy.Spec{Allow: []string{"ok.test", entry}})
		if entry == "GET 10.0.0.0/8/x:1:2:3:" { // an address and a path
			if err != nil {
				t.Errorf("%q: %v", entry, err)
			}
			continue
		}
		invalid(t, err, "network.allow[1]")
		if t.Failed() {
			t.Fatalf("entry %q", entry)
		}
	}
}

// TestURLEntry: who writes a URL is told what to write in its place, and that is taken.
func TestURLEntry(t *testing.T) {
	for url, host := range map[string]string{
		"https://a.test": "a.test", "https://a.test/": "a.test", "https://a.test/simple/x": "a.test", "http://a.test:8080/y": "a.test:8080",
	} {
		_, err := policy.Compile(policy.Spec{Allow: []string{url}})
		if want := fmt.Sprintf("a host is written as %q, some of its requests as %q", host, "GET "+url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v has no %s", url, err, want)
		}
		compile(t, host, "GET "+url)
	}
}

func TestModesOfSpecs(t *testing.T) {
	_, err := policy.Compile(policy.Spec{Mode: "open"})
	invalid(t, err, "network.mode")
	for _, mode := range []policy.Mode{policy.None, policy.Full} {
		_, err := policy.Compile(policy.Spec{Mode: mode, Allow: []string{"a.test"}})
		invalid(t, err, "network.allow")
		if want := `"a.test": allowed is no entries with the mode ` + string(mode); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v has no %s", err, want)
		}
	}
	p, err := policy.Compile(policy.Spec{Allow: []string{"a.test"}})
	if err != nil || p.Mode() != policy.Allowlist {
		t.Errorf("entries without a mode: %q, %v", p.Mode(), err)
	}
}
