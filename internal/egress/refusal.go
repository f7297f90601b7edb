package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"agentbox/internal/egress/dial"
)

// Code says for programs why a request was not served. It is in the header
// [CodeHeader] of answers and in records.
type Code string

// CodeHeader is in each answer that is the proxy's own and no success.
const CodeHeader = "X-Agentbox-Egress"

// Codes.
const (
	CodeHost         Code = "host_not_allowed"     // the policy does not name it
	CodeRequest      Code = "request_not_allowed"  // the policy names the host, not this method and path
	CodeUnseen       Code = "request_not_seen"     // it allows some requests only, and they can't be seen
	CodeAddress      Code = "address_not_allowed"  // the host has an address that nobody dials
	CodeInvalid      Code = "invalid_request"      // no request that a proxy takes
	CodeInvalidHost  Code = "invalid_host"         // no host, or one that could be read in two ways
	CodeConnect      Code = "connect_failed"       // the server can't be reached
	CodeForward      Code = "forward_failed"       // the server's answer is broken, or did not come
	CodeToken        Code = "token_required"       // no token, or not a good one
	CodeConns        Code = "too_many_connections" // Limits.Conns
	CodeBytes        Code = "byte_limit"           // Limits.Bytes
	CodeTimeout      Code = "request_timeout"      // the request did not come in time
	CodeHeadSize     Code = "head_too_large"       // the head of the request is too large
	CodeServerName   Code = "sni_mismatch"         // TLS names another host than was asked for
	CodeNoServerName Code = "sni_missing"          // TLS names no host
	CodeNoTLS        Code = "tls_required"         // port 443, and no TLS
	CodeHello        Code = "bad_client_hello"     // the beginning of TLS can't be read
	CodeHostHeader   Code = "host_mismatch"        // Host is another one than was asked for
	CodeMintFailed   Code = "interception_failed"  // no certificate for the host, or the client does not take it
	CodeSecret       Code = "secret_failed"        // a secret can't be put in, or the answer can't be searched for it
	CodeCut          Code = "policy_changed"       // it was open when the policy changed
	CodeAborted      Code = "aborted"              // the client went away
	CodeIdle         Code = "idle"                 // no byte for too long
	CodeClosed       Code = "session_closed"       // the sandbox ends
)

// refusal is why something is not done: what the client is told, and the record.
type refusal struct {
	status int
	code   Code
	// text is the body of the answer, exactly.
	text string
	// reason is for the record; empty: text.
	reason string
	denied bool       // by a rule, rather than failed
	addr   netip.Addr // that was refused
}

func (r *refusal) Error() string {
	if r.reason != "" {
		return r.reason
	}
	return r.text
}

// errNoTLS is wrapped by errors of the handshake with a server.
var errNoTLS = errors.New("no TLS with the server")

func deny(status int, code Code, text, reason string) *refusal {
	return &refusal{status: status, code: code, text: text, reason: reason, denied: true}
}

func denyHost(code Code, host, reason string) *refusal {
	return deny(403, code, "Host not allowed: "+host, reason)
}

func invalid(reason string) *refusal {
	return deny(400, CodeInvalid, "Invalid proxy request", reason)
}

// failure says what became of an attempt to reach the server. prefix begins the
// text of the answer.
func failure(prefix string, code Code, host string, err error) *refusal {
	var refused *dial.RefusedError
	switch {
	case errors.As(err, &refused):
		r := denyHost(CodeAddress, host, refused.Error())
		r.addr = refused.Addr
		return r
	case errors.Is(err, errBytes):
		return deny(429, CodeBytes, errBytes.Error(), "")
	}
	why := plain(err)
	return &refusal{status: 502, code: code, text: prefix + why, reason: why}
}

// plain says an error in words that give away nothing of the host: errors of
// package net name addresses and resolvers.
func plain(err error) string {
	var (
		resolve *dial.ResolveError
		connect *dial.ConnectError
		name    x509.HostnameError
		unknown x509.UnknownAuthorityError
		bad     x509.CertificateInvalidError
		netErr  net.Error
	)
	switch {
	case errors.As(err, &connect):
		return connect.Error()
	case errors.As(err, &resolve):
		return resolve.Error()
	case errors.As(err, &name):
		return "the server's certificate is not good for this host"
	case errors.As(err, &bad) && bad.Reason == x509.Expired:
		return "the server's certificate has expired, or is not valid yet"
	case errors.As(err, &unknown), errors.As(err, &bad):
		return "the server's certificate is of no authority that the proxy trusts"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return "the server took too long"
	case errors.Is(err, errNoTLS):
		return "the server does not speak TLS 1.2 or later with the proxy"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case isGone(err):
		return "the server closed the connection"
	case errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return "the connection was closed"
	case errors.Is(err, errUpgrade):
		return errUpgrade.Error()
	case errors.Is(err, errTaken):
		return errTaken.Error()
	case errors.Is(err, errAnswerHead), strings.Contains(err.Error(), "response headers exceeded"): // the latter of net/http, without a type
		return "the head of the server's answer is too large"
	case errors.Is(err, errSpoke), errors.Is(err, errNoHTTP) && netErr == nil, strings.Contains(err.Error(), "HTTP/1.x transport connection broken") && netErr == nil:
		return errNoHTTP.Error()
	}
	return "the server could not be reached"
}

// isGone reports whether an error tells that the other end has closed the connection.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
