package vault_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/vault"
	"agentbox/internal/sandbox"
)

// TestLEAK08_AtRest: the value is in no file of the vault in clear; the control: a
// word that is not secret is found there.
func TestLEAK08_AtRest(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("CONTROL_WORD", value, "a.example"))
	r.set("acme", newSecret("CONTROL_WORD", value+"2", "a.example"))
	found := map[string]bool{}
	files, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{value, "CONTROL_WORD"} {
			found[word] = found[word] || bytes.Contains(b, []byte(word))
		}
	}
	if found[value] || !found["CONTROL_WORD"] {
		t.Errorf("found in the files: %v", found)
	}
	fi, err := os.Stat(r.key())
	if err != nil || fi.Mode() != 0o600 {
		t.Errorf("the key file: %v, %v", fi, err)
	}
	r.open()
	s, uses := r.sandbox("acme", "CONTROL_WORD")
	if got := r.sent(s, "a.example", "Authorization", uses[0].Placeholder); got != value+"2" {
		t.Errorf("the next daemon puts in %q", got)
	}
}

// TestValueIsNotPrinted by anything that prints.
func TestValueIsNotPrinted(t *testing.T) {
	v := vault.NewValue(value)
	n := newSecret("KEY", value, "a.example")
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, nil))
	log.Info("x", "value", v, "secret", n, "pointer", &n)
	text, err := json.Marshal(map[string]any{"v": v, "n": n, "p": &n})
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T %v"} {
		fmt.Fprintf(&b, verb, v, &v, n, []vault.Value{v}, struct{ V *vault.Value }{&v})
	}
	fmt.Fprint(&b, v, v.String(), string(text), errors.New(v.String()))
	if strings.Contains(b.String(), "secret&") || strings.Contains(b.String(), fmt.Sprintf("%x", value)) || !strings.Contains(b.String(), "[secret]") {
		t.Errorf("printed: %s", b.String())
	}
	if v.Reveal() != value {
		t.Error("it is lost")
	}
}

// TestUnreadableHosts: a secret whose hosts can't be read is for none, and keeps
// nobody from starting.
func TestUnreadableHosts(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("A", value, "a.example"))
	rows, err := r.db.Secrets(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	rows[0].Hosts = []string{"a.example", "b..example"}
	if err := r.db.PutSecrets(t.Context(), rows...); err != nil {
		t.Fatal(err)
	}
	r.open()
	s, uses := r.sandbox("acme", "A")
	if got := r.sent(s, "a.example", "Authorization", uses[0].Placeholder); got != uses[0].Placeholder || !strings.Contains(r.log.String(), "hosts of a secret") {
		t.Errorf("it goes out as %q; the log: %s", got, &r.log)
	}
	r.set("acme", newSecret("A", value, "a.example"))
	if got := r.sent(s, "a.example", "Authorization", uses[0].Placeholder); got != value {
		t.Errorf("set again it goes out as %q", got)
	}
}

// TestRowsAreBound: a row that was changed, or exchanged with another, is not read.
func TestRowsAreBound(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("A", value, "a.example"))
	r.set("zeta", newSecret("A", "the secret of zeta", "evil.example"))
	rows, err := r.db.Secrets(t.Context())
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	good := rows[0]
	for name, change := range map[string]func(*sandbox.SealedSecret){
		"another's value": func(s *sandbox.SealedSecret) { s.Sealed = rows[1].Sealed },
		"owner":           func(s *sandbox.SealedSecret) { s.Owner = "zeta2" },
		"name":            func(s *sandbox.SealedSecret) { s.Name = "B" },
		"hosts":           func(s *sandbox.SealedSecret) { s.Hosts = []string{"a.example", "evil.example"} },
		"header":          func(s *sandbox.SealedSecret) { s.Header = "X-Echo" },
		"format":          func(s *sandbox.SealedSecret) { s.Format = "{}" },
		"a bit":           func(s *sandbox.SealedSecret) { s.Sealed = append([]byte{1, s.Sealed[1] ^ 1}, s.Sealed[2:]...) },
		"cut off":         func(s *sandbox.SealedSecret) { s.Sealed = s.Sealed[:5] },
		"nothing":         func(s *sandbox.SealedSecret) { s.Sealed = []byte{} },
		"version":         func(s *sandbox.SealedSecret) { s.Sealed = append([]byte{9}, s.Sealed[1:]...) },
	} {
		bad := good
		change(&bad)
		if err := errors.Join(r.db.DeleteSecret(t.Context(), good.ID), r.db.PutSecrets(t.Context(), bad)); err != nil {
			t.Fatal(err)
		}
		r.open()
		s, uses := r.sandbox(bad.Owner, bad.Name)
		h := map[string][]string{bad.Header: {uses[0].Placeholder}}
		if _, err := r.Inject(s, target(t, "a.example"), h); err == nil || strings.Contains(err.Error(), r.dir) {
			t.Errorf("%s: it goes out as %q, %v", name, h, err)
		}
		if !strings.Contains(r.log.String(), "can't be read") {
			t.Errorf("%s: not in the log: %s", name, &r.log)
		}
	}
}

