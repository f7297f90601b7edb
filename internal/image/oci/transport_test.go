package oci

import (
	"errors"
	"net/http"
	"testing"
)

// used is a transport that says that it was used.
type used struct{ err error }

func (u used) RoundTrip(*http.Request) (*http.Response, error) { return nil, u.err }

// A redirect or a token service may point anywhere; plain HTTP does not follow.
func TestGuard(t *testing.T) {
	verified, unverified := errors.New("verified"), errors.New("unverified")
	for _, c := range []struct {
		url      string
		loopback bool
		want     error
	}{
		{"https://registry.example/v2/", false, verified},
		{"http://registry.example/v2/", false, errPlain},
		{"http://registry.example/v2/", true, errPlain},
		{"http://10.0.0.1/v2/", false, errPlain},
		{"http://host.local/v2/", false, errPlain},
		{"http://127.0.0.1:5000/v2/", false, errPlain}, // another registry points here
		{"http://127.0.0.1:5000/v2/", true, verified},
		{"http://[::1]:5000/v2/", true, verified},
		{"http://localhost/v2/", true, verified},
		{"http://localhost.example/v2/", true, errPlain},
		{"http://named.example:80/v2/", false, unverified},
		{"https://named.example:80/v2/", false, unverified},
		{"http://named.example/v2/", false, errPlain},
		{"ftp://registry.example/", false, errPlain},
	} {
		g := &guard{next: used{verified}, unverified: used{unverified}, insecure: []string{"named.example:80"}, loopback: c.loopback}
		req, err := http.NewRequest(http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.RoundTrip(req); !errors.Is(err, c.want) {
			t.Errorf("%s, loopback %v: %v, want %v", c.url, c.loopback, err, c.want)
		}
	}
}
