package auth_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/sandbox"
)

func TestKeys(t *testing.T) {
	store := &authtest.Memory{}
	r := auth.NewKeyring(store)
	first, err := r.First(t.Context())
	if err != nil || !regexp.MustCompile(`^abx_[0-9a-f]{40}$`).MatchString(first) {
		t.Fatalf("the first key is %q, %v", first, err)
	}
	if again, err := r.First(t.Context()); again != "" || err != nil {
		t.Errorf("a second first key: %q, %v", again, err)
	}
	k, secret, err := r.Create(t.Context(), "acme", "ci", false)
	if err != nil || secret == first || k.Owner != "acme" || k.Admin {
		t.Fatalf("made %+v, %v", k, err)
	}
	all, err := r.List(t.Context())
	if err != nil || len(all) != 2 || !all[0].Admin || all[0].Owner != sandbox.DefaultOwner {
		t.Errorf("the list is %+v, %v", all, err)
	}
	for _, s := range []string{first, secret} {
		if kept := fmt.Sprintf("%+v", all); strings.Contains(kept, s) || strings.Contains(kept, strings.TrimPrefix(s, auth.Prefix)) {
			t.Error("a secret is kept")
		}
	}
	k, err = r.Revoke(t.Context(), k.ID)
	if err != nil || !k.Revoked() {
		t.Fatalf("revoked %+v, %v", k, err)
	}
	if again, err := r.Revoke(t.Context(), k.ID); err != nil || again.RevokedAt != k.RevokedAt {
		t.Errorf("revoked again: %+v, %v", again, err)
	}
	if _, err := r.Revoke(t.Context(), "key_none"); !errdefs.IsNotFound(err) {
		t.Errorf("revoked an unknown key: %v", err)
	}
}

// Of a request that comes again there is one key, whose secret nobody gets later.
func TestCreateOnce(t *testing.T) {
	r := auth.NewKeyring(&authtest.Memory{})
	first, secret, err := r.CreateOnce(t.Context(), "0123456789abcdef", "acme", "ci", false)
	if err != nil || secret == "" || first.ID != "key_0123456789ab" {
		t.Fatalf("made %+v, %v", first, err)
	}
	again, secret, err := r.CreateOnce(t.Context(), "0123456789abcdef", "acme", "ci", false)
	if err != nil || secret != "" || again != first {
		t.Errorf("again: %+v, %q, %v", again, secret, err)
	}
	if all, err := r.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("there are %+v, %v", all, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	r := auth.NewKeyring(&authtest.Memory{})
	for _, c := range []struct{ owner, name, field string }{
		{"", "", "owner"}, {"../x", "", "owner"}, {"Acme", "", "owner"}, {"a", "a\nb", "name"}, {"a", "\x1b[31m", "name"}, {"a", strings.Repeat("n", 65), "name"},
	} {
		_, _, err := r.Create(t.Context(), c.owner, c.name, false)
		var inv *sandbox.InvalidError
		if !errors.As(err, &inv) || inv.Field != c.field {
			t.Errorf("owner %q, name %q: %v", c.owner, c.name, err)
		}
	}
}
