package sandbox

// Caller is who asks for something, as the door has made sure. What a caller
// sees and touches is its owner's only.
type Caller struct {
	// Owner is the tenant that owns what is made and seen: [DefaultOwner]
	// without authentication.
	Owner string
	// KeyID names the API key, never its secret. Empty: no key was needed.
	KeyID string
	// Admin may manage keys, images and other things of the whole service.
	Admin bool
	// RequestID joins logs, audit records and answers of one request.
	RequestID string
}

// DefaultOwner owns what is made without an API key.
const DefaultOwner = "default"

// MaxOwner is the longest name of an owner, in bytes.
const MaxOwner = 63

// IsOwner reports whether s may be the name of an owner: 1 to [MaxOwner] of
// a-z, 0-9, "_" and "-", beginning with a letter or digit. Such a name is safe
// as the name of a directory.
func IsOwner(s string) bool {
	if s == "" || len(s) > MaxOwner || s[0] == '_' || s[0] == '-' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
