package mint_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentbox/internal/egress"
	"agentbox/internal/egress/mint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func session(t *testing.T, sandbox string) *egress.Session {
	s := egress.NewSession(egress.SessionOptions{Sandbox: sandbox})
	t.Cleanup(s.Close)
	return s
}

func roots(t *testing.T, m *mint.Mint, sandbox string) (*x509.CertPool, *x509.Certificate) {
	t.Helper()
	der, err := m.Authority(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool, cert
}

func leaf(t *testing.T, m *mint.Mint, s *egress.Session, host string) *tls.Certificate {
	t.Helper()
	c, err := m.Certificate(s, host)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A certificate is good for its host in its sandbox, and nothing else; after a
// restart the authority is what it was.
func TestSandboxesHaveTheirOwn(t *testing.T) {
	m := mint.New(bytes.Repeat([]byte{1}, 32))
	a, b := session(t, "a"), session(t, "b")
	rootsA, caA := roots(t, m, "a")
	rootsB, _ := roots(t, m, "b")
	for _, host := range []string{"allowed.test", "192.0.2.1", "2001:db8::1", "with_underscore.test"} {
		ca, cb := leaf(t, m, a, host), leaf(t, m, b, host)
		name := host
		if net.ParseIP(host) != nil {
			name = "[" + host + "]"
		}
		if _, err := ca.Leaf.Verify(x509.VerifyOptions{Roots: rootsA, DNSName: name}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		for what, err := range map[string]error{
			"another sandbox's": verify(cb, rootsA, name), "in another sandbox": verify(ca, rootsB, name), "another name": verify(ca, rootsA, "other.test"),
		} {
			if err == nil {
				t.Errorf("%s: %s is taken", host, what)
			}
		}
		if left := time.Until(ca.Leaf.NotAfter); left < time.Hour || left > 25*time.Hour || ca.Leaf.IsCA {
			t.Errorf("%s: it is good for %v more, is an authority: %v", host, left, ca.Leaf.IsCA)
		}
	}
	again := mint.New(bytes.Repeat([]byte{1}, 32))
	_, caAgain := roots(t, again, "a")
	if !bytes.Equal(caA.Raw, caAgain.Raw) || verify(leaf(t, again, a, "x.test"), rootsA, "x.test") != nil {
		t.Error("after a restart the authority is another one")
	}
	_, other := roots(t, mint.New(bytes.Repeat([]byte{2}, 32)), "a")
	if caA.PublicKey.(*ecdsa.PublicKey).Equal(other.PublicKey) {
		t.Error("it does not depend on the secret")
	}
	if one, two := leaf(t, m, a, "allowed.test"), leaf(t, m, a, "allowed.test"); one != two {
		t.Error("a certificate is made anew for each connection")
	}
	if x, y := leaf(t, m, a, "x.test"), leaf(t, again, a, "x.test"); x.Leaf.SerialNumber.Cmp(y.Leaf.SerialNumber) == 0 {
		t.Error("two certificates have the same number")
	}
	// An authority that signs for hosts signs for no other authority.
	if !caA.MaxPathLenZero || caA.KeyUsage != x509.KeyUsageCertSign {
		t.Errorf("it may do more than it must: %+v", caA.KeyUsage)
	}
}

func verify(c *tls.Certificate, roots *x509.CertPool, name string) error {
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
	return err
}

// TestFlood: however many names and sandboxes come, what is kept is bounded, and
// every certificate is good.
func TestFlood(t *testing.T) {
	m := mint.New(make([]byte, 32))
	heap := func() int64 {
		var s runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	s := session(t, "flooder")
	pool, _ := roots(t, m, "flooder")
	before := heap()
	var tasks sync.WaitGroup
	for g := range 4 {
		tasks.Go(func() {
			for i := range 150 {
				host := fmt.Sprintf("h%d.g%d.test", i, g)
				c, err := m.Certificate(s, host)
				if err != nil || i%10 == 0 && verify(c, pool, host) != nil {
					t.Errorf("%s: %v", host, err)
				}
			}
		})
	}
	tasks.Wait()
	// 64 are kept, of 4 KB at most.
	if grown := heap() - before; grown > 64*4<<10+256<<10 {
		t.Errorf("600 names of a sandbox keep %d bytes", grown)
	}
	before = heap()
	for i := range 600 {
		if _, err := m.Authority(fmt.Sprint("sandbox", i)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > 256*4<<10+256<<10 {
		t.Errorf("600 sandboxes keep %d bytes", grown)
	}
	runtime.KeepAlive(m)
}

// TestHandshake: clients take it, by name and by address.
func TestHandshake(t *testing.T) {
	m := mint.New(make([]byte, 32))
	s := session(t, "a")
	pool, _ := roots(t, m, "a")
	for _, host := range []string{"allowed.test", "192.0.2.1"} {
		near, far := net.Pipe()
		done := make(chan error, 1)
		go func() {
			c := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{*leaf(t, m, s, host)}})
			done <- c.HandshakeContext(context.Background())
		}()
		err := tls.Client(near, &tls.Config{ServerName: host, RootCAs: pool}).Handshake()
		if err := errors.Join(err, <-done); err != nil {
			t.Errorf("%s: %v", host, err)
		}
		near.Close()
		far.Close()
	}
}

// TestKeyFile: it is made once, for its owner only, and what is no key is refused.
func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var all sync.Map
	var tasks sync.WaitGroup
	for range 8 {
		tasks.Go(func() {
			m, err := mint.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			der, _ := m.Authority("a")
			all.Store(string(der), true)
		})
	}
	tasks.Wait()
	n := 0
	all.Range(func(any, any) bool { n++; return true })
	i, err := os.Stat(path)
	if n != 1 || err != nil || i.Mode().Perm() != 0o600 || i.Size() != 32 {
		t.Errorf("%d keys; the file is %v, %v", n, i, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := mint.Open(path); err == nil {
		t.Error("a key that everybody may read is taken")
	}
	for _, content := range []string{"", "short", string(make([]byte, 33))} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(path, 0o600)
		if _, err := mint.Open(path); err == nil {
			t.Errorf("%d bytes are a key", len(content))
		}
	}
	if _, err := mint.Open(filepath.Join(dir, "missing", "key")); err == nil {
		t.Error("a key without a directory")
	}
}
