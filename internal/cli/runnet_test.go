package cli

import (
	"net/netip"
	"testing"
)

// TestDeniedText: each denial says what would allow it.
func TestDeniedText(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	for want, d := range map[string]Denied{
		"denied: a.example:443; allow it with --allow a.example":             {Name: "a.example", Port: 443, Unlisted: true, Times: 1},
		"denied: a.example:22; allow it with --allow a.example:22 (3 times)": {Name: "a.example", Port: 22, Unlisted: true, Times: 3},
		"denied: a.example; allow it with --allow a.example":                 {Name: "a.example", Unlisted: true, Times: 1},
		"denied: 192.0.2.1:80; allow it with --allow 192.0.2.1":              {Addr: addr, Port: 80, Unlisted: true, Times: 1},
		"denied: [2001:db8::1]:25; allow it with --allow [2001:db8::1]:25":   {Addr: netip.MustParseAddr("2001:db8::1"), Port: 25, Unlisted: true, Times: 1},
		"denied: a.example:443: not public; open it with --egress-allow-ranges 192.0.2.1": {
			Name: "a.example", Addr: addr, Port: 443, Blocked: true, Reason: "not public", Times: 1,
		},
		"denied: a.example:443: port 443 is for TLS": {Name: "a.example", Port: 443, Reason: "port 443 is for TLS", Times: 1},
	} {
		if got := d.text(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
