package agent

import (
	"bytes"
	"math"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// checkRequest refuses what no kernel takes, before anything is kept of it.
func checkRequest(q *guestv1.ExecRequest) error {
	bad := func(format string, args ...any) error {
		return guest.Errorf(errdefs.ErrInvalidArgument, format, args...)
	}
	switch {
	case !validID(q.GetExecId()):
		return bad("exec_id must be 1 to 64 of a-z, 0-9 and -")
	case (len(q.GetArgv()) > 0) == (len(q.GetShell()) > 0):
		return bad("exactly one of argv and shell must be given")
	case len(q.GetArgv()) > 0 && len(q.GetArgv()[0]) == 0:
		return bad("argv: the program has no name")
	case q.GetCols() > math.MaxUint16 || q.GetRows() > math.MaxUint16:
		return bad("a terminal has at most %d columns and rows", math.MaxUint16)
	case q.GetTimeoutNs() < 0 || q.GetMaxOutput() < 0:
		return bad("limits must not be negative")
	}
	for _, list := range [][][]byte{q.GetArgv(), q.GetEnv(), {q.GetShell(), q.GetDir()}} {
		for _, s := range list {
			if bytes.IndexByte(s, 0) >= 0 {
				return bad("arguments, environment and directory must not hold NUL")
			}
		}
	}
	for _, s := range q.GetEnv() {
		if bytes.IndexByte(s, '=') < 1 {
			return bad("env: %q is not NAME=value", s)
		}
	}
	return nil
}

func validID(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// spec is the request with the sandbox's defaults; mu is held.
func (m *execs) spec(q *guestv1.ExecRequest) ProcessSpec {
	s := ProcessSpec{
		ID: q.GetExecId(), Argv: stringsOf(q.GetArgv()), Shell: string(q.GetShell()),
		Env: append(stringsOf(m.conf.GetEnv()), stringsOf(q.GetEnv())...),
		Dir: string(q.GetDir()), User: q.GetUser(),
		Stdin: q.GetStdin(), TTY: q.GetTty(), Cols: uint16(q.GetCols()), Rows: uint16(q.GetRows()),
		AllowNewPrivs: m.conf.GetAllowNewPrivs(),
	}
	if s.Dir == "" {
		s.Dir = m.conf.GetWorkdir()
	}
	if s.User == "" {
		s.User = m.conf.GetUser()
	}
	if s.TTY && (s.Cols == 0 || s.Rows == 0) {
		s.Cols, s.Rows = 80, 24
	}
	return s
}

func stringsOf(list [][]byte) []string {
	var s []string
	for _, b := range list {
		s = append(s, string(b))
	}
	return s
}
