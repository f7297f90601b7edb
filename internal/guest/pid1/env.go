//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/sandbox"
)

const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is what a command gets: what any program may expect, settings
// without which package tools stop to ask, how to reach the outside if the sandbox
// has a network, whom to trust if it was told, then what was asked for.
func environment(s agent.ProcessSpec, id identity, c *guestv1.Network, t *trust) []string {
	search := systemPath
	if id.uid != 0 && id.home != "/" {
		search = path.Join(id.home, ".local/bin") + ":" + search // pip install --user
	}
	env := []string{
		"PATH=" + search, "HOME=" + id.home, "LANG=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive", "GIT_TERMINAL_PROMPT=0", "npm_config_yes=true",
		"PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_ROOT_USER_ACTION=ignore", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INPUT=1",
	}
	if id.name != "" {
		env = append(env, "USER="+id.name, "LOGNAME="+id.name)
	}
	if id.shell != "" {
		env = append(env, "SHELL="+id.shell)
	}
	if s.TTY {
		env = append(env, "TERM=xterm-256color")
	}
	trusted, java := t.env(s.Env)
	env = append(env, trusted...)
	if c != nil {
		env = append(env, proxyEnv(s.Env)...)
		java = strings.TrimSpace(javaProxy() + " " + java)
	}
	if java != "" {
		env = append(env, "JAVA_TOOL_OPTIONS="+java)
	}
	return lastWins(append(env, s.Env...))
}

// lastWins keeps the last of each name, at the place of the first.
func lastWins(env []string) []string {
	at := map[string]int{}
	out := env[:0:0]
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			out[i] = e
			continue
		}
		at[name] = len(out)
		out = append(out, e)
	}
	return out
}

func valueOf(env []string, name string) string {
	for _, e := range env {
		if n, v, _ := strings.Cut(e, "="); n == name {
			return v
		}
	}
	return ""
}

// shells, best first.
var shells = []string{"/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh"}

func notFound(name, why string) error {
	return &agent.StartError{Code: sandbox.ExitNotFound, Message: name + ": " + why}
}

func notExecutable(name, why string) error {
	return &agent.StartError{Code: sandbox.ExitNotExecutable, Message: name + ": " + why}
}

// findProgram finds the file to run, as execvp does in the command's directory and
// with its PATH.
func findProgram(s agent.ProcessSpec, dir, search string) (file string, argv []string, err error) {
	if s.Shell != "" {
		for _, sh := range shells {
			if usable(sh) == nil {
				return sh, []string{path.Base(sh), "-c", s.Shell}, nil
			}
		}
		return "", nil, notFound("sh", "the image has no shell")
	}
	name := s.Argv[0]
	if strings.Contains(name, "/") {
		return name, s.Argv, explain(name, usable(below(dir, name)))
	}
	var denied error
	for _, d := range strings.Split(search, ":") {
		file := path.Join(below(dir, d), name)
		err := usable(file)
		if err == nil {
			return file, s.Argv, nil
		}
		if errors.Is(err, syscall.EACCES) {
			denied = explain(file, err)
		}
	}
	if denied != nil {
		return "", nil, denied
	}
	return "", nil, notFound(name, "command not found")
}

// Bounds of execve(2), NUL bytes included. gVisor has 2 MiB for arguments and
// environment each, Linux for both, and neither says which bound was met.
const (
	maxString  = 128 << 10 // one of them: MAX_ARG_STRLEN
	maxStrings = 2 << 20
)

// mustFit refuses a command that no kernel would take, in words that tell why.
func mustFit(file string, argv, env []string) error {
	for _, list := range []struct {
		what    string
		strings []string
	}{{"arguments", argv}, {"variables", env}} {
		total := 0
		for _, s := range list.strings {
			if len(s) >= maxString {
				return notExecutable(file, fmt.Sprintf("Argument list too long: one of the %s has %d bytes, at most are %d (a file or standard input takes more)", list.what, len(s), maxString-1))
			}
			total += len(s) + 1
		}
		if total > maxStrings {
			return notExecutable(file, fmt.Sprintf("Argument list too long: the %s have %d bytes, at most are %d (a file or standard input takes more)", list.what, total, maxStrings))
		}
	}
	return nil
}

// below is p as seen from dir.
func below(dir, p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(dir, p)
}

// usable reports why a file can't be a program. Whether this user may run it is
// for the kernel to say.
func usable(file string) error {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return syscall.EISDIR
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}

// explain is an error about a program in the words and numbers of a shell.
func explain(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return notFound(name, "No such file or directory")
	case errors.Is(err, syscall.EISDIR):
		return notExecutable(name, "Is a directory")
	}
	return notExecutable(name, describe(err))
}

func describe(err error) string {
	switch {
	case errors.Is(err, syscall.EACCES):
		return "Permission denied"
	case errors.Is(err, syscall.ENOEXEC):
		return "Exec format error"
	case errors.Is(err, syscall.E2BIG):
		return "Argument list too long"
	case errors.Is(err, syscall.ENOMEM):
		return "Cannot allocate memory"
	}
	return err.Error()
}
