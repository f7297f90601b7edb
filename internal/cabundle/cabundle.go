// Package cabundle reads bundles of certificates of authorities that an operator
// gives to sandboxes.
package cabundle

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"agentbox/internal/sandbox"
)

// System stands for the machine's own bundle in the place of a path.
const System = "system"

// Bounds of a bundle. Those of distributions have about 150 certificates in
// 220 KB; each sandbox is sent one when it starts.
const (
	maxFile  = 2 << 20
	maxCerts = 500
	maxBytes = 512 << 10 // of the certificates, without their encoding as text
)

// systemFiles are where distributions keep the bundle.
var systemFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Ubuntu, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",             // SUSE
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/cert.pem",
}

// forms are what a setting may be, for people.
const forms = `the absolute path of a PEM file with certificates, or "` + System + `" for this machine's own`

// Check refuses what is neither a path nor System. Field names the setting in
// errors, which are *sandbox.InvalidError.
func Check(field, where string) error {
	if where == "" || where == System || filepath.IsAbs(where) {
		return nil
	}
	return &sandbox.InvalidError{Field: field, Value: where, Allowed: forms}
}

// Load reads the bundle at a path, or System; "" is none. Each certificate is in
// it once. Field names the setting in errors.
func Load(field, where string) ([]*x509.Certificate, error) {
	if where == "" {
		return nil, nil
	}
	if err := Check(field, where); err != nil {
		return nil, err
	}
	path, lenient := where, false
	if where == System {
		if path = systemFile(); path == "" {
			return nil, fmt.Errorf("%s: this machine has no bundle in a known place; name its file", field)
		}
		lenient = true // it may have old ones that this program can't read
	}
	text, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("%s: read the bundle: %w", field, err)
	}
	certs, err := parse(text, lenient)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w", field, path, err)
	}
	return certs, nil
}

func systemFile() string {
	for _, path := range append([]string{os.Getenv("SSL_CERT_FILE")}, systemFiles...) {
		if i, err := os.Stat(path); err == nil && i.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

func read(path string) ([]byte, error) {
	i, err := os.Stat(path)
	if err == nil && !i.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return text, err
}

// parse reads a text with certificates in it and nothing else. If it is lenient it
// leaves out those that can't be read.
func parse(text []byte, lenient bool) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	seen, size := map[string]bool{}, 0
	for n := 1; ; n++ {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case lenient && err != nil:
			continue
		case block.Type != "CERTIFICATE":
			return nil, fmt.Errorf("block %d is a %s; only certificates may be in it", n, block.Type)
		case err != nil:
			return nil, fmt.Errorf("block %d: %w", n, err)
		case seen[string(cert.Raw)]:
			continue
		}
		seen[string(cert.Raw)] = true
		certs, size = append(certs, cert), size+len(cert.Raw)
		if len(certs) > maxCerts || size > maxBytes {
			return nil, fmt.Errorf("there are more than %d certificates, or more than %d bytes of them", maxCerts, maxBytes)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("there is no certificate in it; they are written in PEM")
	}
	return certs, nil
}

// Raw are the certificates as sandboxes are sent them.
func Raw(certs []*x509.Certificate) [][]byte {
	raw := make([][]byte, 0, len(certs))
	for _, c := range certs {
		raw = append(raw, c.Raw)
	}
	return raw
}
