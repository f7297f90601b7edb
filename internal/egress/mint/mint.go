package mint

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"agentbox/internal/egress"
)

// Bounds of what is kept. A certificate with its key takes some 2 KB, and a new one
// a fraction of a millisecond, so forgetting costs little.
const (
	maxAuthorities = 256 // sandboxes that intercepted connections last
	maxLeaves      = 64  // certificates of each
)

const (
	// validity of a certificate; another is made when half of it is over, so that no
	// client sees it end.
	validity = 24 * time.Hour
	// skew is how far behind the clock of a sandbox may be.
	skew = time.Hour
)

// Mint makes certificates. Any number of goroutines may use it.
type Mint struct {
	secret []byte
	now    func() time.Time

	mu          sync.Mutex
	authorities *simplelru.LRU[string, *authority] // by sandbox
}

// New makes one with a secret of at least 32 random bytes.
func New(secret []byte) *Mint {
	m := &Mint{secret: secret, now: time.Now}
	m.authorities, _ = simplelru.NewLRU[string, *authority](maxAuthorities, nil) // fails for no size only
	return m
}

// authority signs for one sandbox.
type authority struct {
	cert *x509.Certificate
	key  signer

	mu     sync.Mutex
	leaves *simplelru.LRU[string, *tls.Certificate] // by host
}

// Authority is the certificate, DER, that programs in a sandbox must trust. It is
// always the same.
func (m *Mint) Authority(sandbox string) ([]byte, error) {
	a, err := m.authority(sandbox)
	if err != nil {
		return nil, err
	}
	return a.cert.Raw, nil
}

// Certificate implements [egress.Interceptor].
func (m *Mint) Certificate(s *egress.Session, host string) (*tls.Certificate, error) {
	a, err := m.authority(s.Sandbox())
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := m.now()
	// The clock may also have been set back.
	if leaf, ok := a.leaves.Get(host); ok && now.Add(validity/2).Before(leaf.Leaf.NotAfter) && !now.Before(leaf.Leaf.NotBefore) {
		return leaf, nil
	}
	leaf, err := a.leaf(host, now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %.255q: %w", host, err)
	}
	a.leaves.Add(host, leaf)
	return leaf, nil
}

func (m *Mint) authority(sandbox string) (*authority, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := m.authorities.Get(sandbox); ok {
		return a, nil
	}
	a, err := newAuthority(m.secret, sandbox)
	if err != nil {
		return nil, fmt.Errorf("make the authority of a sandbox: %w", err)
	}
	m.authorities.Add(sandbox, a)
	return a, nil
}
