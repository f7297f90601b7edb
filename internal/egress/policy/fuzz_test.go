package policy_test

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"agentbox/internal/egress/policy"
)

var label = `[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?`

var (
	canonicalName = regexp.MustCompile(`^(` + label + `\.)*` + label + `$`)
	numericName   = regexp.MustCompile(`(^|\.)([0-9]+|0x[0-9a-f]*)$`)
)

// FuzzParseTarget: what is taken is canonical, and stays what it is when it is
// read again by any of the readers.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"example.com:443", "EXAMPLE.com.", "bücher.test", "xn--bcher-kva.test:1", "192.0.2.1:80", "[2001:db8::1]:22", "127.1", "0x7f000001", "[::ffff:127.0.0.1]", "allowed。test", "a@b", "a:0", "\u212a.test", "allo\u00adwed.test", "xn--a-.test", "①②⑦.0.0.1"} {
		f.Add(s, uint16(443))
	}
	f.Fuzz(func(t *testing.T, s string, port uint16) {
		got, err := policy.ParseTarget(s, port)
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		switch {
		case got.Port == 0:
			t.Error("port 0")
		case got.Name != "" && got.Addr.IsValid(), got.Name == "" && !got.Addr.IsValid():
			t.Errorf("%+v: want a name or an address", got)
		case got.Name != "" && (!canonicalName.MatchString(got.Name) || numericName.MatchString(got.Name) || len(got.Name) > 253 || net.ParseIP(got.Name) != nil):
			t.Errorf("name %q is not canonical", got.Name)
		case got.Addr.IsValid() && (got.Addr.Is4In6() || got.Addr.Zone() != "" || net.ParseIP(got.Addr.String()) == nil):
			t.Errorf("address %s is not canonical", got.Addr)
		}
		if again, err := policy.ParseTarget(got.String(), 0); err != nil || again != got {
			t.Errorf("%q is %s, and that is %s, %v", s, got, again, err)
		}
		if again, err := policy.ParseHost(got.Host(), got.Port); err != nil || again != got {
			t.Errorf("%q is %s, and its host is %s, %v", s, got, again, err)
		}
		if other, err := policy.ParseTarget(strings.ToUpper(got.String()), 0); err != nil || other != got {
			t.Errorf("%s in upper case is %s, %v", got, other, err)
		}
	})
}

// FuzzCompile: an entry that is taken never allows everything, and its canonical
// form, which verdicts name, says the same.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{"python", "a.test", "*.a.test:8443", "GET,HEAD https://a.test/v1/*", "* a.test", "10.0.0.0/8:5432", "[2001:db8::/32]:443", "intranet.", "localhost", "GET [2001:db8::1]/x%3f"} {
		f.Add(s, "x.a.test:443", "/v1/x")
	}
	f.Fuzz(func(t *testing.T, entry, host, path string) {
		p, err := policy.Compile(policy.Spec{Mode: policy.Allowlist, Allow: []string{entry}})
		if err != nil {
			return
		}
		if v := connect(p, "not-on-any-list.invalid"); v.Allow && !strings.Contains(entry, "invalid") {
			t.Errorf("%q allows everything: %+v", entry, v)
		}
		target, err := policy.ParseTarget(host, 443)
		if err != nil {
			return
		}
		v := p.Connect(target)
		if !v.Allow {
			return
		}
		_, rule, preset := strings.Cut(v.Rule, ": ")
		if !preset {
			rule = v.Rule
		}
		again, err := policy.Compile(policy.Spec{Mode: policy.Allowlist, Allow: []string{rule}})
		if err != nil {
			t.Fatalf("%q allows by %q, which is no entry: %v", entry, rule, err)
		}
		w := again.Connect(target)
		if w.Rule != rule || w.Allow != v.Allow || w.SeeRequest != v.SeeRequest {
			t.Errorf("%q says %+v, its rule says %+v", entry, v, w)
		}
		for _, method := range []string{"GET", "PUT"} {
			if a, b := p.Request(target, "https", method, path), again.Request(target, "https", method, path); a.Allow != b.Allow {
				t.Errorf("%q says %+v, its rule says %+v", entry, a, b)
			}
		}
	})
}
