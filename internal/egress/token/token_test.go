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
)

const (
	goldenKey = "test-signing-key"
	header    = `{"typ":"JWT","alg":"HS256"}`
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

// sign makes a token of any header and payload.
func sign(header, payload string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(header)) + "." + b64([]byte(payload))
	m := hmac.New(sha256.New, []byte(goldenKey))
	m.Write([]byte(signed))
	return signed + "." + b64(m.Sum(nil))
}

func claims(more string) string {
	return `{"iss":"sandbox-egress-control","session_id":"s1","tenant_id":null,"allowed_hosts":"a.test"` + more + `}`
}

const exp = `,"exp":4102444800`

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
		c, err := keys(t).Verify(sign(header, `{"iss":"sandbox-egress-control","session_id":"s1","allowed_hosts":`+hosts+exp+`}`))
		if err != nil || !slices.Equal(c.Hosts, want) {
			t.Errorf("%s: got %q, %v", hosts, c.Hosts, err)
		}
	}
}

// refused checks that each token is refused, and that the good one, made in the
// same way, is not.
func refused(t *testing.T, tokens map[string]string) {
	t.Helper()
	if _, err := keys(t).Verify(sign(header, claims(exp))); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	for what, s := range tokens {
		if c, err := keys(t).Verify(s); !errors.Is(err, token.ErrInvalid) || c.Session != "" {
			t.Errorf("%s: got %+v, %v", what, c, err)
		}
	}
}

func TestJWT01_Algorithms(t *testing.T) {
	tokens := map[string]string{}
	for _, alg := range []string{"none", "None", "nOnE", "NONE", "", "hs256", "HS384", "HS512", "RS256", "ES256"} {
		h := `{"typ":"JWT","alg":"` + alg + `"}`
		tokens[alg] = sign(h, claims(exp))
		tokens[alg+", no signature"] = cut(sign(h, claims(exp)))
	}
	tokens["absent"] = sign(`{"typ":"JWT"}`, claims(exp))
	tokens["null"] = sign(`{"typ":"JWT","alg":null}`, claims(exp))
	tokens["a list"] = sign(`{"typ":"JWT","alg":["HS256"]}`, claims(exp))
	tokens["twice"] = sign(`{"typ":"JWT","alg":"HS256","alg":"none"}`, claims(exp))
	tokens["in capitals"] = sign(`{"typ":"JWT","ALG":"HS256"}`, claims(exp))
	tokens["no signature"] = cut(sign(header, claims(exp)))
	tokens["two parts"] = strings.TrimSuffix(cut(sign(header, claims(exp))), ".")
	tokens["four parts"] = sign(header, claims(exp)) + ".x"
	tokens["nothing"] = ""
	tokens["dots"] = strings.Repeat(".", 10_000)
	refused(t, tokens)
}

// cut removes the signature.
func cut(s string) string { return s[:strings.LastIndexByte(s, '.')+1] }

func TestJWT02_Headers(t *testing.T) {
	tokens := map[string]string{}
	for _, field := range []string{
		`"jwk":{"kty":"oct","k":"eA"}`, `"jku":"http://lab.test/keys"`, `"x5u":"http://lab.test/cert"`, `"kid":"../../dev/null"`, `"kid":"\u0000"`, `"kid":""`,
		`"x5c":["eA"]`, `"crit":["exp"]`, `"b64":false`, `"zip":"DEF"`, `"cty":"JWT"`,
	} {
		tokens[field] = sign(`{"typ":"JWT","alg":"HS256",`+field+`}`, claims(exp))
	}
	tokens["another type"] = sign(`{"typ":"JWE","alg":"HS256"}`, claims(exp))
	tokens["no object"] = sign(`"HS256"`, claims(exp))
	refused(t, tokens)
	if _, err := keys(t).Verify(sign(`{"alg":"HS256","typ":"JWT"}`, claims(exp))); err != nil {
		t.Errorf("another order of the header: %v", err)
	}
}

func TestJWT03_Times(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) string { return fmt.Sprint(now.Add(d).Unix()) }
	tokens := map[string]string{"none": sign(header, claims(""))}
	for _, v := range []string{at(-time.Hour), at(0), `"4102444800"`, "1e308", "-1", "0", "4.1e9", "4102444800.0", "4102444800.5", "null", "true", "[4102444800]", "{}", "99999999999999999999", "9223372036854775808"} {
		tokens["exp "+v] = sign(header, claims(`,"exp":`+v))
	}
	for _, name := range []string{"nbf", "iat"} {
		for _, v := range []string{at(24 * time.Hour), at(2 * time.Minute), `"1"`, "-1", "null", "1e3"} {
			tokens[name+" "+v] = sign(header, claims(exp+`,"`+name+`":`+v))
		}
		for _, v := range []string{at(-time.Hour), at(30 * time.Second)} {
			if _, err := keys(t).Verify(sign(header, claims(exp+`,"`+name+`":`+v))); err != nil {
				t.Errorf("%s %s: %v", name, v, err)
			}
		}
	}
	refused(t, tokens)
}

