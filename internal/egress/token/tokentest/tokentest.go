// Package tokentest forges tokens for tests of whoever must refuse them.
package tokentest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

const (
	// Header is that of a good token.
	Header = `{"typ":"JWT","alg":"HS256"}`
	// Forever ends the claims of a token that does not expire.
	Forever = `,"exp":4102444800`
)

// Forger makes tokens of one session with a key, good ones and others.
type Forger struct {
	Key, Session string
	// Lab is a URL that headers of tokens name, as where to find a key. Nobody may
	// ask there.
	Lab string
}

// Token is one of any header and payload, with a good signature.
func (f Forger) Token(header, payload string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(header)) + "." + b64([]byte(payload))
	m := hmac.New(sha256.New, []byte(f.Key))
	m.Write([]byte(signed))
	return signed + "." + b64(m.Sum(nil))
}

// Claims are good ones of the session, but for how they end.
func (f Forger) Claims(more string) string {
	return `{"iss":"sandbox-egress-control","session_id":"` + f.Session + `","tenant_id":null,"allowed_hosts":"a.test"` + more + `}`
}

// Good is a token that has nothing wrong.
func (f Forger) Good() string { return f.Token(Header, f.Claims(Forever)) }

// Bad are tokens that must be refused, by what is wrong with them.
func (f Forger) Bad() map[string]string {
	all := map[string]string{}
	for id, tokens := range map[string]map[string]string{"JWT-01": f.Algorithms(), "JWT-02": f.Headers(), "JWT-03": f.Times(), "JWT-06": f.Forgeries()} {
		for what, token := range tokens {
			all[id+" "+what] = token
		}
	}
	return all
}

// Algorithms are tokens of JWT-01.
func (f Forger) Algorithms() map[string]string {
	tokens := map[string]string{}
	for _, alg := range []string{"none", "None", "nOnE", "NONE", "", "hs256", "HS384", "HS512", "RS256", "ES256"} {
		h := `{"typ":"JWT","alg":"` + alg + `"}`
		tokens[alg] = f.Token(h, f.Claims(Forever))
		tokens[alg+", no signature"] = unsigned(tokens[alg])
	}
	for what, header := range map[string]string{
		"absent": `{"typ":"JWT"}`, "null": `{"typ":"JWT","alg":null}`, "a list": `{"typ":"JWT","alg":["HS256"]}`,
		"twice": `{"typ":"JWT","alg":"HS256","alg":"none"}`, "in capitals": `{"typ":"JWT","ALG":"HS256"}`,
	} {
		tokens[what] = f.Token(header, f.Claims(Forever))
	}
	tokens["no signature"] = unsigned(f.Good())
	tokens["two parts"] = strings.TrimSuffix(unsigned(f.Good()), ".")
	tokens["four parts"] = f.Good() + ".x"
	tokens["nothing"] = ""
	tokens["dots"] = strings.Repeat(".", 10_000)
	return tokens
}

// unsigned is a token without its signature.
func unsigned(s string) string { return s[:strings.LastIndexByte(s, '.')+1] }

// Headers are tokens of JWT-02.
func (f Forger) Headers() map[string]string {
	tokens := map[string]string{
		"another type": f.Token(`{"typ":"JWE","alg":"HS256"}`, f.Claims(Forever)),
		"no object":    f.Token(`"HS256"`, f.Claims(Forever)),
	}
	for _, field := range []string{
		`"jwk":{"kty":"oct","k":"eA"}`, `"jku":"` + f.Lab + `/keys"`, `"x5u":"` + f.Lab + `/cert"`, `"kid":"../../dev/null"`, `"kid":"\u0000"`, `"kid":""`,
		`"x5c":["eA"]`, `"crit":["exp"]`, `"b64":false`, `"zip":"DEF"`, `"cty":"JWT"`,
	} {
		tokens[field] = f.Token(`{"typ":"JWT","alg":"HS256",`+field+`}`, f.Claims(Forever))
		// As somebody would make it whom the header could tell which key to take.
		tokens[field+", its own key"] = Forger{Key: "x", Session: f.Session}.Token(`{"typ":"JWT","alg":"HS256",`+field+`}`, f.Claims(Forever))
	}
	return tokens
}

