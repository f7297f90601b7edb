package rpc

import (
	"slices"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// TestEveryCodeHasAStatus: an error of a new code must not be Unknown to clients.
func TestEveryCodeHasAStatus(t *testing.T) {
	for c := range server.Codes() {
		if codes[c] == 0 {
			t.Errorf("%s has no status", c)
		}
	}
	if len(codes) != len(server.Codes()) {
		t.Error("there are statuses of codes that are none")
	}
}

// FuzzHosts: what the core gets of a list is shown as that list again.
func FuzzHosts(f *testing.F) {
	for _, s := range []string{"", "example.com", "*.example.org,example.org", "a,*.b,b,*.b", "python", "localhost", "*.x,x", "10.0.0.1:80", "GET https://a.example/*", "*.", ".", "*.*.a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts := strings.Split(list, ",")
		for _, h := range hosts {
			if strings.HasSuffix(h, ".") || h == "" {
				t.Skip("a word with a dot at its end is shown without")
			}
		}
		n := sandbox.Network{Mode: sandbox.NetworkAllowlist, Allow: entriesOf(hosts)}
		if got := hostsOf(&n); !slices.Equal(got, hosts) {
			t.Errorf("%q is %q in the core and shown as %q", hosts, n.Allow, got)
		}
	})
}
