package toyos

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"syscall"

	"agentbox/internal/guest/agent"
	"agentbox/internal/sandbox"
)

// find finds what argv runs: a command of this package, or a file that may
// be executed and holds a shell script.
func (s *System) find(who cred, dir string, argv []string) (func(*proc) int, *agent.StartError) {
	name := argv[0]
	if _, ok := commands()[commandName(name)]; ok {
		return func(p *proc) int { return p.invoke(argv) }, nil
	}
	missing := &agent.StartError{Code: sandbox.ExitNotFound, Message: name + ": not found"}
	if !strings.Contains(name, "/") {
		return nil, missing
	}
	src, err := s.disk.as(who, dir).script(name)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return nil, missing
	case err != nil:
		return nil, &agent.StartError{Code: sandbox.ExitNotExecutable, Message: name + ": Permission denied"}
	}
	return func(p *proc) int {
		p.args = argv
		return p.runScript(src)
	}, nil
}

// commandName takes the directory off the name of a program.
func commandName(name string) string {
	for _, dir := range []string{"/bin/", "/usr/bin/", "/usr/local/bin/"} {
		if base, ok := strings.CutPrefix(name, dir); ok {
			return base
		}
	}
	return name
}

// script reads an executable file.
func (v *view) script(name string) (string, error) {
	f, err := v.Open(name, nil)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Mode&0o111 == 0 {
		return "", syscall.EACCES
	}
	b, err := io.ReadAll(f)
	return string(b), err
}

func (p *proc) runScript(src string) int {
	list, err := parse(src)
	if err != nil {
		return p.fail(2, "sh: %v", err)
	}
	return p.runList(list)
}

// runList runs the steps of a list and returns the last status.
func (p *proc) runList(list []step) int {
	skip := false
	for _, s := range list {
		if p.stopped() {
			break
		}
		if !skip {
			p.runStep(s)
		}
		switch s.joint {
		case "&&":
			skip = p.status != 0
		case "||":
			skip = p.status == 0
		default:
			skip = false
		}
	}
	return p.status
}

func (p *proc) runStep(s step) {
	if s.joint == "&" {
		fds := p.dup()
		fds[0].close()
		fds[0] = null{}
		c, err := p.fork(fds, func(c *proc) int { return c.runPipeline(s.pipeline) })
		if err != nil {
			p.status = p.fail(2, "sh: Cannot fork")
			p.exiting = true
			return
		}
		p.lastBack, p.status = c.pid, 0
		return
	}
	p.status = p.runPipeline(s.pipeline)
	if s.not {
		p.status = map[bool]int{true: 1, false: 0}[p.status == 0]
	}
}

func (p *proc) runPipeline(cs []*command) int {
	if len(cs) == 1 {
		return p.runCommand(cs[0])
	}
	var last *proc
	in := p.fds[0].ref()
	for i, c := range cs {
		fds := [3]file{in, p.fds[1].ref(), p.fds[2].ref()}
		if i < len(cs)-1 {
			r, w := newPipe()
			fds[1].close()
			in, fds[1] = r, w
		}
		child, err := p.fork(fds, func(k *proc) int { return k.runCommand(c) })
		if err != nil {
			if i < len(cs)-1 {
				in.close()
			}
			p.exiting = true
			return p.fail(2, "sh: Cannot fork")
		}
		last = child
	}
	status := p.wait(last)
	for _, c := range p.children[len(p.children)-len(cs):] {
		p.wait(c)
	}
	return status
}

func (p *proc) runCommand(c *command) int {
	undo, err := p.redirect(c.redirs)
	defer undo()
	if err != nil {
		return p.fail(2, "sh: %v", err)
	}
	switch c.kind {
	case "":
		return p.runSimple(c.words)
	case "(":
		child, err := p.fork(p.dup(), func(k *proc) int { return k.runList(c.bodies[0]) })
		if err != nil {
			return p.fail(2, "sh: Cannot fork")
		}
		return p.wait(child)
	case "{":
		return p.runList(c.bodies[0])
	case "if":
		return p.runIf(c)
	case "for":
		return p.runFor(c)
	default:
		return p.runLoop(c)
	}
}

