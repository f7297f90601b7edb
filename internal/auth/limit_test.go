package auth

import (
	"errors"
	"net/netip"
	"testing"
)

// TestLimitsAreBounded comes from more addresses than are remembered.
func TestLimitsAreBounded(t *testing.T) {
	l := newLimits(Rates{PerAddress: 0.001})
	a := netip.MustParseAddr("10.0.0.0")
	for range maxBuckets + 100 {
		a = a.Next()
		if err := l.address(a); err != nil {
			t.Fatal(err)
		}
	}
	if n := l.addrs.byName.Len(); n != maxBuckets {
		t.Errorf("%d addresses are remembered, want %d", n, maxBuckets)
	}
	var limit *RateError
	if err := l.address(a); !errors.As(err, &limit) {
		t.Errorf("the last address is forgotten: %v", err)
	}
}
