// Package vault keeps secrets that sandboxes use and never see. A sandbox has a
// placeholder for each secret that it was given; the egress proxy asks
// [Vault.Inject] to put the value in its place, in the one header and for the
// hosts that the secret is for.
//
// Values are encrypted wherever they are kept, also in memory, and in clear only
// while a request is sent and answers must not show them. The key is in a file of its own.
package vault

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/egress/policy"
	"agentbox/internal/sandbox"
)

// Records keep secrets; store.Store does.
type Records interface {
	// Secrets are those of all owners.
	Secrets(ctx context.Context) ([]sandbox.SealedSecret, error)
	// PutSecrets records secrets, all or none, in place of those of their names.
	PutSecrets(ctx context.Context, all ...sandbox.SealedSecret) error
	DeleteSecret(ctx context.Context, id string) error
}

// Options of a Vault.
type Options struct {
	Records Records
	// KeyFile has the key, and older keys behind it, each in hexadecimal on a line
	// of its own. What an older one encrypted is encrypted anew by Open, so that the
	// older one can go.
	KeyFile string
	// Make: the file is made when it is needed. Else it must be there.
	Make bool
	// PerOwner is how many secrets an owner may have. 0: DefaultPerOwner.
	PerOwner int
	// Log is for the operator. Nil: none.
	Log *slog.Logger
}

// DefaultPerOwner is how many secrets an owner may have.
const DefaultPerOwner = 100

// Vault has the secrets of one server. Any number of goroutines may use it.
type Vault struct {
	o Options

	writing sync.Mutex // held by who changes the records

	mu   sync.RWMutex
	keys []*master // the first is in force; none: there is no key
	all  map[ownedName]*entry
}

type ownedName struct{ owner, name string }

// entry is a secret. It does not change.
type entry struct {
	sandbox.SealedSecret
	hosts *policy.Hosts // nil: it is for none
}

// Open reads the secrets and their key. If there are secrets and the key is
// missing, a Vault that may make one opens all the same, and says so in the log:
// its secrets can be listed and removed, not used.
func Open(ctx context.Context, o Options) (*Vault, error) {
	o.PerOwner, o.Log = cmp.Or(o.PerOwner, DefaultPerOwner), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	v := &Vault{o: o, all: map[ownedName]*entry{}}
	if err := v.open(ctx); err != nil {
		return nil, fmt.Errorf("open the secrets: %w", err)
	}
	return v, nil
}

func (v *Vault) open(ctx context.Context) (err error) {
	if v.keys, err = readKeys(v.o.KeyFile); err != nil {
		return fmt.Errorf("read their key: %w", err)
	}
	if len(v.keys) == 0 && !v.o.Make {
		return fmt.Errorf("their key %s is not there: %w", v.o.KeyFile, errdefs.ErrFailedPrecondition)
	}
	recs, err := v.o.Records.Secrets(ctx)
	if err != nil {
		return err
	}
	for i := range recs {
		hosts, _, err := policy.CompileHosts("hosts", recs[i].Hosts)
		if err != nil { // what a name may be can change with a build
			v.o.Log.Error("the hosts of a secret can't be read, so it is for none: set it again", "owner", recs[i].Owner, "secret", recs[i].Name, "error", err)
		}
		v.all[ownedName{recs[i].Owner, recs[i].Name}] = &entry{recs[i], hosts}
	}
	if len(v.keys) == 0 && len(v.all) > 0 {
		v.o.Log.Error("the key of the secrets is missing, so none of them can be used: put a backup of it in its place, or remove the secrets and set them again", "file", v.o.KeyFile, "secrets", len(v.all))
		return nil
	}
	return v.renew(ctx)
}

// renew encrypts with the key in force what older keys encrypted.
func (v *Vault) renew(ctx context.Context) error {
	var old []sandbox.SealedSecret
	for id, e := range v.all {
		text, key, err := v.unseal(e)
		switch {
		case err != nil:
			v.o.Log.Error("a secret can't be read: set it again", "owner", e.Owner, "secret", e.Name, "error", err)
		case key > 0:
			next := &entry{e.SealedSecret, e.hosts}
			if next.Sealed, err = v.keys[0].seal(&e.Secret, text); err != nil {
				return err
			}
			v.all[id] = next
			old = append(old, next.SealedSecret)
		}
	}
	if len(old) == 0 {
		return nil
	}
	v.o.Log.Info("secrets were encrypted anew with the key that stands first", "file", v.o.KeyFile, "secrets", len(old))
	return v.o.Records.PutSecrets(ctx, old...)
}