func TestJWT06_Forgeries(t *testing.T) {
	good := sign(header, claims(exp))
	parts := strings.Split(good, ".")
	edited := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(claims(exp), "s1", "s2", 1)))
	last := good[len(good)-1]
	tokens := map[string]string{
		"edited":         parts[0] + "." + edited + "." + parts[2],
		"padded":         good + "=",
		"padded inside":  parts[0] + "=." + parts[1] + "." + parts[2],
		"newline":        good + "\n",
		"newline inside": parts[0] + "." + parts[1] + "." + parts[2][:10] + "\r\n" + parts[2][10:],
		"blank":          " " + good,
		"blank inside":   parts[0] + ". " + parts[1] + "." + parts[2],
		"spare bits":     good[:len(good)-1] + string(next(last)),
		"standard":       strings.NewReplacer("-", "+", "_", "/").Replace(sign(header, `{"iss":"sandbox-egress-control","session_id":"???>>>~~~"`+exp+`}`)),
		"short":          parts[0] + "." + parts[1] + "." + parts[2][:20],
		"swapped":        parts[1] + "." + parts[0] + "." + parts[2],
		"too long":       sign(header, claims(exp+`,"x":"`+strings.Repeat("x", 20_000)+`"`)),
	}
	for name, more := range map[string]string{
		"session twice": `,"session_id":"s2"`, "exp twice": `,"exp":4102444801`, "escaped, twice": `,"\u0065xp":4102444801`, "iss twice": `,"iss":"sandbox-egress-control"`,
		"hosts twice": `,"allowed_hosts":"*"`, "a number for hosts": `,"allowed_host":1}{`,
	} {
		tokens[name] = sign(header, claims(exp+more))
	}
	for name, payload := range map[string]string{
		"issuer":            strings.Replace(claims(exp), "sandbox-egress-control", "sandbox-egress-contro1", 1),
		"issuer in case":    strings.Replace(claims(exp), "sandbox-egress-control", "Sandbox-egress-control", 1),
		"no issuer":         `{"session_id":"s1"` + exp + `}`,
		"no session":        `{"iss":"sandbox-egress-control"` + exp + `}`,
		"empty session":     strings.Replace(claims(exp), `"s1"`, `""`, 1),
		"session is a list": strings.Replace(claims(exp), `"s1"`, `["s1"]`, 1),
		"session is null":   strings.Replace(claims(exp), `"s1"`, `null`, 1),
		"names in capitals": strings.ToUpper(claims(exp)),
		"EXP":               claims(`,"EXP":4102444800`),
		"tenant is a list":  strings.Replace(claims(exp), `null`, `[]`, 1),
		"hosts are numbers": strings.Replace(claims(exp), `"a.test"`, `[1]`, 1),
		"hosts are null":    strings.Replace(claims(exp), `"a.test"`, `[null]`, 1),
		"not UTF-8":         strings.Replace(claims(exp), "s1", "s\xff", 1),
		"trailing":          claims(exp) + "{}",
		"trailing comma":    claims(exp + ","),
		"a list":            "[" + claims(exp) + "]",
		"empty":             "{}",
		"nothing":           "null",
	} {
		tokens[name] = sign(header, payload)
	}
	refused(t, tokens)
}

// next is another character that stands for the same bytes, if spare bits are
// not looked at.
func next(c byte) byte {
	const set = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return set[strings.IndexByte(set, c)|1]
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
		for range 20 { // however often, the keys are bounded
			err = k.Rotate(token.GenerateKey(), time.Hour)
		}
		if err == nil {
			t.Error("there is no bound of keys")
		}
		time.Sleep(2 * time.Hour)
		if err := k.Rotate(token.GenerateKey(), time.Hour); err != nil {
			t.Errorf("after the overlaps: %v", err)
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
	f.Add(sign(header, claims(exp)))
	f.Add(sign(`{"alg":"none"}`, claims(exp)))
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
	f.Add(header, claims(exp))
	f.Add(header, claims(exp+`,"nbf":1,"iat":1`))
	f.Add(`{"alg":"HS256"}`, claims(exp+`,"exp":1`))
	k := keys(f)
	f.Fuzz(func(t *testing.T, header, payload string) {
		c, err := k.Verify(sign(header, payload))
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