// TestRotation: with a new key before the old one in the file, all is encrypted
// with the new one, and the old one can go.
func TestRotation(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("A", value, "a.example"))
	old, err := os.ReadFile(r.key())
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.Repeat("5a", 32)
	for _, text := range []string{fresh + "\n" + string(old), fresh + "\r\n", fresh} {
		if err := os.WriteFile(r.key(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r.open()
		s, uses := r.sandbox("acme", "A")
		if got := r.sent(s, "a.example", "Authorization", uses[0].Placeholder); got != value {
			t.Fatalf("with the keys %q goes %q", text, got)
		}
	}
	if err := os.WriteFile(r.key(), old, 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	s, uses := r.sandbox("acme", "A")
	if _, err := r.Inject(s, target(t, "a.example"), map[string][]string{"Authorization": {uses[0].Placeholder}}); err == nil {
		t.Error("the old key is still good")
	}
}

// TestKeyIsMissing: nothing is made in its place while there are secrets.
func TestKeyIsMissing(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("A", value, "a.example"))
	r.set("zeta", newSecret("B", value, "a.example"))
	if err := os.Remove(r.key()); err != nil {
		t.Fatal(err)
	}
	o := r.options()
	o.Make = false
	if _, err := vault.Open(t.Context(), o); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), r.key()) {
		t.Errorf("a key that must be there: %v", err)
	}
	r.open()
	if !strings.Contains(r.log.String(), "key of the secrets is missing") || !strings.Contains(r.log.String(), "secrets=2") {
		t.Errorf("the log: %s", &r.log)
	}
	_, _, err := r.Set(t.Context(), "acme", newSecret("C", value, "a.example"))
	var refusal *sandbox.Refusal
	if !errors.As(err, &refusal) || !errdefs.IsFailedPrecondition(err) {
		t.Errorf("set one more: %v", err)
	}
	s, uses := r.sandbox("acme", "A")
	if _, err := r.Inject(s, target(t, "a.example"), map[string][]string{"Authorization": {uses[0].Placeholder}}); err == nil {
		t.Error("it is put in")
	}
	if err := errors.Join(r.Remove(t.Context(), "acme", "A"), r.Remove(t.Context(), "zeta", "B")); err != nil {
		t.Fatal(err)
	}
	r.set("acme", newSecret("C", value, "a.example"))
	r.open()
	s, uses = r.sandbox("acme", "C")
	if got := r.sent(s, "a.example", "Authorization", uses[0].Placeholder); got != value {
		t.Errorf("with a new key goes %q", got)
	}
}

