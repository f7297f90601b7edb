package mint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"agentbox/internal/keyfile"
)

type signer = *ecdsa.PrivateKey

// The life of an authority. It is a fixed one, since its certificate is to be the
// same each time it is made; what it signs lives for a day.
var (
	authorityBegin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	authorityEnd   = time.Date(2049, 12, 31, 0, 0, 0, 0, time.UTC) // the last whole year of the short form of dates
)

// newAuthority derives key and certificate.
func newAuthority(secret []byte, sandbox string) (*authority, error) {
	key, err := deriveKey(secret, sandbox)
	if err != nil {
		return nil, err
	}
	serial, err := hkdf.Key(sha256.New, secret, nil, "agentbox interception serial v1 "+sandbox, 16)
	if err != nil {
		return nil, err
	}
	serial[0] = serial[0]&0x7f | 0x40 // positive, and always as long
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{Organization: []string{"agentbox"}, CommonName: "agentbox sandbox " + sandbox},
		NotBefore:    authorityBegin, NotAfter: authorityEnd,
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, // it signs for hosts, not for other authorities
	}
	// Without randomness the signature is the deterministic one (RFC 6979).
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a := &authority{cert: cert, key: key}
	a.leaves, _ = simplelru.NewLRU[string, *tls.Certificate](maxLeaves, nil) // fails for no size only
	return a, nil
}

// deriveKey takes the first number that is a key of the curve: one in 2³² is none.
func deriveKey(secret []byte, sandbox string) (key signer, err error) {
	const tries = 8
	for n := range tries {
		var number []byte
		number, err = hkdf.Key(sha256.New, secret, nil, "agentbox interception key v1 "+strconv.Itoa(n)+" "+sandbox, keyfile.Size)
		if err != nil {
			return nil, err
		}
		if key, err = ecdsa.ParseRawPrivateKey(elliptic.P256(), number); err == nil {
			return key, nil
		}
	}
	return nil, err
}

// leaf makes the certificate of a host, a name or an address.
func (a *authority) leaf(host string, now time.Time) (*tls.Certificate, error) {
	if host == "" {
		return nil, errors.New("it has no name")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{ // its number is random
		Subject:   pkix.Name{Organization: []string{"agentbox"}, CommonName: "intercepted by agentbox"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