// unseal gives the value of a secret, and the place of the key that it took.
func (v *Vault) unseal(e *entry) (Value, int, error) {
	for i, k := range v.keyring() {
		if text, err := k.open(&e.SealedSecret); err == nil {
			return text, i, nil
		}
	}
	return Value{}, 0, errSealed
}

func (v *Vault) keyring() []*master {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.keys
}

// key is the one in force. It is made if there never was one.
func (v *Vault) key() (*master, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.keys) > 0 {
		return v.keys[0], nil
	}
	if len(v.all) > 0 {
		return nil, sandbox.Refuse(errdefs.ErrFailedPrecondition, "the server's key of secrets is missing: its operator can put it back; a new one is made when all %d secrets are removed", len(v.all))
	}
	m, err := makeKey(v.o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("make the key of secrets: %w", err)
	}
	v.keys = []*master{m}
	return m, nil
}

// Set keeps a secret: a new one, or another value and other settings for the one
// of its name. Sandboxes that have it use it from their next request on, but for
// connections whose TLS passes unread, as it did before the host was one of the
// secret's. fresh: there was none.
func (v *Vault) Set(ctx context.Context, owner string, n NewSecret) (s sandbox.Secret, fresh bool, err error) {
	e, err := n.entry(owner)
	if err == nil {
		fresh, err = v.set(ctx, e, n.Value)
	}
	if err != nil {
		return sandbox.Secret{}, false, fmt.Errorf("keep a secret: %w", err)
	}
	return e.Secret, fresh, nil
}

func (v *Vault) set(ctx context.Context, e *entry, text Value) (fresh bool, err error) {
	v.writing.Lock()
	defer v.writing.Unlock()
	m, err := v.key()
	if err != nil {
		return false, err
	}
	e.ID, e.Updated = rand.Text(), time.Now().UTC()
	e.Created = e.Updated
	before := v.find(e.Owner, e.Name)
	switch {
	case before != nil:
		e.ID, e.Created = before.ID, before.Created
	case len(v.of(e.Owner)) >= v.o.PerOwner:
		return false, &sandbox.LimitError{Quota: true, Text: fmt.Sprintf("Maximum number of secrets (%d) reached", v.o.PerOwner)}
	}
	if e.Sealed, err = m.seal(&e.Secret, text); err != nil {
		return false, err
	}
	if err := v.o.Records.PutSecrets(ctx, e.SealedSecret); err != nil {
		return false, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[ownedName{e.Owner, e.Name}] = e
	return before == nil, nil
}

// Remove removes a secret. NotFound: the owner has none of that name. No request
// has it put in from then on.
func (v *Vault) Remove(ctx context.Context, owner, name string) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	e := v.find(owner, name)
	if e == nil {
		return sandbox.Refuse(errdefs.ErrNotFound, "Secret not found")
	}
	if err := v.o.Records.DeleteSecret(ctx, e.ID); err != nil {
		return fmt.Errorf("remove a secret: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.all, ownedName{owner, name})
	return nil
}

// List gives an owner's secrets by name.
func (v *Vault) List(owner string) []sandbox.Secret {
	var all []sandbox.Secret
	for _, e := range v.of(owner) {
		all = append(all, e.Secret)
	}
	slices.SortFunc(all, func(a, b sandbox.Secret) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (v *Vault) of(owner string) []*entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Collect(func(yield func(*entry) bool) {
		for e := range maps.Values(v.all) {
			if e.Owner == owner && !yield(e) {
				return
			}
		}
	})
}

func (v *Vault) find(owner, name string) *entry {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.all[ownedName{owner, name}]
}

// Give draws placeholders for secrets that a new sandbox of the owner is to have.
// One that the owner does not have is an *sandbox.InvalidError.
func (v *Vault) Give(owner string, names []string) ([]sandbox.SecretUse, error) {
	var all []sandbox.SecretUse
	for _, name := range names {
		e := v.find(owner, name)
		if e == nil {
			return nil, &sandbox.InvalidError{Field: "secrets", Value: name, Allowed: "a secret that you have set"}
		}
		all = append(all, sandbox.SecretUse{ID: e.ID, Name: name, Placeholder: newPlaceholder()})
	}
	return all, nil
}

// newPlaceholder draws 130 bits in letters and digits, which no encoding changes.
func newPlaceholder() string { return "abx-secret-" + strings.ToLower(rand.Text()) }

var errTogether = fmt.Errorf("the sandbox's secrets for this host are together longer than %s", sandbox.FormatSize(MaxTogether))

var errUnreadable = errors.New("the server can't read it: set it again")
