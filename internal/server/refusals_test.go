package server_test

import (
	"net/netip"
	"strconv"
	"testing"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// TestManyRefusals: who has no key can't fill the audit log, also from an address
// that no other bound concerns, and how many there were is recorded in the end.
func TestManyRefusals(t *testing.T) {
	w := start(t, auth.Policy{Rates: auth.Rates{Refused: 1, Exempt: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}, server.Options{},
		server.Route{Pattern: "GET /x", Handler: text("x")})
	const requests = 500
	for range requests {
		resp, body := w.do("GET", "/x", nil)
		problem(t, resp, body, 401, server.CodeUnauthenticated)
	}
	if n := len(w.records.list()); n < 10 || n > requests/2 {
		t.Errorf("%d requests gave %d records", requests, n)
	}
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, r := range w.records.list() {
		if r.Action != audit.AuthRefused {
			t.Errorf("record %+v", r)
		}
		if r.RequestID != "" {
			told++
		}
		more, _ := strconv.Atoi(r.Details["more"])
		told += more
	}
	if told != requests {
		t.Errorf("the records tell of %d refusals, want %d", told, requests)
	}
}
