package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tryCurl runs the line that the server says to try, with a key in the
// environment if one is given.
func (d *Daemon) tryCurl(key string) {
	d.t.Helper()
	cmd := exec.Command("bash", "-c", d.Curl)
	cmd.Env = append(os.Environ(), "AGENTBOX_API_KEY="+key)
	out, err := cmd.CombinedOutput()
	var sb served
	if json.Unmarshal(out, &sb) != nil || err != nil || sb.Status != "running" {
		d.t.Errorf("%s\ngives %s, %v", d.Curl, out, err)
	}
}

// TestServeSaysHowToBegin takes the server by its words: a key is shown once, and
// what is said later works, too.
func TestServeSaysHowToBegin(t *testing.T) {
	t.Parallel()
	d := StartDaemon(t)
	if strings.Count(d.Said, d.Key) != 2 || d.Key == "" { // by itself, and in the line to try
		t.Errorf("the first start says\n%s", d.Said)
	}
	d.tryCurl("")
	if code := d.Stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	d.Start()
	command := regexp.MustCompile(`(?m)^a further API key: agentbox (.*)$`).FindStringSubmatch(d.Said)
	if strings.Contains(d.Said, "abx_") || command == nil {
		t.Fatalf("the second start says\n%s", d.Said)
	}
	// In an environment that knows nothing of this server.
	out := Run(t, "/nonexistent", "", strings.Fields(command[1])...)
	key := strings.TrimSpace(out.Stdout)
	if out.Code != 0 || !strings.HasPrefix(key, "abx_") {
		t.Fatalf("%s: %+v", command[0], out)
	}
	d.tryCurl(key)
	if log := d.logs.String(); strings.Contains(log, d.Key) || strings.Contains(log, key) {
		t.Error("a key is in the log")
	}
}

// TestServeSaysHowToBeginElsewhere: also where the address is none to send
// anything to, and where the certificate is for a name that nobody told.
func TestServeSaysHowToBeginElsewhere(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	for name, args := range map[string][]string{
		"all addresses": {"--listen", "0.0.0.0:0"}, "TLS": {"--tls-cert", cert, "--tls-key", key}, "no keys": {"--no-auth"},
		"IPv6": {"--listen", "[::1]:0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			StartDaemon(t, args...).tryCurl("")
		})
	}
}

// selfSigned makes a certificate for the name agentbox.example.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agentbox.example"}, DNSNames: []string{"agentbox.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", public), write("key.pem", "PRIVATE KEY", secret)
}
