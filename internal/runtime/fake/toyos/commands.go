package toyos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is a command. It runs in its caller's process.
type program func(p *proc, argv []string) int

// commands are all programs that exist. It is no variable because they refer to
// it.
func commands() map[string]program {
	return map[string]program{
		":": status(0), "true": status(0), "false": status(1),
		"sh": cmdShell, "bash": cmdShell, "exec": cmdRest, "nohup": cmdRest, "setsid": cmdRest, "command": cmdRest,
		"eval": cmdEval, "exit": cmdExit, "cd": cmdCd, "export": cmdExport, "unset": cmdUnset, "trap": cmdTrap, "wait": cmdWait, "read": cmdRead,
		"test": cmdTest, "[": cmdTest, "kill": cmdKill, "echod": cmdEchod, "netcat": cmdNetcat, "sleep": cmdSleep,
		"echo": cmdEcho, "printf": cmdPrintf, "cat": cmdCat, "seq": cmdSeq, "yes": cmdYes, "head": cmdHead, "wc": cmdWc, "tr": cmdTr,
		"env": cmdEnv, "pwd": cmdPwd, "id": cmdID, "whoami": cmdWhoami, "hostname": cmdHostname, "uname": cmdUname,
		"stty": cmdStty, "tty": cmdTTY,
		"mkdir": cmdMkdir, "rm": cmdRm, "touch": cmdTouch, "ls": cmdLs, "chmod": cmdChmod, "ln": cmdLn, "mv": cmdMv, "readlink": cmdReadlink, "mkfifo": cmdMkfifo,
	}
}

func status(code int) program {
	return func(*proc, []string) int { return code }
}

// reason is an error in the words of strerror(3) without what it is about.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		s := errno.Error()
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return err.Error()
}

func cmdSleep(p *proc, argv []string) int {
	var total time.Duration
	for _, a := range argv[1:] {
		if a == "infinity" {
			<-p.ctx.Done()
			return 1
		}
		unit := time.Second
		if n := len(a) - 1; n > 0 {
			if u, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[a[n]]; ok {
				a, unit = a[:n], u
			}
		}
		f, err := strconv.ParseFloat(a, 64)
		if err != nil || f < 0 {
			return p.fail(1, "sleep: invalid time interval '%s'", a)
		}
		total += time.Duration(f * float64(unit))
	}
	t := time.NewTimer(total)
	defer t.Stop()
	select {
	case <-t.C:
		return 0
	case <-p.ctx.Done():
		return 1
	}
}

func cmdEnv(p *proc, argv []string) int {
	rest := argv[1:]
	for len(rest) > 0 && strings.Contains(rest[0], "=") {
		p.setEnv(rest[0])
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return p.invoke(rest)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.env)) {
		b.WriteString(name + "=" + p.env[name] + "\n")
	}
	return p.out(b.String())
}

func cmdPwd(p *proc, _ []string) int    { return p.out(p.dir + "\n") }
func cmdWhoami(p *proc, _ []string) int { return p.out(p.cred.name + "\n") }

func cmdID(p *proc, argv []string) int {
	if len(argv) > 1 {
		switch argv[1] {
		case "-u":
			return p.out(fmt.Sprintf("%d\n", p.cred.uid))
		case "-g":
			return p.out(fmt.Sprintf("%d\n", p.cred.gid))
		case "-un":
			return p.out(p.cred.name + "\n")
		}
	}
	return p.out(fmt.Sprintf("uid=%d(%s) gid=%d\n", p.cred.uid, p.cred.name, p.cred.gid))
}

func cmdHostname(p *proc, _ []string) int {
	_, name := p.sys.settings()
	return p.out(name + "\n")
}

func cmdUname(p *proc, _ []string) int { return p.out("Toy\n") }

func cmdStty(p *proc, argv []string) int {
	t, ok := p.fds[0].(*tty)
	if !ok || len(argv) < 2 || argv[1] != "size" {
		return p.fail(1, "stty: only size is known, on a terminal")
	}
	cols, rows := t.size()
	return p.out(fmt.Sprintf("%d %d\n", rows, cols))
}

func cmdTTY(p *proc, _ []string) int {
	if _, ok := p.fds[0].(*tty); !ok {
		p.out("not a tty\n")
		return 1
	}
	return p.out("/dev/pts/0\n")
}
