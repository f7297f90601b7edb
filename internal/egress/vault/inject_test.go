package vault_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/egress/vault"
)

func basic(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }

// TestInject: the value takes the place of the placeholder in the named header and
// for the named hosts, and nowhere else.
func TestInject(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("KEY", value, "api.example.com", "*.example.org:8443"))
	r.set("acme", vault.NewSecret{Name: "TOKEN", Value: vault.NewValue("other-secret"), Hosts: []string{"api.example.com"}, Header: "x-api-key", Format: "v1 {}!"})
	s, uses := r.sandbox("acme", "KEY", "TOKEN")
	key, token := uses[0].Placeholder, uses[1].Placeholder
	if key == token || len(key) < 33 || !strings.HasPrefix(key, "abx-secret-") {
		t.Fatalf("placeholders %q and %q", key, token)
	}
	for _, c := range []struct{ host, header, field, want string }{
		{"api.example.com", "Authorization", "Bearer " + key, "Bearer " + value},
		{"api.example.com", "Authorization", key, value},
		{"api.example.com", "Authorization", "a " + key + " b " + key, "a " + value + " b " + key},
		{"a.example.org:8443", "Authorization", key, value},
		{"api.example.com", "Authorization", basic("user:" + key), basic("user:" + value)},
		{"api.example.com", "Authorization", "basic  " + base64.StdEncoding.EncodeToString([]byte(key+":")), "basic " + base64.StdEncoding.EncodeToString([]byte(value+":"))},
		{"api.example.com", "X-Api-Key", "anything " + token, "v1 other-secret!"},
		{"api.example.com", "X-Api-Key", basic(token), "v1 other-secret!"},
		// and what stays as it is
		{"api.example.com", "Authorization", "Bearer " + token, "Bearer " + token},
		{"api.example.com", "X-Api-Key", key, key}, {"api.example.com", "Cookie", key, key},
		{"api.example.com", "Authorization", "Bearer " + strings.ToUpper(key), "Bearer " + strings.ToUpper(key)},
		{"api.example.com", "Authorization", key[:len(key)-1], key[:len(key)-1]},
		{"api.example.com", "Authorization", "Basic %%%" + key[:9], "Basic %%%" + key[:9]},
		{"api.example.com:8443", "Authorization", key, key}, {"a.example.org", "Authorization", key, key},
		{"example.org:8443", "Authorization", key, key}, {"evil.example", "Authorization", key, key}, {"api.example.com.evil.example", "Authorization", key, key},
	} {
		if got := r.sent(s, c.host, c.header, c.field); got != c.want {
			t.Errorf("%s %s %q: %q, want %q", c.host, c.header, c.field, got, c.want)
		}
	}
	for host, want := range map[string]bool{"api.example.com": true, "x.example.org:8443": true, "evil.example": false, "x.example.org": false} {
		if r.Wants(s, target(t, host)) != want {
			t.Errorf("wants %s: %v", host, !want)
		}
	}
}

// TestInjectOncePerRequest: a request does not grow without bounds, however often
// it has the placeholder.
func TestInjectOncePerRequest(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("KEY", strings.Repeat("x", vault.MaxValue), "a.example"))
	s, uses := r.sandbox("acme", "KEY")
	h := http.Header{"Authorization": slices.Repeat([]string{strings.Repeat(uses[0].Placeholder, 10)}, 50)}
	hide, err := r.Inject(s, target(t, "a.example"), h)
	if all := strings.Join(h["Authorization"], ""); err != nil || len(hide) == 0 || strings.Count(all, "x"+strings.Repeat("x", vault.MaxValue-1)) != 1 {
		t.Errorf("%v, %d bytes", err, len(all))
	}
}

// TestHideIsBounded: however many secrets a sandbox has for a host, what an answer
// is searched for is bounded.
func TestHideIsBounded(t *testing.T) {
	r := newRig(t)
	var names []string
	for i, length := range []int{vault.MaxValue, vault.MaxTogether - vault.MaxValue, vault.MinValue} {
		names = append(names, fmt.Sprint("K", i))
		r.set("acme", newSecret(names[i], strings.Repeat("<", length), "a.example"))
	}
	s, _ := r.sandbox("acme", names[:2]...)
	hide, err := r.Inject(s, target(t, "a.example"), nil)
	if size := len(strings.Join(hide, "")); err != nil || size != vault.MaxTogether {
		t.Errorf("%d bytes, %v", size, err)
	}
	s, _ = r.sandbox("acme", names...)
	if hide, err = r.Inject(s, target(t, "a.example"), nil); err == nil || !strings.Contains(err.Error(), "together") {
		t.Errorf("%d texts, %v", len(hide), err)
	}
}

