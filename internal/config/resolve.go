package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"agentbox/internal/cabundle"
	"agentbox/internal/sandbox"
)

// resolve fills in what depends on the machine and other values, and checks
// values against each other.
func (l *Loaded) resolve(from origin) error {
	def, err := DefaultDataDir()
	if l.DataDir == "" {
		if err != nil {
			return err
		}
		l.DataDir = def
	}
	if l.DataDir, err = filepath.Abs(l.DataDir); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	if l.Socket == "" {
		l.Socket = defaultSocket(l.DataDir, def)
	}
	return l.check(from)
}

func (l *Loaded) check(from origin) error {
	errs := []error{from.of("listen", checkAddress("listen", l.Listen))}
	if l.MetricsListen != "" {
		errs = append(errs, from.of("metrics_listen", checkAddress("metrics_listen", l.MetricsListen)))
	}
	if g := l.GRPC.Listen; g != ListenAuto && g != ListenNone {
		errs = append(errs, from.of("grpc.listen", checkAddress("grpc.listen", g)))
	}
	if (l.TLS.Cert == "") != (l.TLS.Key == "") {
		errs = append(errs, errors.New("tls.cert and tls.key belong together: set both or none"))
	}
	if l.NoAuth && l.Autocoder.AuthEnabled {
		errs = append(errs, errors.New("no_auth and autocoder.auth_enabled exclude each other: without authentication a password keeps nobody out"))
	}
	for _, p := range []struct{ key, path string }{{"storage", l.Storage}, {"tls.cert", l.TLS.Cert}, {"tls.key", l.TLS.Key}, {"socket", l.Socket}} {
		if p.path != "" && !filepath.IsAbs(p.path) {
			errs = append(errs, from.of(p.key, &sandbox.InvalidError{Field: p.key, Value: p.path, Allowed: "an absolute path"}))
		}
	}
	errs = append(errs, from.of("egress.ca_bundle", cabundle.Check("egress.ca_bundle", l.Egress.CABundle)))
	for _, e := range l.RateLimit.Exempt {
		if _, err := ParseNetwork("rate_limit.exempt", e); err != nil {
			errs = append(errs, from.of("rate_limit.exempt", err))
		}
	}
	for _, r := range l.Egress.AllowRanges {
		if _, err := ParseNetwork("egress.allow_ranges", r); err != nil {
			errs = append(errs, from.of("egress.allow_ranges", err))
		}
	}
	if _, err := ParseResolver(l.Egress.Resolver); err != nil {
		errs = append(errs, from.of("egress.resolver", err))
	}
	errs = append(errs, l.checkProxy(from)...)
	return errors.Join(errs...)
}

// ParseResolver reads egress.resolver: an address, with or without a port. Empty is
// the zero address: no server of its own.
func ParseResolver(s string) (netip.AddrPort, error) {
	if s == "" {
		return netip.AddrPort{}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.AddrPortFrom(a, dnsPort), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 {
		return netip.AddrPort{}, &sandbox.InvalidError{Field: "egress.resolver", Value: s, Allowed: "an address such as 192.0.2.53, [2001:db8::53]:53 or 192.0.2.53:5353"}
	}
	return at, nil
}

// dnsPort is where servers for names wait (RFC 1035, section 4.2).
const dnsPort = 53

func checkAddress(key, s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return &sandbox.InvalidError{Field: key, Value: s, Allowed: "an address and a port such as 127.0.0.1:8700"}
	}
	return nil
}

// ParseNetwork reads an entry of a key's list: an address or a network.
func ParseNetwork(key, s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, &sandbox.InvalidError{Field: key, Value: s, Allowed: "addresses and networks such as 10.0.0.0/8"}
	}
	return p.Masked(), nil
}

// DefaultDataDir is where agentbox keeps its things when nobody says.
func DefaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/agentbox", nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "agentbox"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no home directory: name a data directory with --data-dir")
	}
	return filepath.Join(home, ".local", "share", "agentbox"), nil
}

// DefaultFile is the file to read when no flag names one: the one that
// AGENTBOX_CONFIG names, which must be there, or else
// /etc/agentbox/config.toml, for an ordinary user
// $XDG_CONFIG_HOME/agentbox/config.toml, if there is one. "" is none.
func DefaultFile(env func(name string) (string, bool)) string {
	if path, ok := env("AGENTBOX_CONFIG"); ok && path != "" {
		return path
	}
	path := "/etc/agentbox/config.toml"
	if os.Geteuid() != 0 {
		dir, err := os.UserConfigDir()
		if err != nil {
			return ""
		}
		path = filepath.Join(dir, "agentbox", "config.toml")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// defaultSocket lies where clients look first, but only one daemon can have
// that place: another data directory has its own.
func defaultSocket(dataDir, defaultDir string) string {
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	switch {
	case dataDir != defaultDir:
		return filepath.Join(dataDir, "agentbox.sock")
	case os.Geteuid() == 0:
		return "/run/agentbox/agentbox.sock"
	case filepath.IsAbs(runtime):
		return filepath.Join(runtime, "agentbox.sock")
	default:
		return filepath.Join(dataDir, "agentbox.sock")
	}
}
