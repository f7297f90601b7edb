package auth_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/auth"
	"agentbox/internal/auth/authtest"
)

// TestWEB01_Pages has what a browser sends for pages of other sites, and what
// it and other clients send otherwise.
func TestWEB01_Pages(t *testing.T) {
	for name, c := range map[string]struct {
		headers []string
		want    bool
	}{
		"curl":                         {nil, true},
		"by name":                      {[]string{"Host", "localhost:8700"}, true},
		"by IPv6 address":              {[]string{"Host", "[::1]:8700"}, true},
		"other loopback address":       {[]string{"Host", "127.8.9.10"}, true},
		"mapped address":               {[]string{"Host", "[::ffff:127.0.0.1]:8700"}, true},
		"own page":                     {[]string{"Origin", "http://127.0.0.1:8700", "Sec-Fetch-Site", "same-origin"}, true},
		"typed by the user":            {[]string{"Sec-Fetch-Site", "none"}, true},
		"allowed page":                 {[]string{"Origin", "https://app.example", "Sec-Fetch-Site", "cross-site"}, true},
		"allowed page, own port named": {[]string{"Origin", "https://app.example:443"}, true},

		"rebound name":               {[]string{"Host", "evil.test:8700"}, false},
		"rebound name, same origin":  {[]string{"Host", "evil.test:8700", "Origin", "http://evil.test:8700", "Sec-Fetch-Site", "same-origin"}, false},
		"name that looks like one":   {[]string{"Host", "127.0.0.1.evil.test"}, false},
		"name that ends like one":    {[]string{"Host", "evil-localhost"}, false},
		"subdomain":                  {[]string{"Host", "a.localhost"}, false},
		"user in the host":           {[]string{"Host", "localhost@evil.test"}, false},
		"host with path":             {[]string{"Host", "localhost/evil.test"}, false},
		"no host":                    {[]string{"Host", ""}, false},
		"all interfaces":             {[]string{"Host", "0.0.0.0:8700"}, false},
		"unspecified":                {[]string{"Host", "[::]:8700"}, false},
		"number":                     {[]string{"Host", "2130706433"}, false},
		"octal":                      {[]string{"Host", "0177.0.0.1"}, false},
		"zone":                       {[]string{"Host", "[::1%25lo]:8700"}, false},
		"port that is none":          {[]string{"Host", "localhost:80x"}, false},
		"page of another site":       {[]string{"Origin", "http://evil.test"}, false},
		"null":                       {[]string{"Origin", "null"}, false},
		"origin that looks like one": {[]string{"Origin", "http://127.0.0.1.evil.test"}, false},
		"another port":               {[]string{"Origin", "http://127.0.0.1:3000"}, false},
		"another scheme's port":      {[]string{"Origin", "http://127.0.0.1:8700:443"}, false},
		"origin with path":           {[]string{"Origin", "http://127.0.0.1:8700/"}, false},
		"origin with user":           {[]string{"Origin", "http://a@127.0.0.1:8700"}, false},
		"file":                       {[]string{"Origin", "file://"}, false},
		"two origins":                {[]string{"Origin", "http://127.0.0.1:8700", "Origin", "http://evil.test"}, false},
		"two origins in one":         {[]string{"Origin", "http://127.0.0.1:8700, http://evil.test"}, false},
		"below the allowed":          {[]string{"Origin", "https://x.app.example"}, false},
		"beside the allowed":         {[]string{"Origin", "https://app.example.evil.test"}, false},
		"allowed by another scheme":  {[]string{"Origin", "http://app.example"}, false},
		"image of another site":      {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, false},
		"page of another port":       {[]string{"Sec-Fetch-Site", "same-site"}, false},
		"unknown site":               {[]string{"Sec-Fetch-Site", "none-of-yours"}, false},
		"two sites":                  {[]string{"Sec-Fetch-Site", "none", "Sec-Fetch-Site", "cross-site"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, auth.Policy{NoAuth: true, AllowOrigin: []string{"https://App.example"}})
			for _, a := range []auth.Access{auth.NeedKey, auth.NeedAdmin, auth.Open} {
				_, err := w.gate.Enter(request(c.headers...), a)
				if c.want && err != nil || !c.want && !errdefs.IsPermissionDenied(err) {
					t.Errorf("%v; want in: %v", err, c.want)
				}
			}
		})
	}
}

