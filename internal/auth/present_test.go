package auth_test

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/sandbox"
)

// TestRevokedKeyHoldsNothing: what was begun with a key ends when it is revoked, and
// what was let in just before is not begun.
func TestRevokedKeyHoldsNothing(t *testing.T) {
	keys := auth.NewKeyring(&authtest.Memory{})
	gate, err := auth.NewGate(keys, auth.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	caller := func(owner string) sandbox.Caller {
		k, secret, err := keys.Create(t.Context(), owner, "", false)
		if err != nil {
			t.Fatal(err)
		}
		c, err := gate.Enter(request("X-API-Key", secret), auth.NeedKey)
		if err != nil || c.KeyID != k.ID {
			t.Fatalf("entered as %+v, %v", c, err)
		}
		return c
	}
	bad, good := caller("acme"), caller("acme")
	stay := func(c sandbox.Caller) context.Context {
		ctx, leave, err := gate.Stay(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return ctx
	}
	first, second, other := stay(bad), stay(bad), stay(good)
	if _, err := keys.Revoke(t.Context(), bad.KeyID); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{first, second} {
		if err := context.Cause(ctx); !errdefs.IsUnauthorized(err) {
			t.Errorf("a request of a revoked key ended with %v", err)
		}
	}
	if other.Err() != nil {
		t.Errorf("a request of another key ended: %v", context.Cause(other))
	}
	if _, _, err := gate.Stay(t.Context(), bad); !errdefs.IsUnauthorized(err) {
		t.Errorf("let in before the revocation, begun after it: %v", err)
	}
}

// TestRequestsAtOnce of one owner are bounded, whatever their keys; those of others
// are not concerned.
func TestRequestsAtOnce(t *testing.T) {
	w := newWorld(t, auth.Policy{Requests: 2})
	stay := func(owner string) (func(), error) {
		_, leave, err := w.gate.Stay(t.Context(), sandbox.Caller{Owner: owner})
		return leave, err
	}
	var leave func()
	for range 2 {
		var err error
		if leave, err = stay("acme"); err != nil {
			t.Fatal(err)
		}
	}
	var limit *sandbox.LimitError
	if _, err := stay("acme"); !errors.As(err, &limit) || !limit.Quota || limit.RetryAfter <= 0 {
		t.Errorf("one more: %v", err)
	}
	if _, err := stay("ops"); err != nil {
		t.Errorf("another owner: %v", err)
	}
	leave()
	if _, err := stay("acme"); err != nil {
		t.Errorf("in the place of one that left: %v", err)
	}
	for range 3 { // nobody, on a route that is open
		if _, err := stay(""); err != nil {
			t.Error(err)
		}
	}
}
