//go:build linux

package pid1

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// trust keeps certificates that the host gives in the sandbox's trust stores,
// beside those of the image. Most programs read the system's bundle; those with
// stores of their own are led there by the environment.
//
// Paths are followed through no link, so what is changed is what is named here.
type trust struct {
	root string // before all paths; empty but for tests

	mu     sync.Mutex
	held   [sha256.Size]byte // of the certificates that the stores have; zero: not known
	bundle string            // the system's, with those that were given; empty: none were
	added  string            // those that were given alone
}

// stores are where systems have the bundle that programs read, and where their
// tools take additions from when they make it anew.
var stores = []struct{ bundle, additions string }{
	{"/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates"},                        // Debian, Ubuntu, Alpine
	{"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/ca-trust/source/anchors"},         // Fedora, RHEL
	{"/etc/ca-certificates/extracted/tls-ca-bundle.pem", "/etc/ca-certificates/trust-source/anchors"}, // Arch
	{"/var/lib/ca-certificates/ca-bundle.pem", "/etc/pki/trust/anchors"},                              // SUSE
}

const (
	addition  = "agentbox.crt" // the certificates that were given
	javaStore = "/run/agentbox/cacerts.jks"
	// maxBundle is far more than a system's bundle has.
	maxBundle = 8 << 20

	trustBegin = "# agentbox begin: certificates that the sandbox was given\n"
	trustEnd   = "# agentbox end\n"
)

// give puts certificates into the stores, in place of those that were given before.
func (t *trust) give(certs [][]byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := sumOf(certs)
	if sum == t.held {
		return nil
	}
	store := stores[0] // of systems that have none
	for _, s := range stores {
		if t.is(s.bundle, unix.S_IFREG) {
			store = s
			break
		}
	}
	added := path.Join(store.additions, addition)
	t.held, t.bundle, t.added = [sha256.Size]byte{}, "", ""
	if len(certs) == 0 && !t.is(added, unix.S_IFREG) {
		t.held = sum
		return nil // nor did any agent before this one
	}
	if err := t.put(store.bundle, added, certs); err != nil {
		return fmt.Errorf("give the sandbox's programs certificates to trust: %w", err)
	}
	t.held = sum
	if len(certs) > 0 {
		t.bundle, t.added = store.bundle, added
	}
	return nil
}

func sumOf(certs [][]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range certs {
		one := sha256.Sum256(c)
		h.Write(one[:])
	}
	h.Sum(sum[:0])
	return sum
}

// put writes the stores.
func (t *trust) put(bundle, added string, certs [][]byte) error {
	have, err := t.read(bundle)
	if err != nil {
		return err
	}
	own := withoutBlock(have)
	all := certificates(own)
	known := map[string]bool{}
	for _, c := range all {
		known[string(c)] = true
	}
	var fresh [][]byte
	for _, c := range certs {
		if !known[string(c)] {
			fresh = append(fresh, c)
		}
	}
	if want := withBlock(own, fresh); !bytes.Equal(have, want) {
		err = t.write(bundle, want)
	}
	if len(certs) == 0 {
		return errors.Join(err, t.remove(added), t.remove(javaStore))
	}
	return errors.Join(err, t.write(added, encode(certs)), t.write(javaStore, keyStore(append(all, fresh...))))
}

