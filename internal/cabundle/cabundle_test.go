package cabundle_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentbox/internal/cabundle"
)

func certificate(t *testing.T, serial int64, extra int) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{strings.Repeat("x", extra) + ".test"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A bundle has certificates, each once, and whatever text is between them; what
// else is in it is refused by name.
func TestLoad(t *testing.T) {
	a, b := certificate(t, 1, 1), certificate(t, 2, 1)
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, []byte("\n# text\n")) }
	for name, c := range map[string]struct {
		text []byte
		n    int
		want string
	}{
		"two":       {text: join(a, b), n: 2},
		"twice":     {text: join(a, b, a), n: 2},
		"a key":     {text: join(a, key), want: "block 2 is a EC PRIVATE KEY"},
		"broken":    {text: join(a, broken), want: "block 2"},
		"empty":     {want: "no certificate"},
		"no PEM":    {text: []byte("hello"), want: "no certificate"},
		"too long":  {text: bytes.Repeat([]byte("#"), 3<<20), want: "more than"},
		"too large": {text: join(certificate(t, 3, 300<<10), certificate(t, 4, 300<<10)), want: "more than"},
	} {
		path := filepath.Join(t.TempDir(), "bundle.pem")
		if err := os.WriteFile(path, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		certs, err := cabundle.Load("egress.ca_bundle", path)
		switch {
		case c.want == "" && (err != nil || len(certs) != c.n):
			t.Errorf("%s: %d, %v", name, len(certs), err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), "egress.ca_bundle") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadWhere(t *testing.T) {
	if certs, err := cabundle.Load("f", ""); certs != nil || err != nil {
		t.Errorf("none: %v, %v", certs, err)
	}
	dir := t.TempDir()
	for _, where := range []string{"relative.pem", dir, filepath.Join(dir, "missing"), os.DevNull} {
		if _, err := cabundle.Load("f", where); err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "invalid "), "f") {
			t.Errorf("%s: %v", where, err)
		}
	}
	path := filepath.Join(dir, "system.pem")
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})
	if err := os.WriteFile(path, append(certificate(t, 1, 1), broken...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", path)
	certs, err := cabundle.Load("f", cabundle.System)
	if err != nil || len(certs) != 1 || !bytes.Equal(cabundle.Raw(certs)[0], certs[0].Raw) {
		t.Errorf("the system's: %d, %v", len(certs), err)
	}
}
