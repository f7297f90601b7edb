package store_test

import (
	"reflect"
	"testing"
	"time"

	"agentbox/internal/sandbox"
)

func TestSecrets(t *testing.T) {
	s := open(t, path(t))
	at := time.Date(2026, 11, 28, 1, 2, 3, 4, time.UTC)
	secret := func(id, owner, name, sealed string) sandbox.SealedSecret {
		return sandbox.SealedSecret{Secret: sandbox.Secret{ID: id, Owner: owner, Name: name, Hosts: []string{"a.example"}, Header: "Authorization", Format: "Bearer {}", Created: at, Updated: at}, Sealed: []byte(sealed)}
	}
	a, b, other := secret("1", "acme", "A", "x"), secret("2", "acme", "B", "y"), secret("3", "zeta", "A", "z")
	if err := s.PutSecrets(t.Context(), other, b, a); err != nil {
		t.Fatal(err)
	}
	want := func(want ...sandbox.SealedSecret) {
		t.Helper()
		if got, err := s.Secrets(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	want(a, b, other)
	a.Sealed, a.Hosts = []byte("anew"), []string{"b.example"}
	if err := s.PutSecrets(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	want(a, b, other)
	for range 2 { // one that is gone is no error
		if err := s.DeleteSecret(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	want(a, other)
}
