package vault_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"agentbox/internal/egress"
	"agentbox/internal/egress/policy"
	"agentbox/internal/egress/vault"
	"agentbox/internal/sandbox"
	"agentbox/internal/store"
)

const value = "sk-live/+very secret&<\"1\">"

// rig is a vault with a real store in a directory of its own.
type rig struct {
	t   *testing.T
	dir string
	db  *store.Store
	log bytes.Buffer
	*vault.Vault
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	db, err := store.Open(t.Context(), filepath.Join(r.dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	r.db = db
	r.open()
	return r
}

func (r *rig) key() string { return filepath.Join(r.dir, "secrets.key") }

func (r *rig) options() vault.Options {
	return vault.Options{Records: r.db, KeyFile: r.key(), Make: true, PerOwner: 3, Log: slog.New(slog.NewTextHandler(&r.log, nil))}
}

// open opens the vault again, as the next daemon would.
func (r *rig) open() {
	r.t.Helper()
	v, err := vault.Open(r.t.Context(), r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.Vault = v
}

// memory are records that are nowhere else.
type memory struct{}

func (memory) Secrets(context.Context) ([]sandbox.SealedSecret, error)   { return nil, nil }
func (memory) PutSecrets(context.Context, ...sandbox.SealedSecret) error { return nil }
func (memory) DeleteSecret(context.Context, string) error                { return nil }

func newSecret(name, text string, hosts ...string) vault.NewSecret {
	return vault.NewSecret{Name: name, Value: vault.NewValue(text), Hosts: hosts}
}

func (r *rig) set(owner string, n vault.NewSecret) {
	r.t.Helper()
	if _, _, err := r.Set(r.t.Context(), owner, n); err != nil {
		r.t.Fatal(err)
	}
}

// sandbox is one that was given secrets, with a session.
func (r *rig) sandbox(owner string, names ...string) (*egress.Session, []sandbox.SecretUse) {
	r.t.Helper()
	uses, err := r.Give(owner, names)
	if err != nil {
		r.t.Fatal(err)
	}
	s := egress.NewSession(egress.SessionOptions{Sandbox: "s", Owner: owner, Secrets: uses})
	r.t.Cleanup(s.Close)
	return s, uses
}

func target(t *testing.T, hostport string) policy.Target {
	t.Helper()
	to, err := policy.ParseTarget(hostport, 443)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// sent is what becomes of a header on its way to a host.
func (r *rig) sent(s *egress.Session, host, header, field string) string {
	r.t.Helper()
	h := http.Header{header: {field}}
	if _, err := r.Inject(s, target(r.t, host), h); err != nil {
		r.t.Fatal(err)
	}
	return h.Get(header)
}
