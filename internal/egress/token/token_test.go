package token_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentbox/internal/egress/token"
	"agentbox/internal/egress/token/tokentest"
)

const (
	goldenKey = "test-signing-key"
	header    = tokentest.Header
	exp       = tokentest.Forever
	session   = "11111111-2222-4333-8444-555555555555"
	golden    = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJzYW5kYm94LWVncmVzcy1jb250cm9sIiwic2Vzc2lvbl9pZCI6IjExMTExMTExLTIyMjItNDMzMy04NDQ0LTU1NTU1NTU1NTU1NSIsInRlbmFudF9pZCI6bnVsbCwiYWxsb3dlZF9ob3N0cyI6ImV4YW1wbGUuY29tLCouZXhhbXBsZS5vcmciLCJleHAiOjQxMDI0NDQ4MDB9.96zDvI73pJEcfTS45MdtJ-snZuQ53BZCA9QcS7X57zM"
	goldenOld = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJzYW5kYm94LWVncmVzcy1jb250cm9sIiwic2Vzc2lvbl9pZCI6IjExMTExMTExLTIyMjItNDMzMy04NDQ0LTU1NTU1NTU1NTU1NSIsInRlbmFudF9pZCI6ImFjbWUiLCJhbGxvd2VkX2hvc3RzIjoiZXhhbXBsZS5jb20sKi5leGFtcGxlLm9yZyIsImV4cCI6OTQ2Njg0ODAwfQ.tEh09T2MLZo2i3ikJ8P4bfvDgiLkhjSpsM2GaqDEm7Q"
)

func keys(t testing.TB) *token.Keys {
	t.Helper()
	k, err := token.NewKeys(goldenKey)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// forger makes tokens with the same key.
var forger = tokentest.Forger{Key: goldenKey, Session: "s1", Lab: "http://lab.test"}

func TestJ1_GoldenVectors(t *testing.T) {
	k := keys(t)
	hosts := []string{"example.com", "*.example.org"}
	for _, c := range []struct {
		tenant string
		exp    int64
		want   string
	}{{"", 4102444800, golden}, {"acme", 946684800, goldenOld}} {
		got, err := k.Sign(token.Claims{Session: session, Tenant: c.tenant, Hosts: hosts, Expires: time.Unix(c.exp, 0)})
		if err != nil || got != c.want {
			t.Errorf("got %s, %v", got, err)
		}
	}
	c, err := k.Verify(golden)
	if err != nil || c.Session != session || c.Tenant != "" || !slices.Equal(c.Hosts, hosts) || c.Expires.Unix() != 4102444800 {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := k.Verify(goldenOld); !errors.Is(err, token.ErrInvalid) {
		t.Errorf("the expired one: %v", err)
	}
}

func TestJ7_HostsAsList(t *testing.T) {
	for hosts, want := range map[string][]string{
		`"a.test"`: {"a.test"}, `" a.test , *.b.test,,"`: {"a.test", "*.b.test"}, `["a.test"," *.b.test "]`: {"a.test", "*.b.test"}, `""`: nil, `[]`: nil,
	} {
		c, err := keys(t).Verify(forger.Token(header, `{"iss":"sandbox-egress-control","session_id":"s1","allowed_hosts":`+hosts+exp+`}`))
		if err != nil || !slices.Equal(c.Hosts, want) {
			t.Errorf("%s: got %q, %v", hosts, c.Hosts, err)
		}
	}
}

// refused checks that each token is refused, and that the good one, made in the
// same way, is not.
func refused(t *testing.T, tokens map[string]string) {
	t.Helper()
	if _, err := keys(t).Verify(forger.Good()); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for what, s := range tokens {
		if c, err := keys(t).Verify(s); !errors.Is(err, token.ErrInvalid) || c.Session != "" {
			t.Errorf("%s: got %+v, %v", what, c, err)
		}
	}
}

func TestJWT01_Algorithms(t *testing.T) { refused(t, forger.Algorithms()) }

func TestJWT02_Headers(t *testing.T) {
	refused(t, forger.Headers())
	if _, err := keys(t).Verify(forger.Token(`{"alg":"HS256","typ":"JWT"}`, forger.Claims(exp))); err != nil {
		t.Errorf("another order of the header: %v", err)
	}
}

func TestJWT03_Times(t *testing.T) {
	refused(t, forger.Times())
	for _, name := range []string{"nbf", "iat"} {
		for _, d := range []time.Duration{-time.Hour, 30 * time.Second} {
			if _, err := keys(t).Verify(forger.Token(header, forger.Claims(fmt.Sprintf(`%s,"%s":%d`, exp, name, time.Now().Add(d).Unix())))); err != nil {
				t.Errorf("%s in %v: %v", name, d, err)
			}
		}
	}
}

func TestJWT06_Forgeries(t *testing.T) {
	refused(t, forger.Forgeries())
	refused(t, map[string]string{"too long": forger.Token(header, forger.Claims(exp+`,"x":"`+strings.Repeat("x", 20_000)+`"`))})
}

// TestRotation: a new key signs at once, tokens of the old one end with the
// overlap, and those of another key were never good.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keys(t)
		c := token.Claims{Session: "s1", Expires: time.Now().Add(48 * time.Hour)}
		first, err := k.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Rotate("another-signing-key", time.Hour); err != nil {
			t.Fatal(err)
		}
		second, err := k.Sign(c)
		if err != nil || second == first {
			t.Fatalf("got %s, %v", second, err)
		}
		check := func(s string, want bool) {
			t.Helper()
			if _, err := k.Verify(s); want != (err == nil) {
				t.Errorf("after %v: %v", time.Until(c.Expires), err)
			}
		}
		check(first, true)
		check(second, true)
		time.Sleep(59 * time.Minute)
		check(first, true)
		time.Sleep(2 * time.Minute)
		check(first, false)
		check(second, true)
		if err := k.Rotate("the-third-signing-key", 0); err != nil {
			t.Fatal(err)
		}
		check(second, false)
		var made []string
		for range 20 { // however often: the oldest keys make room
			if err := k.Rotate(token.GenerateKey(), time.Hour); err != nil {
				t.Fatal(err)
			}
			text, err := k.Sign(c)
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, text)
		}
		for i, text := range made {
			check(text, i >= len(made)-8)
		}
	})
}

