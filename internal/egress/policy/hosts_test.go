package policy_test

import (
	"errors"
	"slices"
	"testing"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

func TestHosts(t *testing.T) {
	h, canonical, err := policy.CompileHosts("hosts", []string{"API.Example.com.", "*.example.org", "b.example.com:8443", "192.0.2.1", "[2001:db8::1]:22", "intranet."})
	want := []string{"api.example.com", "*.example.org", "b.example.com:8443", "192.0.2.1", "[2001:db8::1]:22", "intranet."}
	if err != nil || !slices.Equal(canonical, want) {
		t.Fatalf("%q, %v", canonical, err)
	}
	again, twice, err := policy.CompileHosts("hosts", canonical)
	if err != nil || !slices.Equal(twice, canonical) {
		t.Errorf("the canonical form of the canonical form is %q, %v", twice, err)
	}
	for target, has := range map[string]bool{
		"api.example.com:443": true, "api.example.com:80": true, "api.example.com:8443": false, "x.api.example.com:443": false, "example.com:443": false,
		"a.example.org:443": true, "b.a.example.org:443": true, "example.org:443": false, "evilexample.org:443": false,
		"b.example.com:8443": true, "b.example.com:443": false, "192.0.2.1:443": true, "192.0.2.2:443": false, "[2001:db8::1]:22": true, "intranet:443": true,
	} {
		to, err := policy.ParseTarget(target, 0)
		if err != nil {
			t.Fatal(err)
		}
		if h.Has(to) != has || again.Has(to) != has {
			t.Errorf("%s: %v, want %v", target, h.Has(to), has)
		}
	}
	var none *policy.Hosts
	if none.Has(policy.Target{Name: "a.example", Port: 443}) {
		t.Error("no list has a host")
	}
	for _, bad := range []string{"", "python", "intranet", "*", "*.com", "192.0.2.0/24", "GET a.example/x", "https://a.example", "a.example:0", "a.example:x", "a..example", "user@a.example", "0x7f.1", "::ffff:1.2.3.4"} {
		var invalid *sandbox.InvalidError
		if _, _, err := policy.CompileHosts("hosts", []string{"a.example", bad}); !errors.As(err, &invalid) || invalid.Field != "hosts[1]" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
