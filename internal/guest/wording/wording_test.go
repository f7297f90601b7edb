package wording

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"agentbox/internal/guest"
	"agentbox/internal/sandbox"
)

func TestAnswerOf(t *testing.T) {
	noDir := "working directory /x: "
	for name, c := range map[string]struct {
		r              sandbox.Result
		code           int32
		stdout, stderr string
		stream         string // the reason that ends a stream, "": the number does
	}{
		"exited":         {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 3, Stdout: []byte("o"), Stderr: []byte("e")}, 3, "o", "e", ""},
		"signal":         {sandbox.Result{Outcome: sandbox.Signaled, Signal: 15, Reason: "x"}, -15, "", "", ""},
		"time-out":       {sandbox.Result{Outcome: sandbox.TimedOut, Signal: 9, Stderr: []byte("e\n")}, -1, "", "e\nCommand timed out", TimedOut},
		"cut time-out":   {sandbox.Result{Outcome: sandbox.TimedOut, Stderr: []byte("e\n"), StderrTruncated: true}, -1, "", "e\n" + CutMark + "\nCommand timed out", TimedOut},
		"out of memory":  {sandbox.Result{Outcome: sandbox.OOM, Reason: "the limit"}, -9, "", "the limit", ""},
		"canceled":       {sandbox.Result{Outcome: sandbox.Canceled, Signal: 9, Reason: "gone"}, -9, "", "gone", ""},
		"lost":           {sandbox.Result{Outcome: sandbox.Lost, Reason: "it ended"}, -1, "", "it ended", "it ended"},
		"no directory":   {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 126, Reason: noDir + "No such file or directory", Stderr: []byte("sh: …")}, -1, "", "[Errno 2] No such file or directory: '/x'", "[Errno 2] No such file or directory: '/x'"},
		"a file":         {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 126, Reason: noDir + "Not a directory"}, -1, "", "[Errno 20] Not a directory: '/x'", "[Errno 20] Not a directory: '/x'"},
		"no rights":      {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 126, Reason: noDir + "Permission denied"}, -1, "", "[Errno 13] Permission denied: '/x'", "[Errno 13] Permission denied: '/x'"},
		"another reason": {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 126, Reason: noDir + "what?"}, -1, "", noDir + "what?", noDir + "what?"},
		"another 126":    {sandbox.Result{Outcome: sandbox.Exited, ExitCode: 126, Reason: "f: Permission denied", Stderr: []byte("f: Permission denied\n")}, 126, "", "f: Permission denied\n", ""},
		"half a letter":  {sandbox.Result{Outcome: sandbox.Exited, Stdout: []byte("a\xc3"), StdoutTruncated: true}, 0, "a" + CutMark, "", ""},
	} {
		a := AnswerOf(&c.r, "/x")
		stdout, stderr := Text(a.Stdout)+a.StdoutEnd, Text(a.Stderr)+a.StderrEnd
		if a.ExitCode != c.code || stdout != c.stdout || stderr != c.stderr || a.TimedOut != (c.r.Outcome == sandbox.TimedOut) {
			t.Errorf("%s: %d %q %q", name, a.ExitCode, stdout, stderr)
		}
		stream := Reason(&c.r, "/x")
		if !IsFailure(&c.r) {
			stream = ""
		}
		if stream != c.stream {
			t.Errorf("%s: a stream ends with %q", name, stream)
		}
	}
}

func TestFileError(t *testing.T) {
	told := func(err error) error {
		m, _ := guest.EncodeError(err)
		return guest.DecodeError(m)
	}
	for want, err := range map[string]error{
		"[Errno 21] Is a directory: '/d'":           told(&fs.PathError{Op: "open", Path: "/d", Err: syscall.EISDIR}),
		"[Errno 2] No such file or directory: '/d'": told(&fs.PathError{Op: "open", Path: "/d", Err: syscall.ENOENT}),
		"[Errno 28] No space left on device: '/d'":  told(syscall.ENOSPC),
		"[Errno 27] File too large: '/d'":           ErrTooLarge,
		PathNotAllowed:                              told(guest.Errorf(errdefs.ErrOutOfRange, "out")),
		"not a regular file":                        told(guest.Errorf(errdefs.ErrInvalidArgument, "not a regular file")),
		"":                                          errors.New("ours"),
	} {
		if got, ok := FileError(err, "/d"); got != want || ok != (want != "") {
			t.Errorf("%v: %q, %t", err, got, ok)
		}
	}
	if _, ok := FileError(told(guest.Errorf(errdefs.ErrUnavailable, "gone")), "/d"); ok {
		t.Error("an agent that is gone is told as the file's")
	}
	if !IsMissing(told(syscall.ENOENT)) || IsMissing(told(syscall.EISDIR)) || IsMissing(nil) {
		t.Error("a missing file is not told from others")
	}
}

// FuzzText: what is text stays as it is, however it is cut into parts, and what is none
// becomes text.
func FuzzText(f *testing.F) {
	f.Add("ä€😀", uint8(1))
	f.Add("\xffx\xc3\xe2\x82", uint8(2))
	f.Fuzz(func(t *testing.T, s string, size uint8) {
		want := Text([]byte(s))
		if !utf8.ValidString(want) || utf8.ValidString(s) && want != s {
			t.Errorf("%q becomes %q", s, want)
		}
		var chars Chars
		var got, quoted strings.Builder
		j := NewJSONText(&quoted)
		for b := []byte(s); len(b) > 0; {
			part := b[:min(len(b), int(size)+1)]
			got.WriteString(Text(chars.Whole(part)))
			_, _ = j.Write(part)
			b = b[len(part):]
		}
		got.WriteString(Text(chars.Rest()))
		_ = j.End("")
		if got.String() != want {
			t.Errorf("%q in parts of %d becomes %q, want %q", s, size+1, got.String(), want)
		}
		var whole strings.Builder
		j = NewJSONText(&whole)
		_, _ = j.Write([]byte(s))
		_ = j.End("")
		if quoted.String() != whole.String() {
			t.Errorf("%q in parts of %d is quoted as %s, want %s", s, size+1, &quoted, &whole)
		}
	})
}
