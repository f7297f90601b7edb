package image_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentbox/internal/image"
	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// keychain has one account.
type keychain struct{ host, user, password string }

func (k keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	if r.RegistryStr() != k.host {
		return authn.Anonymous, nil
	}
	return &authn.Basic{Username: k.user, Password: k.password}, nil
}

// protect asks for an account, by itself or by a token of its own service.
func protect(r *aRegistry, bearer bool) {
	r.set(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		user, password, _ := q.BasicAuth()
		good := user == "me" && password == "secret"
		if bearer {
			if q.URL.Path == "/token" {
				if !good {
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				fmt.Fprint(w, `{"token":"t0ken"}`)
				return true
			}
			good = q.Header.Get("Authorization") == "Bearer t0ken"
		}
		if good {
			return false
		}
		challenge := `Basic realm="r"`
		if bearer {
			challenge = fmt.Sprintf(`Bearer realm="%s/token",service="s"`, r.URL)
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
}

func TestPullWithLogin(t *testing.T) {
	for _, bearer := range []bool{false, true} {
		t.Run(fmt.Sprint("token ", bearer), func(t *testing.T) {
			r := newRegistry(t, httptest.NewServer)
			r.push(t, "private/a", twoLayers(t, compression.GZip))
			protect(r, bearer)
			s := open(t, t.TempDir(), agent(t, "1"))
			pull := func(k authn.Keychain) error {
				opts := anonymous()
				opts.Keychain = k
				_, err := s.Pull(t.Context(), r.host()+"/private/a", image.PullOptions{Registry: opts})
				return err
			}
			for _, k := range []authn.Keychain{authn.NewMultiKeychain(), keychain{r.host(), "me", "wrong"}} {
				if err := pull(k); !errdefs.IsUnauthorized(err) || strings.Contains(err.Error(), "wrong") {
					t.Errorf("with %v: %v", k, err)
				}
			}
			if err := pull(keychain{r.host(), "me", "secret"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Docker's configuration and its credential helpers are what people have.
func TestPullWithDockersLogin(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	r.push(t, "private/a", twoLayers(t, compression.GZip))
	protect(r, true)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	helper := "#!/bin/sh\ncat >/dev/null\nprintf '{\"ServerURL\":\"x\",\"Username\":\"me\",\"Secret\":\"secret\"}'\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-test"), []byte(helper), 0o755); err != nil {
		t.Fatal(err)
	}
	for what, config := range map[string]any{
		"password": map[string]any{"auths": map[string]any{r.host(): map[string]string{"auth": "bWU6c2VjcmV0"}}},
		"helper":   map[string]any{"credHelpers": map[string]string{r.host(): "test"}},
	} {
		t.Run(what, func(t *testing.T) {
			text, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = open(t, t.TempDir(), agent(t, "1")).Pull(t.Context(), r.host()+"/private/a", image.PullOptions{Registry: oci.RegistryOptions{Backoff: time.Millisecond}})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPullTLS(t *testing.T) {
	r := newRegistry(t, httptest.NewTLSServer)
	r.push(t, "a", twoLayers(t, compression.GZip), remote.WithTransport(r.Client().Transport))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, t.TempDir(), agent(t, "1"))
	for what, c := range map[string]struct {
		change func(*oci.RegistryOptions)
		fails  bool
	}{
		"unknown":  {func(*oci.RegistryOptions) {}, true},
		"CA file":  {func(o *oci.RegistryOptions) { o.CAFile = ca }, false},
		"insecure": {func(o *oci.RegistryOptions) { o.Insecure = []string{r.host()} }, false},
		"no CA":    {func(o *oci.RegistryOptions) { o.CAFile = "/dev/null" }, true},
	} {
		opts := anonymous()
		c.change(&opts)
		_, err := s.Pull(t.Context(), r.host()+"/a", image.PullOptions{Registry: opts})
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Plain HTTP is for this machine, or for what the operator names.
func TestPullPlainHTTP(t *testing.T) {
	r := newRegistry(t, httptest.NewServer)
	r.push(t, "a", twoLayers(t, compression.GZip))
	_, port, _ := strings.Cut(r.host(), ":")
	host := "0.0.0.0:" + port // leads here, and is no name of this machine
	s := open(t, t.TempDir(), agent(t, "1"))
	opts := anonymous()
	r.set(nil)
	if _, err := s.Pull(t.Context(), host+"/a", image.PullOptions{Registry: opts}); err == nil || len(r.requests("")) > 0 {
		t.Errorf("pulled over plain HTTP from another machine: %v, %v", err, r.requests(""))
	}
	opts.Insecure = []string{host}
	if _, err := s.Pull(t.Context(), host+"/a", image.PullOptions{Registry: opts}); err != nil {
		t.Errorf("what the operator named: %v", err)
	}
}