// TestBadKeyFile: what is no key is refused and stays as it is, and nothing of it
// is told.
func TestBadKeyFile(t *testing.T) {
	r := newRig(t)
	key := strings.Repeat("5b", 32)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"empty": {"", 0o600}, "short": {key[2:], 0o600}, "long": {key + "00", 0o600}, "no digits": {strings.Repeat("xy", 32), 0o600},
		"many": {strings.Repeat(key+"\n", 9), 0o600}, "endless": {strings.Repeat(key+"\n", 9999), 0o600}, "open to others": {key, 0o644},
	} {
		if err := os.WriteFile(r.key(), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(r.key(), c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := vault.Open(t.Context(), r.options())
		if err == nil || strings.Contains(err.Error(), "5b5b") || !strings.Contains(err.Error(), r.key()) {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(r.key()); string(b) != c.text {
			t.Errorf("%s: it was changed", name)
		}
	}
}

// TestBadSecrets are refused by the name of the field, and the refusal does not
// repeat a value.
func TestBadSecrets(t *testing.T) {
	r := newRig(t)
	good := func() vault.NewSecret { return newSecret("A", value, "a.example") }
	for name, c := range map[string]struct {
		field  string
		change func(*vault.NewSecret)
	}{
		"no name":        {"name", func(n *vault.NewSecret) { n.Name = "" }},
		"digit first":    {"name", func(n *vault.NewSecret) { n.Name = "1A" }},
		"value as name":  {"name", func(n *vault.NewSecret) { n.Name = value }},
		"long name":      {"name", func(n *vault.NewSecret) { n.Name = strings.Repeat("A", 64) }},
		"no value":       {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue("") }},
		"short":          {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue(value[:7]) }},
		"long":           {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue(strings.Repeat("x", vault.MaxValue+1)) }},
		"newline":        {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue(value + "\nX: y") }},
		"NUL":            {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue(value + "\x00y") }},
		"space at end":   {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue(value + " ") }},
		"no UTF-8":       {"value", func(n *vault.NewSecret) { n.Value = vault.NewValue(value + "\xff") }},
		"no hosts":       {"hosts", func(n *vault.NewSecret) { n.Hosts = nil }},
		"many hosts":     {"hosts", func(n *vault.NewSecret) { n.Hosts = strings.Fields(strings.Repeat("a.example ", 65)) }},
		"preset":         {"hosts[0]", func(n *vault.NewSecret) { n.Hosts = []string{"python"} }},
		"header":         {"header", func(n *vault.NewSecret) { n.Header = "X Y" }},
		"header newline": {"header", func(n *vault.NewSecret) { n.Header = "X\r\nY" }},
		"host header":    {"header", func(n *vault.NewSecret) { n.Header = "host" }},
		"length header":  {"header", func(n *vault.NewSecret) { n.Header = "content-length" }},
		"format":         {"format", func(n *vault.NewSecret) { n.Format = "Bearer" }},
		"format twice":   {"format", func(n *vault.NewSecret) { n.Format = "{}{}" }},
		"format newline": {"format", func(n *vault.NewSecret) { n.Format = "{}\r\nX: y" }},
	} {
		n := good()
		c.change(&n)
		_, _, err := r.Set(t.Context(), "acme", n)
		var invalid *sandbox.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != c.field || strings.Contains(err.Error(), "very") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := r.List("acme"); len(all) != 0 {
		t.Errorf("kept: %+v", all)
	}
	if _, err := os.Stat(r.key()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key was made for nothing: %v", err)
	}
}

// TestPerOwner: an owner has so many, and may change each of them.
func TestPerOwner(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		r.set("acme", newSecret(fmt.Sprintf("S%d", i), value, "a.example"))
	}
	_, _, err := r.Set(t.Context(), "acme", newSecret("S3", value, "a.example"))
	var limit *sandbox.LimitError
	if !errors.As(err, &limit) || !limit.Quota {
		t.Errorf("one more: %v", err)
	}
	before := r.List("acme")
	s, fresh, err := r.Set(t.Context(), "acme", newSecret("S1", value+"x", "b.example"))
	if err != nil || fresh || s.ID != before[1].ID || !s.Created.Equal(before[1].Created) || s.Updated.Before(before[1].Updated) || s.Hosts[0] != "b.example" {
		t.Errorf("changed: %+v %v, %v", s, fresh, err)
	}
	r.set("zeta", newSecret("S", value, "a.example"))
	if all := r.List("zeta"); len(all) != 1 || len(r.List("acme")) != 3 || len(r.List("nobody")) != 0 {
		t.Errorf("lists: %+v", all)
	}
	if err := r.Remove(t.Context(), "zeta", "S1"); !errdefs.IsNotFound(err) {
		t.Errorf("remove another's: %v", err)
	}
}

// TestTogether: secrets change while requests use them; each request has one of the
// values, or none.
func TestTogether(t *testing.T) {
	r := newRig(t)
	r.set("acme", newSecret("A", value, "a.example"))
	s, uses := r.sandbox("acme", "A")
	to := target(t, "a.example")
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for i := range 20 {
			if _, _, err := r.Set(t.Context(), "acme", newSecret("A", fmt.Sprintf("value number %d", i), "a.example")); err != nil {
				t.Error(err)
			}
		}
		if err := r.Remove(t.Context(), "acme", "A"); err != nil {
			t.Error(err)
		}
	})
	for range 4 {
		tasks.Go(func() {
			for range 200 {
				h := http.Header{"Authorization": {uses[0].Placeholder}}
				_, err := r.Inject(s, to, h)
				if got := h.Get("Authorization"); err != nil || got != uses[0].Placeholder && got != value && !strings.HasPrefix(got, "value number ") {
					t.Errorf("goes out as %q, %v", got, err)
				}
				r.List("acme")
				r.Wants(s, to)
			}
		})
	}
	tasks.Wait()
	if got := r.sent(s, "a.example", "Authorization", uses[0].Placeholder); got != uses[0].Placeholder {
		t.Errorf("in the end it goes out as %q", got)
	}
}
