package toyos

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func cmdShell(p *proc, argv []string) int {
	rest := argv[1:]
	command := false
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		command = command || strings.Contains(rest[0], "c")
		rest = rest[1:]
	}
	var src string
	switch {
	case command && len(rest) == 0:
		return p.fail(2, "sh: -c requires an argument")
	case command:
		src = rest[0]
		rest = append([]string{"sh"}, rest[1:]...)
		if len(rest) > 1 {
			rest = rest[1:]
		}
	case len(rest) > 0:
		b, err := p.slurp(rest[0])
		if err != nil {
			return p.fail(2, "sh: %s: %s", rest[0], reason(err))
		}
		src = string(b)
	default:
		return p.interact()
	}
	return p.subshell(rest, func(c *proc) int { return c.runScript(src) })
}

// subshell runs body with arguments of its own: in p itself when p was started
// for it, else in a child.
func (p *proc) subshell(args []string, body func(*proc) int) int {
	if p.args == nil {
		p.args = args
		return body(p)
	}
	c, err := p.fork(p.dup(), func(c *proc) int {
		c.args = args
		return body(c)
	})
	if err != nil {
		return p.fail(2, "sh: Cannot fork")
	}
	return p.wait(c)
}

// interact runs standard input line by line, with a prompt on a terminal.
func (p *proc) interact() int {
	return p.subshell([]string{"sh"}, func(c *proc) int {
		_, prompt := c.fds[0].(*tty)
		for !c.stopped() {
			if prompt {
				c.put(1, "$ ")
			}
			line, err := c.line()
			if line != "" {
				c.status = c.runScript(line)
			}
			if err != nil {
				break
			}
		}
		return c.status
	})
}

// line reads standard input up to a newline, byte by byte as a shell must.
func (p *proc) line() (string, error) {
	var b strings.Builder
	one := make([]byte, 1)
	for b.Len() < maxCapture {
		n, err := p.fds[0].read(p.ctx, one)
		if n == 1 && one[0] == '\n' {
			break
		}
		b.Write(one[:n])
		if err != nil {
			return b.String(), err
		}
	}
	return b.String(), nil
}

func cmdRest(p *proc, argv []string) int {
	if len(argv) < 2 {
		return 0
	}
	code := p.invoke(argv[1:])
	if argv[0] == "exec" {
		p.exiting, p.status = true, code
	}
	return code
}

func cmdEval(p *proc, argv []string) int { return p.runScript(strings.Join(argv[1:], " ")) }

func cmdExit(p *proc, argv []string) int {
	code := p.status
	if len(argv) > 1 {
		code, _ = strconv.Atoi(argv[1])
	}
	p.exiting, p.status = true, code&0xff
	return p.status
}

func cmdCd(p *proc, argv []string) int {
	dir := p.env["HOME"]
	if len(argv) > 1 {
		dir = argv[1]
	}
	info, err := p.view().Stat(p.abs(dir), true)
	if err == nil && info.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return p.fail(2, "cd: %s: %s", dir, reason(err))
	}
	p.dir = p.abs(dir)
	return 0
}

func cmdExport(p *proc, argv []string) int {
	for _, a := range argv[1:] {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			value = p.variable(name)
		}
		delete(p.local, name)
		p.env[name] = value
	}
	return 0
}

func cmdUnset(p *proc, argv []string) int {
	for _, name := range argv[1:] {
		delete(p.local, name)
		delete(p.env, name)
	}
	return 0
}

// cmdTrap knows how to ignore a signal and how to take that back.
func cmdTrap(p *proc, argv []string) int {
	if len(argv) < 3 || argv[1] != "" && argv[1] != "-" {
		return p.fail(2, "trap: only '' and - are known")
	}
	for _, name := range argv[2:] {
		n, ok := signalNumber(name)
		if !ok {
			return p.fail(1, "trap: %s: bad trap", name)
		}
		p.ignore(n, argv[1] == "")
	}
	return 0
}

