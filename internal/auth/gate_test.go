package auth_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
	"agentbox/internal/sandbox"
)

// world is a gate with two good keys and a revoked one.
type world struct {
	store                *authtest.Memory
	gate                 *auth.Gate
	admin, user, revoked string
}

func newWorld(t *testing.T, p auth.Policy) *world {
	t.Helper()
	w := &world{store: &authtest.Memory{}}
	r := auth.NewKeyring(w.store)
	add := func(owner string, admin bool) (id, secret string) {
		k, secret, err := r.Create(t.Context(), owner, "", admin)
		if err != nil {
			t.Fatal(err)
		}
		return k.ID, secret
	}
	_, w.admin = add("ops", true)
	_, w.user = add("acme", false)
	id, revoked := add("acme", true)
	w.revoked = revoked
	if _, err := r.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.gate, err = auth.NewGate(r, p); err != nil {
		t.Fatal(err)
	}
	return w
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8700/api/v1/sandboxes", nil)
	r.RemoteAddr = "127.0.0.1:4000"
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// TestTEN08_Refusals goes through every way to come without a good key.
func TestTEN08_Refusals(t *testing.T) {
	w := newWorld(t, auth.Policy{})
	other := auth.Prefix + strings.Repeat("0", 40)
	for name, headers := range map[string][]string{
		"no key":                 {},
		"empty key":              {"X-API-Key", ""},
		"unknown key":            {"X-API-Key", other},
		"revoked key":            {"X-API-Key", w.revoked},
		"part of a key":          {"X-API-Key", w.user[:len(w.user)-1]},
		"longer key":             {"X-API-Key", w.user + "0"},
		"upper case":             {"X-API-Key", strings.ToUpper(w.user)},
		"no prefix":              {"X-API-Key", strings.TrimPrefix(w.user, auth.Prefix)},
		"two keys":               {"X-API-Key", w.user, "X-API-Key", w.user},
		"two different keys":     {"X-API-Key", w.user, "Authorization", "Bearer " + w.admin},
		"good and bad key":       {"X-API-Key", w.user, "Authorization", "Bearer " + other},
		"basic":                  {"Authorization", "Basic " + w.user},
		"key without scheme":     {"Authorization", w.user},
		"scheme alone":           {"Authorization", "Bearer"},
		"scheme and space":       {"Authorization", "Bearer "},
		"two authorizations":     {"Authorization", "Bearer " + w.user, "Authorization", "Bearer " + w.user},
		"bearer and more":        {"Authorization", "Bearer " + w.user + " x"},
		"comma":                  {"Authorization", "Bearer " + w.user + "," + w.user},
		"cookie":                 {"Cookie", "X-API-Key=" + w.user},
		"key under other name":   {"X-Forwarded-Authorization", "Bearer " + w.user},
		"protocol of no socket":  {"Sec-WebSocket-Protocol", "agentbox, agentbox.key." + w.user},
		"two protocols":          {"Upgrade", "websocket", "Sec-WebSocket-Protocol", "agentbox.key." + w.user + ", agentbox.key." + w.user},
		"protocol and other key": {"Upgrade", "websocket", "Sec-WebSocket-Protocol", "agentbox.key." + w.user, "X-API-Key", w.admin},
		"claims to be local":     {"X-Forwarded-For", "127.0.0.1", "X-Real-IP", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := w.gate.Enter(request(headers...), auth.NeedKey)
			if !errdefs.IsUnauthorized(err) || c != (sandbox.Caller{}) {
				t.Fatalf("%+v, %v; want a refusal", c, err)
			}
			for _, s := range []string{w.user, w.revoked, other} {
				if strings.Contains(err.Error(), s[len(auth.Prefix):]) {
					t.Errorf("the error has the key: %v", err)
				}
			}
		})
	}
	inQuery := request()
	inQuery.URL.RawQuery = "api_key=" + w.user + "&X-API-Key=" + w.user
	if _, err := w.gate.Enter(inQuery, auth.NeedKey); !errdefs.IsUnauthorized(err) {
		t.Errorf("a key in the URL: %v", err)
	}
	if _, err := w.gate.Enter(request("X-API-Key", w.user), auth.NeedAdmin); !errdefs.IsPermissionDenied(err) {
		t.Errorf("an admin's route without an admin key: %v", err)
	}
}

