package nearest_test

import (
	"strings"
	"testing"

	"agentbox/internal/nearest"
)

func TestName(t *testing.T) {
	known := []string{"image", "memory", "idle_timeout", "network_enabled"}
	for word, want := range map[string]string{
		"memroy": "memory", "Memory": "memory", "idle-timeout": "idle_timeout", "timeout": "", "img": "", "imag": "image", "networkenabled": "network_enabled",
		"": "", "x": "", strings.Repeat("memory", 10_000): "",
	} {
		if got := nearest.Name(word, known); got != want {
			t.Errorf("%.20q is most like %q, want %q", word, got, want)
		}
	}
}
