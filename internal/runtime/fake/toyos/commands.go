package toyos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
		"exit": cmdExit, "cd": cmdCd, "export": cmdExport, "unset": cmdUnset, "trap": cmdTrap, "wait": cmdWait, "read": cmdRead,
		"test": cmdTest, "[": cmdTest, "kill": cmdKill, "sleep": cmdSleep,
		"echo": cmdEcho, "printf": cmdPrintf, "cat": cmdCat, "seq": cmdSeq, "yes": cmdYes, "head": cmdHead, "wc": cmdWc, "tr": cmdTr,
		"env": cmdEnv, "pwd": cmdPwd, "id": cmdID, "whoami": cmdWhoami, "hostname": cmdHostname, "uname": cmdUname,
		"stty": cmdStty, "tty": cmdTTY,
		"mkdir": cmdMkdir, "rm": cmdRm, "touch": cmdTouch, "ls": cmdLs, "chmod": cmdChmod, "ln": cmdLn, "mv": cmdMv, "readlink": cmdReadlink,
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
	prompt := func() {
		if _, ok := p.fds[0].(*tty); ok {
			p.put(1, "$ ")
		}
	}
	return p.subshell([]string{"sh"}, func(c *proc) int {
		for !c.stopped() {
			prompt()
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

func cmdEcho(p *proc, argv []string) int {
	words, end := argv[1:], "\n"
	if len(words) > 0 && words[0] == "-n" {
		words, end = words[1:], ""
	}
	return p.out(strings.Join(words, " ") + end)
}

func cmdPrintf(p *proc, argv []string) int {
	if len(argv) < 2 {
		return p.fail(2, "printf: usage: printf format [arguments]")
	}
	args := argv[2:]
	var b strings.Builder
	for {
		used := formatInto(&b, argv[1], args)
		args = args[min(used, len(args)):]
		if used == 0 || len(args) == 0 {
			return p.out(b.String())
		}
	}
}

// formatInto writes one round of a printf(1) format and returns how many
// arguments it took.
func formatInto(b *strings.Builder, format string, args []string) int {
	used := 0
	for i := 0; i < len(format); i++ {
		switch c := format[i]; {
		case c == '\\' && i+1 < len(format):
			i++
			i += escape(b, format[i:]) - 1
		case c == '%' && i+1 < len(format):
			i++
			if format[i] == '%' {
				b.WriteByte('%')
				continue
			}
			for i < len(format)-1 && format[i] >= '0' && format[i] <= '9' { // widths are not kept
				i++
			}
			arg := ""
			if used < len(args) {
				arg = args[used]
			}
			used++
			if format[i] == 'd' && arg == "" {
				arg = "0"
			}
			b.WriteString(arg)
		default:
			b.WriteByte(c)
		}
	}
	return used
}

// escape writes what the escape at the start of s, behind its backslash, stands
// for and returns its length.
func escape(b *strings.Builder, s string) int {
	if i := strings.IndexByte("abfnrtv\\\"", s[0]); i >= 0 {
		b.WriteByte("\a\b\f\n\r\t\v\\\""[i])
		return 1
	}
	n := 0
	for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
		n++
	}
	if v, err := strconv.ParseUint(s[:n], 8, 16); err == nil {
		b.WriteByte(byte(v))
		return n
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1
}

// each calls f with standard input, or with each of the named files.
func (p *proc) each(names []string, f func(file) error) int {
	if len(names) == 0 {
		names = []string{"-"}
	}
	code := 0
	for _, name := range names {
		src := p.fds[0].ref()
		if name != "-" {
			src.close()
			opened, err := p.openFor("<", name)
			if err != nil {
				code = p.fail(1, "%s: %s", name, reason(err))
				continue
			}
			src = opened
		}
		err := f(src)
		src.close()
		if err != nil && !errors.Is(err, io.EOF) {
			code = 1
		}
	}
	return code
}

// copyOut passes src on to standard output, changed by f.
func (p *proc) copyOut(src file, f func([]byte) ([]byte, bool)) error {
	b := make([]byte, 32<<10)
	for {
		n, err := src.read(p.ctx, b)
		if n > 0 {
			out, more := f(b[:n])
			if !p.put(1, string(out)) || !more {
				return io.EOF
			}
		}
		if err != nil {
			return err
		}
	}
}

func cmdCat(p *proc, argv []string) int {
	return p.each(argv[1:], func(src file) error {
		return p.copyOut(src, func(b []byte) ([]byte, bool) { return b, true })
	})
}

func cmdTr(p *proc, argv []string) int {
	if len(argv) != 3 {
		return p.fail(1, "tr: two sets are needed")
	}
	from, to := trSet(argv[1]), trSet(argv[2])
	return p.each(nil, func(src file) error {
		return p.copyOut(src, func(b []byte) ([]byte, bool) {
			for i, c := range b {
				if at := strings.IndexByte(from, c); at >= 0 && to != "" {
					b[i] = to[min(at, len(to)-1)]
				}
			}
			return b, true
		})
	})
}

// trSet expands "a-z".
func trSet(s string) string {
	if len(s) != 3 || s[1] != '-' {
		return s
	}
	var b strings.Builder
	for c := s[0]; c <= s[2]; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

func cmdHead(p *proc, argv []string) int {
	count, byBytes, names := 10, false, argv[1:]
	if len(names) > 1 && (names[0] == "-n" || names[0] == "-c") {
		count, _ = strconv.Atoi(names[1])
		byBytes, names = names[0] == "-c", names[2:]
	}
	return p.each(names, func(src file) error {
		left := count
		return p.copyOut(src, func(b []byte) ([]byte, bool) {
			if byBytes {
				n := min(left, len(b))
				left -= n
				return b[:n], left > 0
			}
			for i, c := range b {
				if c == '\n' {
					if left--; left == 0 {
						return b[:i+1], false
					}
				}
			}
			return b, true
		})
	})
}

func cmdWc(p *proc, argv []string) int {
	if len(argv) < 2 || argv[1] != "-c" && argv[1] != "-l" {
		return p.fail(1, "wc: -c or -l is needed")
	}
	n := 0
	code := p.each(argv[2:], func(src file) error {
		b := make([]byte, 32<<10)
		for {
			k, err := src.read(p.ctx, b)
			if argv[1] == "-c" {
				n += k
			} else {
				n += bytes.Count(b[:k], []byte{'\n'})
			}
			if err != nil {
				return err
			}
		}
	})
	p.out(fmt.Sprintf("%d\n", n))
	return code
}

func cmdSeq(p *proc, argv []string) int {
	nums := []int{1, 1, 0}
	switch args := argv[1:]; len(args) {
	case 1:
		nums[2], _ = strconv.Atoi(args[0])
	case 2:
		nums[0], _ = strconv.Atoi(args[0])
		nums[2], _ = strconv.Atoi(args[1])
	default:
		return p.fail(1, "seq: one or two numbers are needed")
	}
	var b strings.Builder
	for i := nums[0]; i <= nums[2]; i++ {
		fmt.Fprintln(&b, i)
		if b.Len() > 16<<10 {
			if !p.put(1, b.String()) {
				return 1
			}
			b.Reset()
		}
	}
	return p.out(b.String())
}

func cmdYes(p *proc, argv []string) int {
	word := "y"
	if len(argv) > 1 {
		word = strings.Join(argv[1:], " ")
	}
	block := strings.Repeat(word+"\n", 1+8192/(len(word)+1))
	for p.put(1, block) {
	}
	return 1
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