func TestKeysAreLongEnough(t *testing.T) {
	for n, want := range map[int]bool{0: false, 3: false, 15: false, 16: true, 64: true} {
		if _, err := token.NewKeys(strings.Repeat("k", n)); want != (err == nil) {
			t.Errorf("%d bytes: %v", n, err)
		} else if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("has %d bytes; it needs 16", n)) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if a, b := token.GenerateKey(), token.GenerateKey(); len(a) != 64 || a == b {
		t.Errorf("generated: %q, %q", a, b)
	}
	k := keys(t)
	if err := k.Rotate("short", time.Hour); err == nil {
		t.Error("a short key is rotated in")
	}
}

func TestSignRefuses(t *testing.T) {
	k := keys(t)
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("host-%d.example.com", i)
	}
	for what, c := range map[string]token.Claims{
		"no session": {Expires: time.Now().Add(time.Hour)}, "no end": {Session: "s1"},
		"too many hosts": {Session: "s1", Expires: time.Now().Add(time.Hour), Hosts: many},
	} {
		if s, err := k.Sign(c); err == nil {
			t.Errorf("%s: got %d bytes", what, len(s))
		}
	}
	if _, err := k.Sign(token.Claims{Session: "s<1>&", Expires: time.Now().Add(time.Hour), Hosts: many[:400]}); err != nil {
		t.Error(err)
	}
}

// FuzzToken: nothing but what was signed is taken, in one spelling.
func FuzzToken(f *testing.F) {
	f.Add(golden)
	f.Add(forger.Good())
	f.Add(forger.Token(`{"alg":"none"}`, forger.Claims(exp)))
	f.Add("..")
	k := keys(f)
	f.Fuzz(func(t *testing.T, s string) {
		c, err := k.Verify(s)
		if err != nil {
			if !errors.Is(err, token.ErrInvalid) || c.Session != "" {
				t.Fatalf("got %+v, %v", c, err)
			}
			return
		}
		signed, signature, _ := strings.Cut(s[strings.IndexByte(s, '.')+1:], ".")
		signed = s[:strings.IndexByte(s, '.')+1] + signed
		m := hmac.New(sha256.New, []byte(goldenKey))
		m.Write([]byte(signed))
		if signature != base64.RawURLEncoding.EncodeToString(m.Sum(nil)) {
			t.Fatalf("%q is taken", s)
		}
	})
}

// FuzzClaims: what is signed may still be no token; what is taken says what it
// says in one way.
func FuzzClaims(f *testing.F) {
	f.Add(header, forger.Claims(exp))
	f.Add(header, forger.Claims(exp+`,"nbf":1,"iat":1`))
	f.Add(`{"alg":"HS256"}`, forger.Claims(exp+`,"exp":1`))
	k := keys(f)
	f.Fuzz(func(t *testing.T, header, payload string) {
		c, err := k.Verify(forger.Token(header, payload))
		if err != nil {
			return
		}
		again, err := k.Sign(c)
		if err != nil {
			t.Skip("the hosts are too many")
		}
		d, err := k.Verify(again)
		if err != nil || d.Session != c.Session || d.Tenant != c.Tenant || !d.Expires.Equal(c.Expires) {
			t.Fatalf("%q: %+v, then %+v, %v", payload, c, d, err)
		}
	})
}
