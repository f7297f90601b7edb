package sandbox

import (
	"fmt"
	"time"
)

// Secret is a secret of an owner as it is recorded and shown: without its value.
type Secret struct {
	// ID is drawn when the secret is made, and stays when it gets another value:
	// what was given a secret has nothing of a later one of the same name.
	ID    string
	Owner string
	Name  string // unique among the owner's, and the variable that sandboxes have
	// Hosts it is for, in their canonical form: a name, "*.name" or an address,
	// each with a port or for those of HTTP and HTTPS.
	Hosts []string
	// Header of a request in which it may stand.
	Header string
	// Format is what that header becomes, with "{}" where the value goes. Empty:
	// the value takes the place of the placeholder, and all around it stays.
	Format           string
	Created, Updated time.Time
}

// SealedSecret is a secret with its value as it is stored: encrypted.
type SealedSecret struct {
	Secret
	Sealed []byte
}

// SecretUse is a secret that a sandbox was given. The placeholder is what it has
// instead of the value: drawn for this sandbox, and worth nothing elsewhere.
type SecretUse struct{ ID, Name, Placeholder string }

// Bounds of secrets.
const (
	MaxSecrets     = 32 // of one sandbox
	maxSecretName  = 63
	secretNameRule = "1 to 63 of A-Z, a-z, 0-9 and _, not beginning with a digit"
)

var secretName = form(fmt.Sprintf(`^[A-Za-z_][A-Za-z0-9_]{0,%d}$`, maxSecretName-1))

// CheckSecretName reports a name that no secret can have as an [*InvalidError].
// What was written may be the secret itself, by mistake: the error does not
// repeat it.
func CheckSecretName(field, name string) error {
	if secretName().MatchString(name) {
		return nil
	}
	return &InvalidError{Field: field, Value: fmt.Sprintf("%d bytes", len(name)), Allowed: secretNameRule}
}

// checkSecrets checks the names of the secrets that a sandbox is to have.
func (r *CreateRequest) checkSecrets() error {
	if len(r.Secrets) > MaxSecrets {
		return &InvalidError{Field: "secrets", Value: fmt.Sprint(len(r.Secrets)), Allowed: fmt.Sprintf("at most %d", MaxSecrets)}
	}
	names := map[string]bool{}
	for _, e := range r.Env {
		names[envName(e)] = true
	}
	for _, name := range r.Secrets {
		if err := CheckSecretName("secrets", name); err != nil {
			return err
		}
		if names[name] {
			return &InvalidError{Field: "secrets", Value: name, Allowed: "each secret once, and no variable of its name in env"}
		}
		names[name] = true
	}
	return nil
}