// TestB208_Keys: on a loopback address the server has loopback names also with
// keys, and that of a proxy in front of it when it is told.
func TestB208_Keys(t *testing.T) {
	w := newWorld(t, auth.Policy{Loopback: true, AllowOrigin: []string{"https://box.example"}})
	for host, want := range map[string]bool{
		"127.0.0.1:8700": true, "localhost": true, "[::1]:8700": true, "box.example": true, "BOX.example:443": true,
		"evil.test": false, "127.0.0.1.evil.test": false, "box.example.evil.test": false, "box.example:80": false,
	} {
		for _, a := range []auth.Access{auth.NeedKey, auth.Open} {
			if _, err := w.gate.Enter(request("Host", host, "X-API-Key", w.user), a); want && err != nil || !want && !errdefs.IsPermissionDenied(err) {
				t.Errorf("%s: %v; want in: %v", host, err, want)
			}
		}
	}
}

// TestPagesWithKeys: on another address the server may have any name, but a page
// of another origin is refused even with a good key.
func TestPagesWithKeys(t *testing.T) {
	w := newWorld(t, auth.Policy{})
	for want, headers := range map[bool][]string{
		true:  {"Host", "box.example", "Origin", "https://box.example", "X-API-Key", w.user},
		false: {"Host", "box.example", "Origin", "https://evil.test", "X-API-Key", w.user},
	} {
		if _, err := w.gate.Enter(request(headers...), auth.NeedKey); (err == nil) != want {
			t.Errorf("%v: %v", headers, err)
		}
	}
}

func TestAllowOriginRefuses(t *testing.T) {
	for _, s := range []string{"", "*", "null", "app.example", "https://*.example", "https://app.example/", "ftp://app.example", "https://", "https://a@b", "https://app.example?x", "https://a b", "https://:443"} {
		if _, err := auth.NewOrigins([]string{s}, true); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:8700": true, "[::1]:0": true, "localhost:8700": true, "127.3.2.1:1": true,
		":8700": false, "0.0.0.0:8700": false, "[::]:8700": false, "192.168.1.1:8700": false, "box:8700": false, "127.0.0.1": false, "": false,
	} {
		if got := auth.IsLoopback(address); got != want {
			t.Errorf("%q is loopback: %v", address, got)
		}
	}
}

// FuzzHostAndOrigin lets nothing in that another reading of the same headers
// would find foreign.
func FuzzHostAndOrigin(f *testing.F) {
	for _, s := range [][2]string{{"localhost:1", ""}, {"[::1]", "http://[::1]"}, {"127.0.0.1:8700", "http://127.0.0.1:8700"}, {"a", "https://app.example"}, {"[::1]:x", "null"}, {"127.0.0.1%zz", "http://%41"}} {
		f.Add(s[0], s[1])
	}
	origins, err := auth.NewOrigins(nil, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host, origin string) {
		r := &http.Request{Host: host, Header: http.Header{"Origin": {origin}}}
		if origins.Check(r) != nil {
			return
		}
		h := strings.ToLower(host)
		if !strings.HasPrefix(h, "127.") && !strings.HasPrefix(h, "localhost") && !strings.HasPrefix(h, "[") && !strings.HasPrefix(h, ":") && !strings.Contains(h, "::") && !strings.HasPrefix(h, "0") {
			t.Errorf("host %q is let in", host)
		}
		if u, err := url.Parse(origin); origin != "" && (err != nil || !strings.EqualFold(strings.TrimSuffix(strings.TrimSuffix(u.Host, ":80"), ":443"), strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443"))) {
			t.Errorf("host %q, origin %q is let in", host, origin)
		}
	})
}

// FuzzAuthorization must let nobody in and never panic.
func FuzzAuthorization(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer x", "Basic eDp5", "bearer  abx_00", "\x00", "Bearer \xff"} {
		f.Add(s, s)
	}
	gate, err := auth.NewGate(auth.NewKeyring(&authtest.Memory{}), auth.Policy{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, authorization, key string) {
		r := request()
		r.Header["Authorization"], r.Header["X-Api-Key"] = []string{authorization}, []string{key}
		if _, err := gate.Enter(r, auth.NeedKey); !errdefs.IsUnauthorized(err) {
			t.Errorf("%q, %q: %v", authorization, key, err)
		}
	})
}