var signals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1,
	"SEGV": syscall.SIGSEGV, "USR2": syscall.SIGUSR2, "PIPE": syscall.SIGPIPE, "TERM": syscall.SIGTERM, "ABRT": syscall.SIGABRT,
}

func signalNumber(name string) (int, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, n >= 0 && n < 65
	}
	s, ok := signals[strings.TrimPrefix(strings.ToUpper(name), "SIG")]
	return int(s), ok
}

func cmdKill(p *proc, argv []string) int {
	signal, rest := int(syscall.SIGTERM), argv[1:]
	if len(rest) > 1 && rest[0] == "-s" {
		rest = append([]string{"-" + rest[1]}, rest[2:]...)
	}
	if len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		n, ok := signalNumber(rest[0][1:])
		if !ok {
			return p.fail(1, "kill: %s: bad signal", rest[0][1:])
		}
		signal, rest = n, rest[1:]
	}
	code := 0
	for _, arg := range rest {
		pid, _ := strconv.Atoi(arg)
		p.sys.mu.Lock()
		target, ok := p.sys.procs[pid]
		p.sys.mu.Unlock()
		switch {
		case !ok:
			code = p.fail(1, "kill: No such process")
		case p.cred.uid != 0 && p.cred.uid != target.cred.uid:
			code = p.fail(1, "kill: Operation not permitted")
		default:
			target.kill(signal)
		}
	}
	return code
}

func cmdWait(p *proc, argv []string) int {
	code := 0
	for _, c := range p.children {
		if len(argv) < 2 || slices.Contains(argv[1:], strconv.Itoa(c.pid)) {
			status := p.wait(c)
			if len(argv) > 1 {
				code = status
			}
		}
	}
	return code
}

func cmdRead(p *proc, argv []string) int {
	names := slices.DeleteFunc(argv[1:], func(s string) bool { return s == "-r" })
	line, err := p.line()
	if err != nil && line == "" {
		return 1
	}
	for i, name := range names {
		word, rest := strings.TrimSpace(line), ""
		if i < len(names)-1 {
			word, rest, _ = strings.Cut(word, " ")
		}
		p.assign(name, word)
		line = rest
	}
	return 0
}

func cmdTest(p *proc, argv []string) int {
	a := argv[1:]
	if argv[0] == "[" {
		if len(a) == 0 || a[len(a)-1] != "]" {
			return p.fail(2, "[: missing ]")
		}
		a = a[:len(a)-1]
	}
	not := len(a) > 0 && a[0] == "!"
	if not {
		a = a[1:]
	}
	if p.test(a) != not {
		return 0
	}
	return 1
}

func (p *proc) test(a []string) bool {
	switch len(a) {
	case 0:
		return false
	case 1:
		return a[0] != ""
	case 2:
		return p.testOne(a[0], a[1])
	}
	x, _ := strconv.ParseInt(a[0], 10, 64)
	y, _ := strconv.ParseInt(a[2], 10, 64)
	switch a[1] {
	case "=":
		return a[0] == a[2]
	case "!=":
		return a[0] != a[2]
	case "-eq":
		return x == y
	case "-ne":
		return x != y
	case "-lt":
		return x < y
	case "-le":
		return x <= y
	case "-gt":
		return x > y
	case "-ge":
		return x >= y
	}
	return false
}

func (p *proc) testOne(op, arg string) bool {
	switch op {
	case "-n":
		return arg != ""
	case "-z":
		return arg == ""
	case "-t":
		n, _ := strconv.Atoi(arg)
		_, ok := p.fds[min(max(n, 0), 2)].(*tty)
		return ok
	}
	info, err := p.view().Stat(p.abs(arg), op != "-L")
	if err != nil {
		return false
	}
	kind := info.Mode & syscall.S_IFMT
	switch op {
	case "-e":
		return true
	case "-f":
		return kind == syscall.S_IFREG
	case "-d":
		return kind == syscall.S_IFDIR
	case "-L":
		return kind == syscall.S_IFLNK
	case "-s":
		return info.Size > 0
	}
	return false
}