// Times are tokens of JWT-03.
func (f Forger) Times() map[string]string {
	at := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	tokens := map[string]string{"none": f.Token(Header, f.Claims(""))}
	for _, v := range []string{
		at(-time.Hour), at(0), `"4102444800"`, "1e308", "-1", "0", "4.1e9", "4102444800.0", "4102444800.5", "null", "true", "[4102444800]", "{}",
		"99999999999999999999", "9223372036854775808",
	} {
		tokens["exp "+v] = f.Token(Header, f.Claims(`,"exp":`+v))
	}
	for _, name := range []string{"nbf", "iat"} {
		for _, v := range []string{at(24 * time.Hour), at(10 * time.Minute), `"1"`, "-1", "null", "1e3"} {
			tokens[name+" "+v] = f.Token(Header, f.Claims(Forever+`,"`+name+`":`+v))
		}
	}
	return tokens
}

// Forgeries are tokens of JWT-06.
func (f Forger) Forgeries() map[string]string {
	good := f.Good()
	parts := strings.Split(good, ".")
	claims := f.Claims(Forever)
	edited := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(claims, "a.test", "*", 1)))
	tokens := map[string]string{
		"edited":         parts[0] + "." + edited + "." + parts[2],
		"another key":    Forger{Key: "another-signing-key", Session: f.Session}.Good(),
		"padded":         good + "=",
		"padded inside":  parts[0] + "=." + parts[1] + "." + parts[2],
		"newline":        good + "\n",
		"newline inside": parts[0] + "." + parts[1] + "." + parts[2][:10] + "\r\n" + parts[2][10:],
		"blank":          " " + good,
		"blank inside":   parts[0] + ". " + parts[1] + "." + parts[2],
		"spare bits":     good[:len(good)-1] + string(next(good[len(good)-1])),
		"standard":       strings.NewReplacer("-", "+", "_", "/").Replace(f.Token(Header, f.Claims(Forever+`,"x":"???>>>~~~"`))),
		"short":          parts[0] + "." + parts[1] + "." + parts[2][:20],
		"swapped":        parts[1] + "." + parts[0] + "." + parts[2],
	}
	for name, more := range map[string]string{
		"session twice": `,"session_id":"` + f.Session + `"`, "exp twice": `,"exp":4102444801`, "escaped, twice": `,"\u0065xp":4102444801`, "iss twice": `,"iss":"sandbox-egress-control"`,
		"hosts twice": `,"allowed_hosts":"*"`, "a number for hosts": `,"allowed_host":1}{`, "comma": ",",
	} {
		tokens[name] = f.Token(Header, f.Claims(Forever+more))
	}
	const issuer, hosts = "sandbox-egress-control", `"a.test"`
	quoted := `"` + f.Session + `"`
	for name, change := range map[string][2]string{
		"issuer": {issuer, "sandbox-egress-contro1"}, "issuer in case": {issuer, "Sandbox-egress-control"}, "no issuer": {`"iss":"` + issuer + `",`, ""},
		"no session": {`"session_id":` + quoted + `,`, ""}, "empty session": {quoted, `""`}, "session is a list": {quoted, "[" + quoted + "]"}, "session is null": {quoted, "null"},
		"tenant is a list": {"null", "[]"}, "hosts are numbers": {hosts, "[1]"}, "hosts are null": {hosts, "[null]"}, "not UTF-8": {hosts, "\"\xff\""},
		"names in capitals": {claims, strings.ToUpper(claims)}, "EXP": {`"exp"`, `"EXP"`}, "trailing": {claims, claims + "{}"}, "a list": {claims, "[" + claims + "]"},
		"empty": {claims, "{}"}, "null": {claims, "null"}, "no JSON": {claims, "x"},
	} {
		tokens[name] = f.Token(Header, strings.Replace(claims, change[0], change[1], 1))
	}
	return tokens
}

// next is another character that stands for the same bytes, if spare bits are not
// looked at.
func next(c byte) byte {
	const set = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return set[strings.IndexByte(set, c)|1]
}
