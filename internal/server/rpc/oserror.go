package rpc

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/server/doors"
)

// osError is an error of the sandbox's system in the words that Python has for it,
// which clients know from there.
type osError struct {
	errno syscall.Errno // of the guest, and so Linux's
	text  string
}

var (
	noSuchFile    = osError{2, "No such file or directory"}
	noPermission  = osError{13, "Permission denied"}
	notADirectory = osError{20, "Not a directory"}
	isADirectory  = osError{21, "Is a directory"}
	fileTooLarge  = osError{27, "File too large"}
)

var osErrors = []osError{
	noSuchFile, noPermission, notADirectory, isADirectory, fileTooLarge,
	{1, "Operation not permitted"}, {5, "Input/output error"}, {12, "Cannot allocate memory"}, {16, "Device or resource busy"}, {22, "Invalid argument"},
	{26, "Text file busy"}, {28, "No space left on device"}, {30, "Read-only file system"}, {36, "File name too long"},
	{40, "Too many levels of symbolic links"}, {122, "Disk quota exceeded"},
}

func (e osError) of(path string) string {
	return fmt.Sprintf("[Errno %d] %s: '%s'", e.errno, e.text, path)
}

// fileError is the text for an error about a file; false: it is none of the file's.
func fileError(err error, path string) (text string, ok bool) {
	var told *guest.Error
	if !errors.As(err, &told) || errdefs.IsUnavailable(told) || told.Errno == 0 && errdefs.IsInternal(told) {
		return "", false
	}
	if errdefs.IsOutOfRange(told) {
		return pathNotAllowed, true
	}
	for _, e := range osErrors {
		if told.Errno == e.errno {
			return e.of(path), true
		}
	}
	return doors.GuestError(err).Error(), true
}

// is reports whether the guest told this error.
func (e osError) is(err error) bool {
	var told *guest.Error
	return errors.As(err, &told) && told.Errno == e.errno
}

// errTooLarge is of a file that a message can't hold.
var errTooLarge = guest.DecodeError(&guestv1.Error{Code: "resource_exhausted", Errno: int32(fileTooLarge.errno), Message: fileTooLarge.text})
