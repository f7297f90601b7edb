package store_test

import (
	"crypto/sha256"
	"reflect"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/store"
)

func TestKeys(t *testing.T) {
	p := path(t)
	s := open(t, p)
	first := store.Key{ID: "key_1", Owner: "acme", Name: "ci", Admin: true, Hash: sha256.Sum256([]byte("1")), Created: t0}
	second := store.Key{ID: "key_0", Owner: "other", Hash: sha256.Sum256([]byte("2")), Created: t0.Add(time.Second)}
	for _, k := range []store.Key{second, first} {
		if err := s.AddKey(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []store.Key{{ID: first.ID}, {ID: "key_3", Hash: first.Hash}} {
		if err := s.AddKey(t.Context(), k); !errdefs.IsAlreadyExists(err) {
			t.Errorf("%s again: %v", k.ID, err)
		}
	}
	if k, err := s.KeyByHash(t.Context(), first.Hash); err != nil || !reflect.DeepEqual(k, first) {
		t.Errorf("got %+v, %v", k, err)
	}
	if _, err := s.KeyByHash(t.Context(), [sha256.Size]byte{}); !errdefs.IsNotFound(err) {
		t.Errorf("no such hash: %v", err)
	}
	at := t0.Add(time.Hour)
	for i := range 2 { // the first time stays
		k, err := s.RevokeKey(t.Context(), first.ID, at.Add(time.Duration(i)*time.Hour))
		if err != nil || !k.Revoked.Equal(at) {
			t.Errorf("got %+v, %v", k, err)
		}
	}
	if _, err := s.RevokeKey(t.Context(), "key_9", at); !errdefs.IsNotFound(err) {
		t.Errorf("no such key: %v", err)
	}
	first.Revoked = at
	again := open(t, p)
	if all, err := again.Keys(t.Context()); err != nil || !reflect.DeepEqual(all, []store.Key{first, second}) {
		t.Errorf("got %+v, %v", all, err)
	}
}

// A file of the first version gets what came since, and keeps what it has.
func TestUpgrade(t *testing.T) {
	p := path(t)
	s, err := store.Open(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	sb := box("acme", 1)
	admit(t, s, sb)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	raw(t, p, "DROP TABLE settings")
	raw(t, p, "DROP TABLE keys", "DROP TABLE volumes", "ALTER TABLE idempotency DROP COLUMN answer", "ALTER TABLE idempotency DROP COLUMN begun", "PRAGMA user_version = 1")
	s = open(t, p)
	if all, err := s.Sandboxes(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v", all, err)
	}
	if err := s.AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Error(err)
	}
}
