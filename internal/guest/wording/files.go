package wording

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

// Below which directories files are read and written, as far as those are theirs
// after all links were followed.
var (
	Readable = []string{sandbox.WorkspacePath, "/mnt/user-data"}
	Writable = []string{sandbox.WorkspacePath, sandbox.OutputsPath}
)

// MaxText is the largest file that is told as one text, in bytes.
const MaxText = 64 << 20

// Absolute is a path of a request. Those that begin nowhere begin in the workspace.
func Absolute(p string) string {
	if strings.HasPrefix(p, "/") {
		return p
	}
	return sandbox.WorkspacePath + "/" + p
}

// Appends reads a mode of writing; not ok: it is none.
func Appends(mode string) (yes, ok bool) {
	return mode == "a", mode == "" || mode == "w" || mode == "a"
}

// OSError is an error of the sandbox's system in the words that Python has for it,
// which clients know from there.
type OSError struct {
	errno syscall.Errno // of the guest, and so Linux's
	text  string
}

var (
	noSuchFile    = OSError{2, "No such file or directory"}
	noPermission  = OSError{13, "Permission denied"}
	notADirectory = OSError{20, "Not a directory"}
	isADirectory  = OSError{21, "Is a directory"}
	fileTooLarge  = OSError{27, "File too large"}
)

var osErrors = []OSError{
	noSuchFile, noPermission, notADirectory, isADirectory, fileTooLarge,
	{1, "Operation not permitted"}, {5, "Input/output error"}, {12, "Cannot allocate memory"}, {16, "Device or resource busy"}, {22, "Invalid argument"},
	{26, "Text file busy"}, {28, "No space left on device"}, {30, "Read-only file system"}, {36, "File name too long"},
	{40, "Too many levels of symbolic links"}, {122, "Disk quota exceeded"},
}

// Of is the text of the error about a path.
func (e OSError) Of(path string) string {
	return fmt.Sprintf("[Errno %d] %s: '%s'", e.errno, e.text, path)
}

// ErrTooLarge is of a file that has more than MaxText.
var ErrTooLarge = guest.DecodeError(&guestv1.Error{Code: "resource_exhausted", Errno: int32(fileTooLarge.errno), Message: fileTooLarge.text})

// IsMissing reports that the guest told of a file that is not there.
func IsMissing(err error) bool {
	var told *guest.Error
	return errors.As(err, &told) && told.Errno == noSuchFile.errno
}

// FileError is the text for an error about a file that the guest told; not ok: it is
// none of the file's.
func FileError(err error, path string) (text string, ok bool) {
	var told *guest.Error
	if !errors.As(err, &told) || errdefs.IsUnavailable(told) || told.Errno == 0 && errdefs.IsInternal(told) {
		return "", false
	}
	if errdefs.IsOutOfRange(told) {
		return PathNotAllowed, true
	}
	for _, e := range osErrors {
		if told.Errno == e.errno {
			return e.Of(path), true
		}
	}
	return told.Error(), true
}