// bundles are the variables by which programs with a store of their own are led to
// the system's. Which of them counts for a program is not the same everywhere: one
// is left out if a command was given another that the same programs read.
var bundles = []struct {
	name   string
	others []string
}{
	{"SSL_CERT_FILE", nil},
	{"CURL_CA_BUNDLE", []string{"SSL_CERT_FILE"}},
	{"REQUESTS_CA_BUNDLE", []string{"CURL_CA_BUNDLE"}},
	{"PIP_CERT", []string{"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}},
	{"GIT_SSL_CAINFO", nil},
	{"CARGO_HTTP_CAINFO", nil},
	{"AWS_CA_BUNDLE", []string{"REQUESTS_CA_BUNDLE"}},
}

// env are the variables that lead programs to the stores, and an option for Java,
// or neither. Node and Deno take certificates beside their own. asked is what a
// command was given.
func (t *trust) env(asked []string) (vars []string, java string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bundle == "" {
		return nil, ""
	}
	for _, b := range bundles {
		if !slices.ContainsFunc(b.others, func(name string) bool { return valueOf(asked, name) != "" }) {
			vars = append(vars, b.name+"="+t.bundle)
		}
	}
	return append(vars, "NODE_EXTRA_CA_CERTS="+t.added, "DENO_CERT="+t.added), "-Djavax.net.ssl.trustStore=" + javaStore
}

// withoutBlock is a bundle without what was added to it.
func withoutBlock(text []byte) []byte {
	before, rest, ok := bytes.Cut(text, []byte(trustBegin))
	if !ok {
		return text
	}
	_, after, ok := bytes.Cut(rest, []byte(trustEnd))
	if !ok {
		return text // somebody changed it
	}
	return append(bytes.Clone(before), after...)
}

func withBlock(text []byte, certs [][]byte) []byte {
	if len(certs) == 0 {
		return text
	}
	text = bytes.Clone(text)
	if n := len(text); n > 0 && text[n-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, trustBegin...)
	text = append(text, encode(certs)...)
	return append(text, trustEnd...)
}

func encode(certs [][]byte) []byte {
	var b bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c}) // a buffer takes it
	}
	return b.Bytes()
}

func certificates(text []byte) [][]byte {
	var all [][]byte
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type == "CERTIFICATE" {
			all = append(all, block.Bytes)
		}
	}
}

// is reports whether a path, its end included, leads through no link to a file of
// a type.
func (t *trust) is(p string, kind uint32) bool {
	fd, err := t.open(unix.AT_FDCWD, t.root+p, unix.O_PATH, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind
}

func (*trust) open(dir int, p string, flags uint64, mode uint32) (fd int, err error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Mode: uint64(mode), Resolve: unix.RESOLVE_NO_SYMLINKS}
	err = retry(func() error {
		fd, err = unix.Openat2(dir, p, &how)
		return err
	})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: p, Err: err}
	}
	return fd, nil
}

// read is a file's content; that of a missing one is empty.
func (t *trust) read(p string) ([]byte, error) {
	fd, err := t.open(unix.AT_FDCWD, t.root+p, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), p)
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !i.Mode().IsRegular() || i.Size() > maxBundle {
		return nil, fmt.Errorf("%s is no regular file of at most %d bytes", p, maxBundle)
	}
	return readBounded(f, maxBundle)
}

// write puts a whole file in the place of one that is there.
func (t *trust) write(p string, content []byte) error {
	dir, err := t.dir(path.Dir(p))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	temp := "." + path.Base(p) + ".agentbox"
	_ = unix.Unlinkat(dir, temp, 0) // of one that was ended in the middle
	fd, err := t.open(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), p)
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = unix.Renameat(dir, temp, dir, path.Base(p))
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0)
		return fmt.Errorf("write %s: %w", p, err)
	}
	return nil
}

// dir opens a directory, which is made if it is not there.
func (t *trust) dir(p string) (int, error) {
	fd, err := t.open(unix.AT_FDCWD, t.root+p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if !errors.Is(err, unix.ENOENT) || p == "/" {
		return fd, err
	}
	above, err := t.dir(path.Dir(p))
	if err != nil {
		return -1, err
	}
	defer unix.Close(above)
	if err := unix.Mkdirat(above, path.Base(p), 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, &os.PathError{Op: "mkdir", Path: p, Err: err}
	}
	return t.open(above, path.Base(p), unix.O_PATH|unix.O_DIRECTORY, 0)
}

func (t *trust) remove(p string) error {
	dir, err := t.open(unix.AT_FDCWD, t.root+path.Dir(p), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		defer unix.Close(dir)
		err = unix.Unlinkat(dir, path.Base(p), 0)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
