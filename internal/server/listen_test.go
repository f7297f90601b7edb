package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentbox/internal/auth"
	"agentbox/internal/server"
)

// TestF35_TwoDaemons on one data directory: the second one says so, and may
// come when the first was killed.
func TestF35_TwoDaemons(t *testing.T) {
	if os.Getenv("SERVER_TEST_LOCK") != "" {
		if _, err := server.Lock(os.Getenv("SERVER_TEST_LOCK")); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("locked\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	dir := t.TempDir() // the other process, which is killed, has none to leave behind
	cmd := exec.Command(os.Args[0], "-test.run", "^TestF35_TwoDaemons$")
	cmd.Env = append(os.Environ(), "SERVER_TEST_LOCK="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("locked\n"))
	if _, err := io.ReadFull(stdout, line); err != nil || string(line) != "locked\n" {
		t.Fatalf("the first daemon says %q, %v", line, err)
	}
	if _, err := server.Lock(dir); err == nil || !strings.Contains(err.Error(), "another daemon") || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second daemon: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	lock, err := server.Lock(dir)
	if err != nil {
		t.Fatalf("after the first was killed: %v", err)
	}
	lock.Close()
}

func TestLocalSocketFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "s")
	l, err := server.ListenLocal(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("the socket is %v, %v", info, err)
	}
	if l.Addr().String() != path {
		t.Errorf("the address is %s", l.Addr())
	}
	if _, err := server.ListenLocal(path); err == nil || !strings.Contains(err.Error(), "another daemon") {
		t.Errorf("a second daemon: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("after the end: %v", err)
	}
}

// TestF34_StaleSocket replaces what a killed daemon left, and nothing else.
func TestF34_StaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if err := os.Rename(path, path+".new"); err != nil { // killed before the socket had its name
		t.Fatal(err)
	}
	for _, from := range []string{path + ".new", path} {
		l, err := server.ListenLocal(path)
		if err != nil {
			t.Fatalf("with a stale socket at %s: %v", from, err)
		}
		if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
			t.Errorf("there are %v, %v", names, err)
		}
		if err := os.Rename(path, path+".old"); err != nil { // what Close would remove
			t.Fatal(err)
		}
		l.Close()
		if err := os.Rename(path+".old", path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func() error{
		"file":      func() error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory": func() error { return os.Mkdir(path, 0o700) },
		"link":      func() error { return os.Symlink("/dev/null", path) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if _, err := server.ListenLocal(path); err == nil || !strings.Contains(err.Error(), "move it away") {
			t.Errorf("with a %s in its place: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("the %s is gone", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := server.ListenLocal("/tmp/" + strings.Repeat("x", 200)); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("with a long path: %v", err)
	}
}

// certificate makes a pair of files for a name.
func certificate(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TestCertificateReload replaces the files of a running server, first halfway.
func TestCertificateReload(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	certFile, keyFile := certificate(t, dir, "one")
	log := &buffer{}
	cert, err := server.LoadCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, auth.Policy{NoAuth: true}, server.Options{TLS: cert.Config()})
	name := func() string {
		c, err := tls.Dial("tcp", w.tcp.String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "one" {
		t.Fatalf("the certificate is for %q", got)
	}
	newCert, newKey := certificate(t, other, "two")
	if err := os.Rename(newCert, certFile); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		if got := name(); got != "one" {
			t.Fatalf("with half of a pair the certificate is for %q", got)
		}
		return strings.Contains(log.String(), "can't be read again")
	})
	if err := os.Rename(newKey, keyFile); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return name() == "two" })
	if _, err := server.LoadCertificate(filepath.Join(dir, "none"), keyFile, nil); err == nil {
		t.Error("a certificate that isn't there is taken")
	}
}

// until waits for what must come.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}
