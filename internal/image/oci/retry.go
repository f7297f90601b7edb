package oci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
)

// statusError is an answer that is no success.
type statusError struct {
	what   string
	code   int
	detail string
	after  time.Duration // the server's wish
}

// Error implements error.
func (e *statusError) Error() string {
	s := fmt.Sprintf("%s: %s", e.what, e.meaning())
	if e.detail != "" {
		s += " (" + e.detail + ")"
	}
	return s
}

func (e *statusError) meaning() string {
	switch e.code {
	case http.StatusUnauthorized:
		return "the registry wants a login: docker login, or there is no such image"
	case http.StatusForbidden:
		return "the registry does not let this account read it"
	case http.StatusNotFound:
		return "the registry does not have it"
	case http.StatusTooManyRequests:
		return "the registry's rate limit is reached"
	default:
		return fmt.Sprintf("the registry answered %d %s", e.code, http.StatusText(e.code))
	}
}

// Unwrap is the error's class.
func (e *statusError) Unwrap() error {
	switch {
	case e.code == http.StatusUnauthorized:
		return errdefs.ErrUnauthenticated
	case e.code == http.StatusForbidden:
		return errdefs.ErrPermissionDenied
	case e.code == http.StatusNotFound:
		return errdefs.ErrNotFound
	case e.temporary():
		return errdefs.ErrUnavailable
	default:
		return errdefs.ErrUnknown
	}
}

func (e *statusError) temporary() bool {
	switch e.code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// errStalled is that a transfer stood still for too long.
var errStalled = errors.New("the transfer stands still")

// temporary reports errors that may be gone at the next attempt. Everything
// here is asked for with GET, so asking again does no harm; what a server or a
// certificate says on purpose is not asked again.
func temporary(err error) bool {
	var status *statusError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var dns *net.DNSError
	var op net.Error
	switch {
	case errors.As(err, &status):
		return status.temporary()
	case errors.Is(err, errStalled), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return true
	case errors.Is(err, errPlain), errors.Is(err, context.Canceled), errors.Is(err, syscall.ECONNREFUSED),
		errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &record):
		return false
	case errors.As(err, &dns):
		return dns.Temporary()
	case errors.As(err, &op):
		return op.Timeout()
	}
	return false
}

const (
	// attempts is how often something is tried that gets no further.
	attempts = 5
	// longestWait bounds a server's wish.
	longestWait = time.Minute
)

// retry calls f until it succeeds, fails for good, or failed too often.
func (r *Registry) retry(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		if err == nil || n == attempts-1 || !temporary(err) {
			return err
		}
		if err := r.pause(ctx, n, err); err != nil {
			return err
		}
	}
}

// pause waits after failure number n.
func (r *Registry) pause(ctx context.Context, n int, err error) error {
	wait := r.opts.Backoff << n
	var status *statusError
	if errors.As(err, &status) && status.after > 0 {
		wait = min(status.after, longestWait)
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
