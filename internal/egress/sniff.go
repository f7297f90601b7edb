package egress

import (
	"bytes"
	"strings"
)

// wire is what a client speaks in a tunnel.
type wire int

const (
	wireOther wire = iota
	wireTLS
	wireHTTP
)

// recordHandshake is the first byte of TLS (RFC 8446, section 5.1).
const recordHandshake = 0x16

// sniff finds out what the client speaks. It waits for the first byte as long as
// it takes, since the server may be the one to speak first, and for more only
// while the bytes may still become a request.
//
// What is neither TLS nor HTTP names no host, so it can't ask a server that
// serves several hosts for another one. Port 80 is for HTTP alone, unless the
// server was the first to speak.
func (t *tunnel) sniff() (wire, error) {
	first, err := t.r.Peek(1)
	if err != nil {
		return wireOther, err
	}
	t.setReadDeadline(t.p.o.Timeouts.Head)
	defer t.setReadDeadline(0)
	if first[0] == recordHandshake {
		return wireTLS, nil
	}
	for {
		b, _ := t.r.Peek(t.r.Buffered())
		is := looksLikeHTTP(b, t.f.target.Port)
		switch {
		case t.spoken():
			return wireOther, nil
		case is == yes, len(b) == t.r.Size(), t.f.target.Port == 80:
			return wireHTTP, nil
		case is == no:
			return wireOther, nil
		}
		if _, err := t.r.Peek(len(b) + 1); err != nil {
			return wireOther, err
		}
	}
}

// guess is what one can say of the first bytes.
type guess int

const (
	no guess = iota
	yes
	perhaps
)

// methods that a client may have sent a part of. A beginning of something else is
// not waited for: a program may have sent all that it wants to say.
var methods = []string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PROPFIND", "PUT", "TRACE"}

// looksLikeHTTP reports whether the bytes begin with a line that a server could
// take for a request's of HTTP/1, however lenient it is.
func looksLikeHTTP(b []byte, port uint16) guess {
	b = bytes.TrimLeft(b, "\r\n \t\v\f") // some servers skip them all
	if len(b) == 0 {
		return perhaps
	}
	line, _, whole := bytes.Cut(b, []byte("\n"))
	method, rest, spaced := line, []byte(nil), false
	if i := bytes.IndexAny(line, " \t\v\f"); i >= 0 {
		method, rest, spaced = line[:i], line[i:], true
	}
	switch {
	case !isToken(method):
		return no
	case whole && string(bytes.TrimRight(line, "\r")) == "PRI * HTTP/2.0" && port != 443:
		return no // HTTP/2 without TLS, for a port that the policy names
	case spaced && whole && bytes.Contains(bytes.ToUpper(rest), []byte("HTTP/")):
		return yes
	case whole:
		return no
	case spaced:
		return perhaps
	}
	for _, m := range methods {
		if strings.HasPrefix(m, strings.ToUpper(string(method))) {
			return perhaps
		}
	}
	return no
}

// isToken reports whether b is a token (RFC 9110, section 5.6.2).
func isToken(b []byte) bool {
	for _, c := range b {
		if !isTokenByte(c) {
			return false
		}
	}
	return len(b) > 0
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
