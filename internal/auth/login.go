package auth

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"agentbox/internal/sandbox"
)

// Login is how clients of autocoder say who they are, beside API keys. All of them
// are the default owner; the root pair is its admin. A pair or a token with an empty
// part lets nobody in.
type Login struct {
	// Kind is which of them count; empty: none.
	Kind               LoginKind
	User, Pass         string
	RootUser, RootPass string
	Token              string
}

// LoginKind is a way of saying who one is.
type LoginKind string

// The kinds.
const (
	LoginBasic LoginKind = "basic" // Authorization: Basic, with one of two pairs
	LoginToken LoginKind = "token" // Authorization: Bearer, or LoginHeader
)

// LoginHeader has the token where Authorization has none.
const LoginHeader = "X-AUTOCODER-API-KEY"

// basicChallenge is what those clients look for.
const basicChallenge = `Basic realm="Autocoder"`

// ChallengeError is an error of the class Unauthenticated that tells how else to come
// in.
type ChallengeError struct {
	Err       error
	Challenge string // for WWW-Authenticate
}

func (e *ChallengeError) Error() string { return e.Err.Error() }

// Unwrap is the error without that.
func (e *ChallengeError) Unwrap() error { return e.Err }

// caller judges what a request brings. given: that was meant for the login.
func (l *Login) caller(h http.Header) (caller sandbox.Caller, given bool, err error) {
	switch l.Kind {
	case LoginBasic:
		return l.basic(h)
	case LoginToken:
		return l.token(h)
	}
	return caller, false, nil
}

// isIn reports whether a request brings what can only be the login.
func (l *Login) isIn(h http.Header) bool {
	switch l.Kind {
	case LoginBasic:
		scheme, _, _ := strings.Cut(h.Get("Authorization"), " ")
		return strings.EqualFold(scheme, "Basic")
	case LoginToken:
		return h.Get(LoginHeader) != ""
	}
	return false
}

func (l *Login) basic(h http.Header) (caller sandbox.Caller, given bool, err error) {
	v, one := single(h, "Authorization")
	scheme, code, _ := strings.Cut(v, " ")
	if one && !strings.EqualFold(scheme, "Basic") {
		return caller, false, nil
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(code))
	user, pass, ok := strings.Cut(string(text), ":")
	if !one || err != nil || !ok {
		return caller, true, l.challenge(unauthenticated("the Authorization header must be Basic and the base64 of USER:PASSWORD"))
	}
	isUser, isRoot := same(user, l.User)&same(pass, l.Pass), same(user, l.RootUser)&same(pass, l.RootPass)
	switch {
	case isRoot == 1:
		return sandbox.Caller{Owner: sandbox.DefaultOwner, KeyID: "login-root", Admin: true}, true, nil
	case isUser == 1:
		return sandbox.Caller{Owner: sandbox.DefaultOwner, KeyID: "login-user"}, true, nil
	}
	return caller, true, forbidden("wrong user or password")
}

func (l *Login) token(h http.Header) (caller sandbox.Caller, given bool, err error) {
	own, one := single(h, LoginHeader)
	if !one {
		return caller, true, unauthenticated("there is more than one API key")
	}
	bearer, err := bearerOf(h)
	if err != nil {
		return caller, true, err
	}
	if bearer != "" && own != "" && bearer != own {
		return caller, true, unauthenticated("there is more than one API key")
	}
	if same(cmp.Or(bearer, own), l.Token) == 1 {
		return sandbox.Caller{Owner: sandbox.DefaultOwner, KeyID: "login-token"}, true, nil
	}
	if own != "" {
		return caller, true, errWrongKey
	}
	return caller, false, nil // it may be a key of ours
}

// challenge adds to an error how to come in, where that is not by a key only.
func (l *Login) challenge(err error) error {
	if l.Kind != LoginBasic {
		return err
	}
	return &ChallengeError{Err: err, Challenge: basicChallenge}
}

// same compares what was given with a secret, in a time that tells nothing of it. 1:
// it is the same, and not empty.
func same(given, secret string) int {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	equal := subtle.ConstantTimeCompare(a[:], b[:])
	if secret == "" {
		return 0
	}
	return equal
}
