// Package token makes and checks the tokens by which a sandbox that has a network
// of its own names its session to the egress proxy: JSON Web Tokens of one
// algorithm, HS256, with a closed header.
//
// A token says who asks, never what is allowed: the policy of the live session
// counts. Whoever verifies one must also know that the session lives and that the
// request comes from its sandbox.
package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// issuer is the one value of the claim iss.
	issuer = "sandbox-egress-control"
	// header is the header of every token that is signed, bit for bit.
	header = `{"typ":"JWT","alg":"HS256"}`
	// MaxSize is the length of the longest token in bytes. It goes in a header of
	// requests, encoded once more, and those have 32 KiB together.
	MaxSize = 16 << 10
	// Skew is how far the clock of a signer may be ahead, for the claims nbf and
	// iat. For exp there is none.
	Skew = time.Minute
)

// ErrInvalid is wrapped by all errors of [Keys.Verify].
var ErrInvalid = errors.New("invalid token")

// b64 takes one spelling of each value only: no padding, no spare bits.
var b64 = base64.RawURLEncoding.Strict()

// Claims are what a token says.
type Claims struct {
	// Session that the token was made for; not empty.
	Session string
	// Tenant of the session. Empty is null in the token.
	Tenant string
	// Hosts that were allowed when the token was made. They inform; the policy of
	// the live session decides.
	Hosts []string
	// Expires is when the token ends, in whole seconds.
	Expires time.Time
}

// Sign makes a token with the newest key. It fails when the token would be longer
// than MaxSize: the hosts are too many.
func (k *Keys) Sign(c Claims) (string, error) {
	switch {
	case c.Session == "":
		return "", errors.New("sign a token: it has no session")
	case c.Expires.Unix() <= 0:
		return "", errors.New("sign a token: it has no end")
	}
	payload, err := encode(c)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	signed := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString(payload)
	token := signed + "." + b64.EncodeToString(sign(k.newest(), signed))
	if len(token) > MaxSize {
		return "", fmt.Errorf("sign a token: with %d allowed hosts it has %d bytes, more than %d", len(c.Hosts), len(token), MaxSize)
	}
	return token, nil
}

// Verify checks a token against all keys that are in force and the clock. The
// errors wrap ErrInvalid and say what is wrong without any part of the token.
func (k *Keys) Verify(token string) (Claims, error) {
	if len(token) > MaxSize {
		return Claims{}, invalid("it has more than %d bytes", MaxSize)
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return Claims{}, invalid("it has not three parts")
	}
	var raw [3][]byte
	for i, p := range parts {
		// The decoder skips line ends wherever they stand.
		b, err := b64.DecodeString(p)
		if err != nil || p == "" || strings.ContainsAny(p, "\r\n") {
			return Claims{}, invalid("part %d is not in base64url", i+1)
		}
		raw[i] = b
	}
	if err := checkHeader(raw[0]); err != nil {
		return Claims{}, err
	}
	if !k.signed(parts[0]+"."+parts[1], raw[2]) {
		return Claims{}, invalid("the signature is not ours")
	}
	return decode(raw[1], time.Now())
}

// checkHeader takes the two fields that mean something here and no other: a field
// that names or brings a key must not be overlooked, even with a good signature.
func checkHeader(b []byte) error {
	fields, err := object(b)
	if err != nil {
		return err
	}
	for name, value := range fields {
		s, err := text(name, value)
		switch {
		case err != nil:
			return err
		case name == "alg" && s == "HS256", name == "typ" && s == "JWT":
		case name == "alg":
			return invalid("its algorithm is not HS256")
		default:
			return invalid("its header has a field that is not known")
		}
	}
	if _, ok := fields["alg"]; !ok {
		return invalid("its header names no algorithm")
	}
	return nil
}

func decode(b []byte, now time.Time) (Claims, error) {
	fields, err := object(b)
	if err != nil {
		return Claims{}, err
	}
	if iss, err := text("iss", fields["iss"]); err != nil || iss != issuer {
		return Claims{}, invalid("its issuer is not ours")
	}
	var c Claims
	if c.Session, err = text("session_id", fields["session_id"]); err != nil || c.Session == "" {
		return Claims{}, invalid("it names no session")
	}
	if t, ok := fields["tenant_id"]; ok && string(t) != "null" {
		if c.Tenant, err = text("tenant_id", t); err != nil {
			return Claims{}, err
		}
	}
	if c.Hosts, err = hosts(fields["allowed_hosts"]); err != nil {
		return Claims{}, err
	}
	if c.Expires, err = seconds("exp", fields["exp"]); err != nil {
		return Claims{}, err
	}
	if !now.Before(c.Expires) {
		return Claims{}, invalid("it has expired")
	}
	for _, name := range []string{"nbf", "iat"} {
		value, ok := fields[name]
		if !ok {
			continue
		}
		at, err := seconds(name, value)
		if err != nil {
			return Claims{}, err
		}
		if at.After(now.Add(Skew)) {
			return Claims{}, invalid("%s is in the future", name)
		}
	}
	return c, nil
}

// seconds reads a time. Only digits will do: what else JSON calls a number is
// read differently by different readers.
func seconds(name string, raw []byte) (time.Time, error) {
	const digits = 12 // to the year 33658
	if len(raw) == 0 {
		return time.Time{}, invalid("%s is missing", name)
	}
	n, err := strconv.ParseUint(string(raw), 10, 63)
	if err != nil || len(raw) > digits {
		return time.Time{}, invalid("%s is not a number of whole seconds", name)
	}
	return time.Unix(int64(n), 0), nil
}

func sign(key []byte, signed string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(signed))
	return m.Sum(nil)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