func TestEnter(t *testing.T) {
	w := newWorld(t, auth.Policy{})
	for name, c := range map[string]struct {
		headers []string
		access  auth.Access
		owner   string
		admin   bool
	}{
		"X-API-Key":       {[]string{"x-api-key", w.user}, auth.NeedKey, "acme", false},
		"bearer":          {[]string{"Authorization", "Bearer " + w.user}, auth.NeedKey, "acme", false},
		"any case":        {[]string{"Authorization", "bearer  " + w.user}, auth.NeedKey, "acme", false},
		"both the same":   {[]string{"Authorization", "Bearer " + w.user, "X-API-Key", w.user}, auth.NeedKey, "acme", false},
		"WebSocket":       {[]string{"Upgrade", "websocket", "Sec-WebSocket-Protocol", "agentbox, agentbox.key." + w.user}, auth.NeedKey, "acme", false},
		"other prefix":    {[]string{"X-API-Key", "e2b_" + strings.TrimPrefix(w.user, auth.Prefix)}, auth.NeedKey, "acme", false},
		"admin":           {[]string{"X-API-Key", w.admin}, auth.NeedAdmin, "ops", true},
		"open":            {nil, auth.Open, "", false},
		"open, wrong key": {[]string{"X-API-Key", "nonsense"}, auth.Open, "", false},
	} {
		got, err := w.gate.Enter(request(c.headers...), c.access)
		if err != nil || got.Owner != c.owner || got.Admin != c.admin {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	w.store.Break(errors.New("disk on fire at /var/lib/agentbox"))
	if _, err := w.gate.Enter(request("X-API-Key", w.user), auth.NeedKey); !errdefs.IsUnavailable(err) {
		t.Errorf("with a broken store: %v", err)
	}
}

func TestNoAuth(t *testing.T) {
	w := newWorld(t, auth.Policy{NoAuth: true})
	c, err := w.gate.Enter(request(), auth.NeedAdmin)
	if err != nil || c.Owner != sandbox.DefaultOwner || !c.Admin {
		t.Errorf("without a key: %+v, %v", c, err)
	}
	// What clients send whose variable for the key is empty.
	if c, err = w.gate.Enter(request("Authorization", "Bearer ", "X-API-Key", ""), auth.NeedAdmin); err != nil || !c.Admin {
		t.Errorf("with an empty key: %+v, %v", c, err)
	}
	if c, err = w.gate.Enter(request("X-API-Key", w.user), auth.NeedKey); err != nil || c.Owner != "acme" {
		t.Errorf("with a key: %+v, %v", c, err)
	}
	if _, err = w.gate.Enter(request("X-API-Key", "wrong"), auth.NeedKey); !errdefs.IsUnauthorized(err) {
		t.Errorf("a wrong key: %v", err)
	}
	for _, from := range []string{"192.0.2.1:4000", "[2001:db8::1]:4000", "@", ""} {
		r := request("X-Forwarded-For", "127.0.0.1")
		r.RemoteAddr = from
		if _, err := w.gate.Enter(r, auth.NeedKey); !errdefs.IsPermissionDenied(err) {
			t.Errorf("from %q: %v", from, err)
		}
	}
}

func TestLocalSocket(t *testing.T) {
	w := newWorld(t, auth.Policy{Rates: auth.Rates{PerAddress: 0.001, Refused: 0.001}})
	local := request("Host", "evil.test", "Origin", "http://evil.test") // no browser gets here
	local = local.WithContext(auth.ConnContext(local.Context(), socket(t)))
	for range 3 {
		c, err := w.gate.Enter(local, auth.NeedAdmin)
		if err != nil || c.Owner != sandbox.DefaultOwner || !c.Admin {
			t.Errorf("our own user: %+v, %v", c, err)
		}
	}
	local.Header.Set("X-API-Key", w.user)
	if c, err := w.gate.Enter(local, auth.NeedKey); err != nil || c.Owner != "acme" || c.Admin {
		t.Errorf("with a key: %+v, %v", c, err)
	}
	if !auth.IsLocal(local.Context()) || auth.IsLocal(t.Context()) {
		t.Error("local and not local are mixed up")
	}
	closed := socket(t)
	closed.Close()
	stranger := request().WithContext(auth.ConnContext(context.Background(), closed))
	for _, a := range []auth.Access{auth.NeedKey, auth.Open} {
		if _, err := w.gate.Enter(stranger, a); !errdefs.IsPermissionDenied(err) {
			t.Errorf("a peer that nobody knows: %v", err)
		}
	}
}

// socket is the server's end of a local connection from this process.
func socket(t *testing.T) *net.UnixConn {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

func TestRates(t *testing.T) {
	exempt := []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}
	w := newWorld(t, auth.Policy{Rates: auth.Rates{PerKey: 0.001, PerAddress: 0.001, Refused: 0.001, Exempt: exempt}})
	from := func(addr string, headers ...string) error {
		r := request(headers...)
		r.RemoteAddr = addr
		_, err := w.gate.Enter(r, auth.NeedKey)
		return err
	}
	var limit *auth.RateError
	if err := from("192.0.2.1:1", "X-API-Key", w.user); err != nil {
		t.Error(err)
	}
	if err := from("192.0.2.1:2", "X-API-Key", w.admin); !errors.As(err, &limit) || limit.After <= 0 || !errdefs.IsResourceExhausted(err) {
		t.Errorf("a second request of an address: %v", err)
	}
	if err := from("192.0.2.2:1", "X-API-Key", w.user); !errors.As(err, &limit) {
		t.Errorf("a second request of a key: %v", err)
	}
	if err := from("[2001:db8::1]:1", "X-API-Key", w.admin); err != nil {
		t.Error(err)
	}
	if err := from("[2001:db8::2]:1", "X-API-Key", w.admin); !errors.As(err, &limit) {
		t.Errorf("the next address of the same network: %v", err)
	}
	for range 3 {
		if err := from("192.0.2.7:1"); !errdefs.IsUnauthorized(err) {
			t.Errorf("refused, from an exempt address: %v", err)
		}
	}
}

// TestRefusalsAreLimited keeps good keys of an address out of it: others behind
// the same proxy must not suffer from one that guesses.
func TestRefusalsAreLimited(t *testing.T) {
	w := newWorld(t, auth.Policy{Rates: auth.Rates{Refused: 0.001}})
	if _, err := w.gate.Enter(request(), auth.NeedKey); !errdefs.IsUnauthorized(err) {
		t.Errorf("the first refusal: %v", err)
	}
	var limit *auth.RateError
	if _, err := w.gate.Enter(request(), auth.NeedKey); !errors.As(err, &limit) {
		t.Errorf("the second refusal: %v", err)
	}
	if _, err := w.gate.Enter(request("X-API-Key", w.user), auth.NeedKey); err != nil {
		t.Errorf("a good key is held up: %v", err)
	}
}
