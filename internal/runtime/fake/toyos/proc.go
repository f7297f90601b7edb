package toyos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// killed is why the context of a process ended.
type killed struct{ signal int }

func (k killed) Error() string { return fmt.Sprintf("killed by signal %d", k.signal) }

// proc is one process. Its fields are its own goroutine's, but for those under
// mu and what never changes.
type proc struct {
	sys    *System
	job    *job
	parent *proc
	pid    int
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed at its end; code and signal are set then

	argv  []string
	cred  cred
	dir   string
	env   map[string]string
	local map[string]string // shell variables that are not exported
	args  []string          // $0, $1, …
	fds   [3]file

	status   int  // $?
	lastBack int  // $!
	exiting  bool // exit was run
	children []*proc

	mu      sync.Mutex
	ignored map[int]bool

	code, signal int
}

// spawn makes a process of job j that runs body. The files become its own. With
// a parent it inherits the rest from there.
func (s *System) spawn(j *job, parent *proc, fds [3]file, set func(*proc), body func(*proc) int) (*proc, error) {
	p := &proc{sys: s, job: j, parent: parent, done: make(chan struct{}), fds: fds,
		env: map[string]string{}, local: map[string]string{}, ignored: map[int]bool{}}
	if parent != nil {
		parent.inherit(p)
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	if set != nil {
		set(p)
	}
	if err := s.register(p); err != nil {
		p.cancel(err)
		p.closeFiles()
		return nil, err
	}
	go func() {
		defer s.wg.Done()
		p.end(body(p))
	}()
	return p, nil
}

func (p *proc) inherit(c *proc) {
	c.cred, c.dir, c.argv, c.status = p.cred, p.dir, p.argv, p.status
	c.args = append(c.args, p.args...)
	for k, v := range p.env {
		c.env[k] = v
	}
	for k, v := range p.local {
		c.local[k] = v
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.ignored {
		c.ignored[s] = true
	}
}

// fork makes a child with files of its own.
func (p *proc) fork(fds [3]file, body func(*proc) int) (*proc, error) {
	c, err := p.sys.spawn(p.job, p, fds, nil, body)
	if err != nil {
		return nil, err
	}
	p.children = append(p.children, c)
	return c, nil
}

// end records how the process ended and lets go of what it held.
func (p *proc) end(code int) {
	p.code = code & 0xff
	var k killed
	if errors.As(context.Cause(p.ctx), &k) {
		p.code, p.signal = 0, k.signal
	}
	p.closeFiles()
	p.cancel(errors.New("ended"))
	p.sys.unregister(p)
	close(p.done)
}

func (p *proc) closeFiles() {
	for _, f := range p.fds {
		if f != nil {
			f.close()
		}
	}
}

// dup returns the files of p as a child's own.
func (p *proc) dup() [3]file {
	var f [3]file
	for i := range f {
		f[i] = p.fds[i].ref()
	}
	return f
}

// stopped reports whether the shell must not go on.
func (p *proc) stopped() bool { return p.exiting || p.ctx.Err() != nil }

// wait waits for another process and gives its status as a shell does.
func (p *proc) wait(c *proc) int {
	select {
	case <-c.done:
	case <-p.ctx.Done():
		return 1
	}
	if c.signal != 0 {
		return 128 + c.signal
	}
	return c.code
}

// Signals that do nothing to a process that does not ask for them, signal(7).
var harmless = map[int]bool{
	0: true, int(syscall.SIGCHLD): true, int(syscall.SIGCONT): true,
	int(syscall.SIGURG): true, int(syscall.SIGWINCH): true,
}

func (p *proc) kill(signal int) {
	p.mu.Lock()
	ignored := p.ignored[signal] && signal != int(syscall.SIGKILL)
	p.mu.Unlock()
	if !ignored && !harmless[signal] {
		p.cancel(killed{signal})
	}
}

func (p *proc) ignore(signal int, yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ignored[signal] = yes
}

// Output of commands. A process that writes where nobody reads dies of SIGPIPE.

func (p *proc) put(fd int, s string) bool {
	_, err := p.fds[fd].write(p.ctx, []byte(s))
	if errors.Is(err, syscall.EPIPE) {
		p.kill(int(syscall.SIGPIPE))
	}
	return err == nil
}

func (p *proc) out(s string) int {
	if !p.put(1, s) {
		return 1
	}
	return 0
}

func (p *proc) fail(code int, format string, args ...any) int {
	p.put(2, fmt.Sprintf(format, args...)+"\n")
	return code
}
