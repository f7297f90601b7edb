package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
)

// class is one row of the mapping between classes of errors, their names on
// the wire and the status of the HTTP answer.
type class struct {
	code   string
	err    error
	status int
}

var classes = []class{
	{"invalid_argument", errdefs.ErrInvalidArgument, http.StatusBadRequest},
	{"not_found", errdefs.ErrNotFound, http.StatusNotFound},
	{"already_exists", errdefs.ErrAlreadyExists, http.StatusConflict},
	{"permission_denied", errdefs.ErrPermissionDenied, http.StatusForbidden},
	{"resource_exhausted", errdefs.ErrResourceExhausted, http.StatusTooManyRequests},
	{"failed_precondition", errdefs.ErrFailedPrecondition, http.StatusPreconditionFailed},
	{"out_of_range", errdefs.ErrOutOfRange, http.StatusRequestedRangeNotSatisfiable},
	{"not_implemented", errdefs.ErrNotImplemented, http.StatusNotImplemented},
	{"unavailable", errdefs.ErrUnavailable, http.StatusServiceUnavailable},
	{"aborted", errdefs.ErrAborted, http.StatusConflict},
	{"deadline_exceeded", context.DeadlineExceeded, http.StatusGatewayTimeout},
	{"canceled", context.Canceled, 499},
	{"internal", errdefs.ErrInternal, http.StatusInternalServerError},
}

// errnoClass tells the class of an errno of the guest's kernel.
func errnoClass(e syscall.Errno) error {
	switch e {
	case syscall.ENOENT:
		return errdefs.ErrNotFound
	case syscall.EEXIST:
		return errdefs.ErrAlreadyExists
	case syscall.EACCES, syscall.EPERM:
		return errdefs.ErrPermissionDenied
	case syscall.EINVAL, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.ENXIO, syscall.EXDEV:
		return errdefs.ErrInvalidArgument
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EAGAIN, syscall.EMLINK:
		return errdefs.ErrResourceExhausted
	case syscall.ENOTEMPTY, syscall.EROFS, syscall.EBUSY, syscall.ETXTBSY, syscall.ESRCH:
		return errdefs.ErrFailedPrecondition
	case syscall.ECONNREFUSED:
		return errdefs.ErrUnavailable
	case syscall.ENOSYS, syscall.ENOTSUP:
		return errdefs.ErrNotImplemented
	}
	return errdefs.ErrInternal
}

func classOf(err error) class {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c
		}
	}
	return classes[len(classes)-1]
}

// EncodeError is err as the guest tells it to the host, with the status of the
// HTTP answer that carries it.
func EncodeError(err error) (*guestv1.Error, int) {
	m := &guestv1.Error{Message: strings.ToValidUTF8(err.Error(), "\uFFFD")}
	var remote *Error
	var errno syscall.Errno
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		m.Path = []byte(path.Path)
	case errors.As(err, &link):
		m.Path = []byte(link.New)
	case errors.As(err, &remote):
		m.Path = []byte(remote.Path)
	}
	c := classOf(err)
	if errors.As(err, &errno) {
		m.Errno = int32(errno)
		if c.code == "internal" {
			c = classOf(errnoClass(errno))
		}
	}
	if c.code == "internal" && errors.Is(err, io.ErrUnexpectedEOF) {
		c = classOf(errdefs.ErrAborted)
	}
	m.Code = c.code
	return m, c.status
}

// Error is an error that the guest told. It unwraps to its class, an error of
// containerd/errdefs (or context.Canceled, context.DeadlineExceeded), and
// matches errors such as fs.ErrNotExist by its errno.
type Error struct {
	Message string
	Path    string        // that it is about, "" if none
	Errno   syscall.Errno // of the guest's kernel, 0 if none
	class   error
}

// maxMessage bounds what of a guest's error text is kept.
const maxMessage = 4 << 10

// DecodeError is m as an error. Nothing in m is trusted.
func DecodeError(m *guestv1.Error) error {
	e := &Error{Message: printable(m.GetMessage()[:min(len(m.GetMessage()), maxMessage+1)]), Path: string(m.GetPath()), Errno: syscall.Errno(max(m.GetErrno(), 0)), class: errdefs.ErrInternal}
	if len(e.Message) > maxMessage {
		e.Message = e.Message[:maxMessage] + "…"
	}
	for _, c := range classes {
		if c.code == m.GetCode() {
			e.class = c.err
		}
	}
	return e
}

// printable escapes what a terminal, a log or a header would obey: file names may
// hold anything.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		q := strconv.QuoteRune(r)
		b.WriteString(q[1 : len(q)-1])
	}
	return b.String()
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.class.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.class }

// Is matches the errors of io/fs and other errnos.
func (e *Error) Is(target error) bool {
	if e.Errno == 0 {
		return false
	}
	return target == error(e.Errno) || e.Errno.Is(target)
}

// Errorf makes an error of a class of containerd/errdefs.
func Errorf(class error, format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), class: class}
}
