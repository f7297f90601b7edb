package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateCheck is how often the files are looked at, at most.
const certificateCheck = time.Second

// Certificate is a certificate whose files may be replaced while it is in use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	stamp   string    // of the files that current is from
	checked time.Time // when they were last looked at
}

// LoadCertificate reads a certificate chain and its key, PEM. Files that are
// replaced are read again at a later handshake; as long as the new ones don't
// fit each other, the old certificate stays in use and the log says so.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, checked: time.Now()}
	stamp, err := c.stat()
	if err == nil {
		err = c.load(stamp)
	}
	if err != nil {
		return nil, fmt.Errorf("read the TLS certificate: %w", err)
	}
	return c, nil
}

// Config serves with the certificate.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.get(), nil
		},
	}
}

func (c *Certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < certificateCheck {
		return c.current
	}
	c.checked = time.Now()
	stamp, err := c.stat()
	if err == nil && stamp != c.stamp {
		if err = c.load(stamp); err == nil {
			c.log.Info("the TLS certificate was read again", "file", c.certFile)
		}
	}
	if err != nil {
		c.log.Error("the TLS certificate can't be read again; the old one stays in use", "error", err)
	}
	return c.current
}

func (c *Certificate) load(stamp string) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.current, c.stamp = &pair, stamp
	return nil
}

// stat tells one state of the files from another.
func (c *Certificate) stat() (string, error) {
	var stamp string
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		stamp += fmt.Sprint(info.ModTime().UnixNano(), " ", info.Size(), " ")
	}
	return stamp, nil
}
