package config_test

import (
	"strings"
	"testing"

	"agentbox/internal/config"
)

func TestParseResolver(t *testing.T) {
	for given, want := range map[string]string{
		"192.0.2.53": "192.0.2.53:53", "192.0.2.53:5353": "192.0.2.53:5353", "2001:db8::53": "[2001:db8::53]:53", "[2001:db8::53]:5353": "[2001:db8::53]:5353",
	} {
		if at, err := config.ParseResolver(given); err != nil || at.String() != want {
			t.Errorf("%s: %v, %v", given, at, err)
		}
	}
	if at, err := config.ParseResolver(""); err != nil || at.IsValid() {
		t.Errorf("none: %v, %v", at, err)
	}
	for _, bad := range []string{"dns.example", "192.0.2.53:0", "192.0.2.53:x", "192.0.2.0/24", ":53", "[2001:db8::53]"} {
		_, err := config.Load(config.Sources{Flags: map[string]string{"egress-resolver": bad}})
		if err == nil || !strings.Contains(err.Error(), "egress.resolver") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
