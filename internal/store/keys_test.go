package store_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/store"
)

var _ auth.Keys = (*store.Store)(nil)

// TestKeys keeps API keys over a restart: found by hash, listed in order, and
// revoked once.
func TestKeys(t *testing.T) {
	p := path(t)
	first := auth.Key{ID: "key_1", Owner: "acme", Name: "ci", Admin: true, Hash: auth.Hash{1}, CreatedAt: t0}
	second := auth.Key{ID: "key_0", Owner: "acme", Hash: auth.Hash{2}, CreatedAt: t0}
	s := open(t, p)
	for _, k := range []auth.Key{first, second} {
		if err := s.AddKey(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddKey(t.Context(), first); !errdefs.IsAlreadyExists(err) {
		t.Errorf("the same again: %v", err)
	}
	s = open(t, p)
	if k, err := s.KeyByHash(t.Context(), auth.Hash{1}); err != nil || k != first {
		t.Errorf("by hash: %+v, %v", k, err)
	}
	if _, err := s.KeyByHash(t.Context(), auth.Hash{3}); !errdefs.IsNotFound(err) {
		t.Errorf("by the hash of none: %v", err)
	}
	first.RevokedAt = t0.Add(time.Hour)
	for _, later := range []time.Duration{time.Hour, 2 * time.Hour} {
		if k, err := s.RevokeKey(t.Context(), "key_1", t0.Add(later)); err != nil || k != first {
			t.Errorf("revoked: %+v, %v", k, err)
		}
	}
	if _, err := s.RevokeKey(t.Context(), "key_none", t0); !errdefs.IsNotFound(err) {
		t.Errorf("revoke none: %v", err)
	}
	if all, err := s.ListKeys(t.Context()); err != nil || !reflect.DeepEqual(all, []auth.Key{first, second}) {
		t.Errorf("the list: %+v, %v", all, err)
	}
}