func (p *proc) runIf(c *command) int {
	for i, cond := range c.cond {
		if p.runList(cond) == 0 {
			return p.runList(c.bodies[i])
		}
		if p.stopped() {
			return p.status
		}
	}
	if len(c.bodies) > len(c.cond) {
		return p.runList(c.bodies[len(c.cond)])
	}
	return 0
}

func (p *proc) runLoop(c *command) int {
	status := 0
	for !p.stopped() {
		if (p.runList(c.cond[0]) == 0) != (c.kind == "while") || p.stopped() {
			break
		}
		status = p.runList(c.bodies[0])
	}
	if p.exiting {
		return p.status
	}
	return status
}

func (p *proc) runFor(c *command) int {
	words, err := p.expand(c.words)
	if err != nil {
		return p.fail(2, "sh: %v", err)
	}
	status := 0
	for _, w := range words {
		if p.stopped() {
			break
		}
		p.assign(c.name, w)
		status = p.runList(c.bodies[0])
	}
	return status
}

func (p *proc) assign(name, value string) {
	if _, exported := p.env[name]; exported {
		p.env[name] = value
		return
	}
	p.local[name] = value
}

func assignment(word string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(word, "=")
	for i := range len(name) {
		if !isName(name[i]) || i == 0 && name[0] <= '9' {
			return "", "", false
		}
	}
	return name, value, ok && name != ""
}

// runSimple runs a command with its assignments. Those before a command last as
// long as it runs.
func (p *proc) runSimple(words []string) int {
	var before [][2]string
	for len(words) > 0 {
		name, raw, ok := assignment(words[0])
		if !ok {
			break
		}
		value, err := p.expandOne(raw)
		if err != nil {
			return p.fail(2, "sh: %v", err)
		}
		before = append(before, [2]string{name, value})
		words = words[1:]
	}
	argv, err := p.expand(words)
	if err != nil {
		return p.fail(2, "sh: %v", err)
	}
	if len(argv) == 0 {
		for _, a := range before {
			p.assign(a[0], a[1])
		}
		return 0
	}
	for _, a := range before {
		old, had := p.env[a[0]]
		p.env[a[0]] = a[1]
		defer func() {
			if had {
				p.env[a[0]] = old
			} else {
				delete(p.env, a[0])
			}
		}()
	}
	return p.invoke(argv)
}

// invoke runs a command of this package in p itself, a script in a child.
func (p *proc) invoke(argv []string) int {
	if f, ok := commands()[commandName(argv[0])]; ok {
		return f(p, argv)
	}
	run, serr := p.sys.find(p.cred, p.dir, argv)
	if serr != nil {
		return p.fail(serr.Code, "sh: %s", serr.Message)
	}
	c, err := p.fork(p.dup(), run)
	if err != nil {
		return p.fail(2, "sh: Cannot fork")
	}
	return p.wait(c)
}

// redirect opens the files of rs in place of p's; undo puts those back.
func (p *proc) redirect(rs []redir) (undo func(), err error) {
	old := p.fds
	var opened []file
	undo = func() {
		p.fds = old
		for _, f := range opened {
			f.close()
		}
	}
	for _, r := range rs {
		word, err := p.expandOne(r.word)
		if err != nil {
			return undo, err
		}
		if r.op == ">&" {
			if i := slices.Index([]string{"0", "1", "2"}, word); i >= 0 {
				p.fds[r.fd] = p.fds[i]
				continue
			}
			return undo, fmt.Errorf("%s: bad file descriptor", word)
		}
		f, err := p.openFor(r.op, word)
		if err != nil {
			return undo, err
		}
		opened = append(opened, f)
		p.fds[r.fd] = f
	}
	return undo, nil
}

func (p *proc) openFor(op, name string) (file, error) {
	if name == "/dev/null" {
		return null{}, nil
	}
	v := p.view()
	var f agent.File
	var err error
	switch op {
	case "<":
		f, err = v.Open(name, nil)
	case ">":
		f, err = v.Create(name, 0o644, agent.Truncate)
	default:
		f, err = v.Create(name, 0o644, agent.Append)
	}
	if err != nil {
		return nil, err
	}
	o, ok := f.(*openFile)
	if !ok {
		return nil, syscall.EBADF
	}
	return o, nil
}

func (p *proc) view() *view { return p.sys.disk.as(p.cred, p.dir) }

func (p *proc) abs(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(p.dir, name)
}
