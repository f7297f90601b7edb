package policy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// requests are those that an entry allows.
type requests struct {
	scheme  string   // "": both
	methods []string // nil: all
	path    string   // decoded
	prefix  bool     // path is only how it begins
}

// shortestMethod is GET's and PUT's length. Methods are not a closed list, but a
// typing error such as "a b" is none.
const shortestMethod = 3

// parseRequests reads an entry that has methods, and what is behind them. It
// gives the host that is left.
func parseRequests(methods, rest string) (r *requests, host string, err error) {
	r = &requests{path: "/", prefix: true}
	if methods != "*" {
		for m := range strings.SplitSeq(methods, ",") {
			if len(m) < shortestMethod || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || m == "CONNECT" {
				return nil, "", fmt.Errorf("%.16q is no method of a request; they stand in capitals, with commas and without spaces between them", m)
			}
			r.methods = append(r.methods, m)
		}
	}
	for _, scheme := range []string{"http", "https"} {
		if after, ok := strings.CutPrefix(rest, scheme+"://"); ok {
			r.scheme, rest = scheme, after
		}
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return r, rest, nil
	}
	host, rest = rest[:slash], rest[slash:]
	path, prefix := strings.CutSuffix(rest, "*")
	decoded, ok := decodePath(path)
	if !ok || strings.ContainsAny(path, "? ") || strings.Contains(decoded, "*") {
		return nil, "", errors.New("its path has dots that go up, a second *, a question mark or something that servers read in different ways")
	}
	r.path, r.prefix = decoded, prefix
	return r, host, nil
}

// text is the entry for a host.
func (r *requests) text(host string) string {
	methods, scheme, path := "*", "", (&url.URL{Path: r.path}).EscapedPath()
	if r.methods != nil {
		methods = strings.Join(r.methods, ",")
	}
	if r.scheme != "" {
		scheme = r.scheme + "://"
	}
	if r.prefix {
		path += "*"
	}
	return methods + " " + scheme + host + path
}

// overTLS reports whether any of them go over TLS.
func (r *requests) overTLS() bool { return r != nil && r.scheme != "http" }

// match reports whether a request is one of them.
func (r *requests) match(scheme, method, path string) bool {
	switch {
	case r.scheme != "" && r.scheme != scheme, r.methods != nil && !slices.Contains(r.methods, method):
		return false
	case r.prefix && r.path == "/": // all paths: no matter how a server reads them
		return true
	}
	decoded, ok := decodePath(path)
	return ok && (decoded == r.path || r.prefix && strings.HasPrefix(decoded, r.path))
}

// decodePath gives the path of a request as servers read it, or false if they
// may read it in more than one way: as one that goes up, or that is decoded
// twice. What follows the question mark is left out.
func decodePath(escaped string) (string, bool) {
	escaped, _, _ = strings.Cut(escaped, "?")
	if escaped == "" {
		return "/", true
	}
	path, err := url.PathUnescape(escaped)
	if err != nil || path[0] != '/' || !utf8.ValidString(path) || strings.Contains(escaped, "#") ||
		strings.Count(path, "/") != strings.Count(escaped, "/") || // one was escaped
		strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == '%' }) {
		return "", false
	}
	// Some servers take full-width and other compatible characters for the ASCII ones.
	if marks(norm.NFKC.String(path)) != marks(path) {
		return "", false
	}
	for segment := range strings.SplitSeq(path, "/") {
		segment, _, _ = strings.Cut(segment, ";") // parameters, for servers that know them
		if segment == "." || segment == ".." {
			return "", false
		}
	}
	return path, true
}

// marks is how many characters of a text mean something in a path.
func marks(s string) (n int) {
	for _, c := range s {
		if strings.ContainsRune("/\\.;%?#", c) {
			n++
		}
	}
	return n
}