// TestHide: the value is looked for in all answers of its hosts.
func TestHide(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("KEY", value, "a.example"))
	s, uses := r.sandbox("acme", "KEY")
	hide, err := r.Inject(s, target(t, "a.example"), http.Header{"Authorization": {uses[0].Placeholder}})
	if err != nil || len(hide) != 1 || hide[0] != value {
		t.Fatalf("%q, %v", hide, err)
	}
	// The host may remember it from elsewhere.
	for _, h := range []http.Header{{"Authorization": {"nothing"}}, nil} {
		if again, err := r.Inject(s, target(t, "a.example:80"), h); err != nil || !reflect.DeepEqual(again, hide) {
			t.Errorf("with %v are hidden %q, %v", h, again, err)
		}
	}
	if hide, err := r.Inject(s, target(t, "b.example"), nil); err != nil || hide != nil {
		t.Errorf("of another host %q, %v", hide, err)
	}
}

// TestLEAK08_OtherSandboxes: a placeholder is worth something in its own sandbox
// only, and no longer than the secret is there.
func TestLEAK08_OtherSandboxes(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("KEY", value, "a.example"))
	r.set("zeta", newSecret("KEY", "the secret of zeta", "a.example"))
	s, uses := r.sandbox("acme", "KEY")
	key := uses[0].Placeholder
	second, others := r.sandbox("acme", "KEY")
	if others[0].Placeholder == key {
		t.Error("two sandboxes have the same placeholder")
	}
	bare, _ := r.sandbox("acme")
	foreign, _ := r.sandbox("zeta", "KEY")
	if got := r.sent(second, "a.example", "Authorization", key); got != key {
		t.Errorf("with another sandbox's placeholder goes %q", got)
	}
	if got := r.sent(bare, "a.example", "Authorization", key); got != key {
		t.Errorf("from a sandbox without secrets goes %q", got)
	}
	if got := r.sent(foreign, "a.example", "Authorization", key); got != key {
		t.Errorf("from another owner's goes %q", got)
	}
	if _, err := r.Give("zeta", []string{"NONE"}); err == nil {
		t.Error("a secret that is not there is given")
	}
	// Another value, or other hosts, hold from the next request on.
	r.set("acme", newSecret("KEY", "the next value", "a.example"))
	if got := r.sent(s, "a.example", "Authorization", key); got != "the next value" {
		t.Errorf("after a change goes %q", got)
	}
	r.set("acme", newSecret("KEY", "the next value", "b.example"))
	if got := r.sent(s, "a.example", "Authorization", key); got != key || r.Wants(s, target(t, "a.example")) {
		t.Errorf("for a host that is not named any more goes %q", got)
	}
	if err := r.Remove(t.Context(), "acme", "KEY"); err != nil {
		t.Fatal(err)
	}
	if got := r.sent(s, "b.example", "Authorization", key); got != key {
		t.Errorf("after it was removed goes %q", got)
	}
	r.set("acme", newSecret("KEY", "of the same name", "b.example"))
	if got := r.sent(s, "b.example", "Authorization", key); got != key {
		t.Errorf("with a later secret of the same name goes %q", got)
	}
}

// FuzzInject: whatever a request has in its header, the value is in it at most
// once, and only if the placeholder was.
func FuzzInject(f *testing.F) {
	f.Add("Bearer ", "", "")
	f.Add("Basic ", "=", "Bearer {}")
	f.Add("Basic dXNlcjo=", "x", "")
	v, err := vault.Open(f.Context(), vault.Options{Records: memory{}, KeyFile: filepath.Join(f.TempDir(), "key"), Make: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, before, after, format string) {
		r := &rig{t: t, Vault: v}
		n := newSecret("KEY", value, "a.example")
		n.Format = format
		if _, _, err := r.Set(t.Context(), "acme", n); err != nil {
			return
		}
		s, uses := r.sandbox("acme", "KEY")
		for _, field := range []string{before + uses[0].Placeholder + after, before + after, before + base64.StdEncoding.EncodeToString([]byte(after+uses[0].Placeholder))} {
			got := r.sent(s, "a.example", "Authorization", field)
			if n := strings.Count(got, value); n > 1 && !strings.Contains(field+format, value) {
				t.Errorf("%q becomes %q", field, got)
			}
			if got != field && strings.ContainsAny(got, "\r\n\x00") && !strings.ContainsAny(field, "\r\n\x00") {
				t.Errorf("%q becomes %q", field, got)
			}
		}
	})
}
