package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/dns/dnsmessage"
)

// site is a host of the outside, of the name siteName, with plain HTTP and HTTPS on
// their usual ports. It has a loopback address of its own.
type site struct {
	addr netip.Addr
	ca   []byte // PEM
}

const siteName = "flows.test"

// newSite serves what clients of all kinds ask for.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{addr: netip.AddrFrom4([4]byte{127, 77, byte(mathrand.IntN(256)), byte(1 + mathrand.IntN(254))})}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") })
	mux.HandleFunc("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d bytes\n", n)
	})
	acked := make(chan struct{})
	var once sync.Once
	mux.HandleFunc("/ack", func(http.ResponseWriter, *http.Request) { once.Do(func() { close(acked) }) })
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		select { // the client has the first one before there is a second
		case <-acked:
			fmt.Fprint(w, "data: second\n\n")
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		kind, text, err := c.Read(r.Context())
		if err == nil && c.Write(r.Context(), kind, text) == nil {
			_, _, _ = c.Read(r.Context()) // until it closes
		}
	})
	mux.Handle("/repo.git/", http.FileServer(http.Dir(newRepository(t))))
	for _, port := range []string{"80", "443"} {
		l, err := net.Listen("tcp4", net.JoinHostPort(s.addr.String(), port))
		Need(t, err == nil, fmt.Sprintf("the ports 80 and 443 of an address of the loopback interface: %v", err))
		srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}}
		if port == "80" {
			srv.Start()
		} else {
			srv.TLS = s.certificate(t)
			srv.StartTLS()
		}
		t.Cleanup(func() {
			srv.CloseClientConnections()
			srv.Close()
		})
	}
	return s
}

// certificate makes the site's, by an authority of its own.
func (s *site) certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "flows test CA"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(root); err != nil { // with the id of its key
		t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: siteName}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: []string{siteName}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root})
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}

// newRepository is a directory with repo.git, as web servers without git have it.
func newRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `git init -q w && cd w && echo cloned >f && git add f && git -c user.name=t -c user.email=t@t.test commit -qm f && cd .. &&
		git clone -q --bare w repo.git && git -C repo.git update-server-info`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	Need(t, err == nil, fmt.Sprintf("git: %v: %s", err, out))
	return dir
}

// bundle is a file with this machine's authorities and the site's.
func (s *site) bundle(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	Need(t, err == nil, fmt.Sprintf("a bundle of authorities: %v", err))
	path := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(path, append(text, s.ca...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// nameServer knows the site, and the package registries as this machine does. It
// notes what it is asked for.
type nameServer struct {
	net.PacketConn
	site       *site
	registries map[string][]netip.Addr

	mu    sync.Mutex
	asked []string
}

// newNameServer fails, or skips the test, on a machine that does not reach the
// registries.
func newNameServer(t *testing.T, s *site, registries ...string) *nameServer {
	t.Helper()
	n := &nameServer{site: s, registries: map[string][]netip.Addr{}}
	for _, host := range registries {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
		cancel()
		if err != nil {
			t.Skipf("this machine does not reach the package registries: %v", err)
		}
		for _, a := range addrs {
			n.registries[host] = append(n.registries[host], a.Unmap())
		}
	}
	var err error
	if n.PacketConn, err = net.ListenPacket("udp4", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.serve()
	}()
	t.Cleanup(func() {
		_ = n.Close()
		<-done
	})
	return n
}

// args let a server's sandboxes reach the site and the registries.
func (n *nameServer) args(t *testing.T) []string {
	all := []string{"--egress-resolver", n.LocalAddr().String(), "--egress-allow-ranges", netip.PrefixFrom(n.site.addr, 32).String(), "--egress-ca-bundle", n.site.bundle(t)}
	for _, addrs := range n.registries {
		for _, a := range addrs {
			all = append(all, "--egress-allow-ranges", netip.PrefixFrom(a, 32).String())
		}
	}
	return all
}

func (n *nameServer) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		q := m.Questions[0]
		name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
		n.mu.Lock()
		n.asked = append(n.asked, name)
		n.mu.Unlock()
		addrs := n.registries[name]
		if name == siteName {
			addrs = []netip.Addr{n.site.addr}
		}
		if addrs == nil {
			m.RCode = dnsmessage.RCodeNameError
		}
		for _, a := range addrs {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: a.As4()}})
			}
		}
		if out, err := m.Pack(); err == nil {
			_, _ = n.WriteTo(out, from)
		}
	}
}

// wasAsked reports whether the server was asked for a name, and forgets all.
func (n *nameServer) wasAsked(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := slices.Contains(n.asked, name)
	n.asked = nil
	return found
}
