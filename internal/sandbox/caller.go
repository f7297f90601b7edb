package sandbox

// Caller is who asks. A door makes it of what it has checked; nothing below a
// door checks it again.
type Caller struct {
	// Owner is the tenant whose things the caller may see and touch.
	// [CheckOwner] tells its form; it is DefaultOwner without authentication.
	Owner string
	// KeyID names the key that was used; empty without authentication. It is
	// never the key itself.
	KeyID string
	// Admin may also do what concerns the whole server. It does not make the
	// things of other owners visible, but for the hosts that their sandboxes ask
	// for (OwnedNetworkRequest).
	Admin bool
	// Door is the kind of aliases that the door gives (Alias.Kind). An id of that
	// kind counts before the same text as another kind of id.
	Door string
	// RequestID is the id of the request, for logs and the audit record.
	RequestID string
}

// DefaultOwner owns everything when nobody has to prove who they are.
const DefaultOwner = "default"

var ownerForm = form(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// CheckOwner reports a name that no owner can have as an [*InvalidError].
func CheckOwner(name string) error {
	if ownerForm().MatchString(name) {
		return nil
	}
	return &InvalidError{Field: "owner", Value: name, Allowed: "1 to 63 of a-z, 0-9, _ and -, beginning with a letter or digit"}
}
