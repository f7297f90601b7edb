package auth_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/sandbox"
)

// TestR18_Logins: who comes in by the logins of autocoder, and how the others are
// refused.
func TestR18_Logins(t *testing.T) {
	keys := auth.NewKeyring(&authtest.Memory{})
	_, key, err := keys.Create(t.Context(), "acme", "", false)
	if err != nil {
		t.Fatal(err)
	}
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	pairs := auth.Login{Kind: auth.LoginBasic, User: "u", Pass: "p", RootUser: "root", RootPass: "r", Token: "t"}
	token := auth.Login{Kind: auth.LoginToken, User: "u", Pass: "p", Token: "t"}
	user, root, byKey := "default", "default admin", "acme"
	for _, c := range []struct {
		what  string
		login auth.Login
		head  []string
		want  string
	}{
		{"nothing", pairs, nil, "401 Basic"}, {"user", pairs, []string{"Authorization", basic("u:p")}, user}, {"root", pairs, []string{"Authorization", basic("root:r")}, root},
		{"any case", pairs, []string{"Authorization", "bAsIc" + basic("u:p")[5:]}, user}, {"wrong password", pairs, []string{"Authorization", basic("u:x")}, "403"},
		{"mixed pairs", pairs, []string{"Authorization", basic("u:r")}, "403"}, {"the token", pairs, []string{"Authorization", "Bearer t"}, "401"}, {"its header", pairs, []string{auth.LoginHeader, "t"}, "401 Basic"},
		{"malformed", pairs, []string{"Authorization", "Basic !"}, "401 Basic"}, {"no colon", pairs, []string{"Authorization", basic("up")}, "401 Basic"}, {"a key beside", pairs, []string{"Authorization", "Bearer " + key}, byKey},
		{"a password with a colon", auth.Login{Kind: auth.LoginBasic, User: "u", Pass: "a:b"}, []string{"Authorization", basic("u:a:b")}, user},
		{"no password set", auth.Login{Kind: auth.LoginBasic, User: "u"}, []string{"Authorization", basic("u:")}, "403"}, {"nothing set", auth.Login{Kind: auth.LoginBasic}, []string{"Authorization", basic(":")}, "403"},
		{"token", token, []string{"Authorization", "Bearer t"}, user}, {"token, own header", token, []string{auth.LoginHeader, "t"}, user}, {"twice the same", token, []string{"Authorization", "Bearer t", auth.LoginHeader, "t"}, user},
		{"two", token, []string{"Authorization", "Bearer t", auth.LoginHeader, "x"}, "401"}, {"wrong token", token, []string{auth.LoginHeader, "x"}, "401"}, {"wrong bearer", token, []string{"Authorization", "Bearer x"}, "401"},
		{"no token", token, nil, "401"}, {"a pair", token, []string{"Authorization", basic("u:p")}, "401"}, {"a key", token, []string{"X-API-Key", key}, byKey},
		{"an empty token", auth.Login{Kind: auth.LoginToken}, []string{auth.LoginHeader, ""}, "401"}, {"an empty bearer", auth.Login{Kind: auth.LoginToken}, []string{"Authorization", "Bearer "}, "401"},
		{"off", auth.Login{User: "u", Pass: "p", Token: "t"}, []string{"Authorization", basic("u:p")}, "401"}, {"off, token", auth.Login{Token: "t"}, []string{"Authorization", "Bearer t"}, "401"}, {"off, header", auth.Login{Token: "t"}, []string{auth.LoginHeader, "t"}, "401"},
	} {
		gate, err := auth.NewGate(keys, auth.Policy{Login: c.login})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		for i := 0; i < len(c.head); i += 2 {
			r.Header.Set(c.head[i], c.head[i+1])
		}
		if got := outcome(gate.Enter(r, auth.NeedKey)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func outcome(caller sandbox.Caller, err error) string {
	var challenge *auth.ChallengeError
	switch {
	case errors.As(err, &challenge) && challenge.Challenge == `Basic realm="Autocoder"`:
		return "401 Basic"
	case errdefs.IsUnauthorized(err):
		return "401"
	case errdefs.IsPermissionDenied(err):
		return "403"
	case err != nil:
		return err.Error()
	case caller.Admin:
		return caller.Owner + " admin"
	}
	return caller.Owner
}

// TestR18_LocalOnly: with remote access off only this machine is served, on open
// routes, too.
func TestR18_LocalOnly(t *testing.T) {
	keys := auth.NewKeyring(&authtest.Memory{})
	_, key, err := keys.Create(t.Context(), "acme", "", false)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "192.0.2.1:1": false, "[2001:db8::1]:1": false, "": false} {
		for _, local := range []bool{true, false} {
			gate, err := auth.NewGate(keys, auth.Policy{LocalOnly: local})
			if err != nil {
				t.Fatal(err)
			}
			for _, access := range []auth.Access{auth.Open, auth.NeedKey} {
				r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
				r.RemoteAddr = addr
				r.Header.Set("X-API-Key", key)
				r.Header.Set("X-Forwarded-For", "127.0.0.1")
				_, err := gate.Enter(r, access)
				if (err == nil) != (want || !local) || err != nil && err.Error() != "Localhost access only" {
					t.Errorf("%s, local only %v: %v", addr, local, err)
				}
			}
		}
	}
}

// TestGuessesAreBounded: an address that was refused as often as it may be does not learn
// whether its next password is right. Keys, which nobody guesses, and other addresses
// come in all the same.
func TestGuessesAreBounded(t *testing.T) {
	keys := auth.NewKeyring(&authtest.Memory{})
	_, key, err := keys.Create(t.Context(), "acme", "", false)
	if err != nil {
		t.Fatal(err)
	}
	basic := func(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, c := range []struct {
		login             auth.Login
		head, right, good string
	}{
		{auth.Login{Kind: auth.LoginBasic, RootUser: "root", RootPass: "r"}, "Authorization", basic("root:r"), "default admin"},
		{auth.Login{Kind: auth.LoginToken, Token: "t"}, "Authorization", "Bearer t", "default"},
		{auth.Login{Kind: auth.LoginToken, Token: "t"}, auth.LoginHeader, "t", "default"},
	} {
		gate, err := auth.NewGate(keys, auth.Policy{Login: c.login, Rates: auth.Rates{Refused: 0.001}})
		if err != nil {
			t.Fatal(err)
		}
		enter := func(addr, head, value string) string {
			r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
			r.RemoteAddr = addr
			r.Header.Set(head, value)
			return outcome(gate.Enter(r, auth.NeedKey))
		}
		for range 3 {
			enter("127.0.0.1:1", c.head, c.right+"x")
		}
		if got := enter("127.0.0.1:1", c.head, c.right); got != "too many requests" {
			t.Errorf("%s after wrong ones: %s", c.right, got)
		}
		if got := enter("127.0.0.1:1", "X-API-Key", key); got != "acme" {
			t.Errorf("a key after wrong logins: %s", got)
		}
		if got := enter("127.0.0.2:1", c.head, c.right); got != c.good {
			t.Errorf("%s from another address: %s", c.right, got)
		}
	}
}
