package sandbox_test

import (
	"errors"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"0": 0, "90": 90 * time.Second, "0.5": 500 * time.Millisecond, "1m30s": 90 * time.Second, "24h": 24 * time.Hour, " 250ms ": 250 * time.Millisecond,
	}
	for in, want := range good {
		if got, err := sandbox.ParseDuration("timeout", in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", " ", "-1", "-1s", "+3", "1e12", "NaN", "inf", "0x10", "9223372037", "9223372036854775808", "4XB", "1d", "ten", "1 2", "300000000h"} {
		got, err := sandbox.ParseDuration("timeout", in)
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) || inv.Field != "timeout" {
			t.Errorf("ParseDuration(%q) = %v, %v; want an InvalidError for timeout", in, got, err)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"1", "1m30s", "-1", "9223372036.854775807", "0.000000001", "2562047h47m16.854775807s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := sandbox.ParseDuration("x", s); err == nil && d < 0 {
			t.Fatalf("ParseDuration(%q) = %v", s, d)
		}
	})
}
