//go:build linux

package pid1

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
)

// process is one command that runs.
type process struct {
	l              *launcher
	prog           program
	child          *child
	exit           <-chan exit
	job            *job // nil without control groups
	stdout, stderr io.Writer

	in     *os.File // the writing end of stdin, or the terminal
	wide   bool     // in was made larger; only the writer looks at it
	tty    *os.File
	pumps  []*pump
	theirs []int // descriptors that only the command needs

	mu    sync.Mutex
	over  bool // the first process was reaped: its pid may be another's
	sized int  // how often the terminal was given a size
	eof   sync.Once
}

// openFiles makes standard input, output and error of the command and returns
// its ends of them.
func (p *process) openFiles(s agent.ProcessSpec, id identity) (files [3]int, err error) {
	if s.TTY {
		tty, slave, err := openTerminal(s.Cols, s.Rows, id)
		if err != nil {
			return files, err
		}
		p.tty, p.in, p.theirs = tty, tty, []int{slave}
		p.pumps = []*pump{newPump(tty, p.stdout, p.l.reaper.look)}
		return [3]int{slave, slave, slave}, nil
	}
	files[0] = p.l.null
	if s.Stdin {
		r, w, err := pipe(id)
		if err != nil {
			return files, err
		}
		p.theirs = append(p.theirs, r)
		files[0] = r
		if p.in, err = ours(w); err != nil {
			return files, err
		}
	}
	for i, to := range []io.Writer{p.stdout, p.stderr} {
		r, w, err := pipe(id)
		if err != nil {
			return files, err
		}
		p.theirs = append(p.theirs, w)
		files[i+1] = w
		f, err := ours(r)
		if err != nil {
			return files, err
		}
		p.pumps = append(p.pumps, newPump(f, to, p.l.reaper.look))
	}
	return files, nil
}

// pipe makes a pipe that the command's user owns, so that it can be opened as
// /dev/stdout and /dev/stderr.
func pipe(owner identity) (r, w int, err error) {
	var fd [2]int
	if err := unix.Pipe2(fd[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, fmt.Errorf("make a pipe: %w", err)
	}
	if owner.uid == 0 {
		return fd[0], fd[1], nil
	}
	if err := unix.Fchown(fd[0], int(owner.uid), int(owner.gid)); err != nil {
		unix.Close(fd[0])
		unix.Close(fd[1])
		return -1, -1, fmt.Errorf("give away a pipe: %w", err)
	}
	return fd[0], fd[1], nil
}

// fionbio is FIONBIO of Linux's asm-generic/ioctls.h.
const fionbio = 0x5421

// ours makes a file of our end of a pipe, which must never block a thread. The
// command's end stays as programs expect it.
func ours(fd int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(fd, fionbio, 1); err != nil { // one call, where fcntl takes two
		unix.Close(fd)
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	return os.NewFile(uintptr(fd), "pipe"), nil
}

func (p *process) closeTheirs() {
	for _, fd := range p.theirs {
		unix.Close(fd)
	}
	p.theirs = nil
}

func (p *process) closeFiles() {
	p.closeTheirs()
	if p.in != nil {
		p.in.Close()
	}
	for _, pump := range p.pumps {
		pump.f.Close()
	}
}

func (p *process) pump() {
	for _, pump := range p.pumps {
		go pump.run()
	}
}

// Pid of the first process.
func (p *process) Pid() int { return p.child.pid }

// Stdin takes input.
func (p *process) Stdin() io.WriteCloser {
	if p.in == nil {
		return nil
	}
	return (*input)(p)
}

type input process

// Write makes the pipe larger for input that comes in large pieces, so that the
// command is woken for more than one of them.
func (i *input) Write(b []byte) (int, error) {
	if len(b) == guest.MaxFrame && !i.wide && i.tty == nil {
		i.wide = true
		if raw, err := i.in.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeMax) })
		}
	}
	return i.in.Write(b)
}

// Close is end-of-file: for a terminal the character that means it.
func (i *input) Close() (err error) {
	i.eof.Do(func() {
		if i.tty != nil {
			_, err = i.tty.Write([]byte{eot})
			return
		}
		err = i.in.Close()
	})
	return err
}

const eot = 4 // control-D

// Resize sets the size of the terminal, and again if it is soon the one before.
func (p *process) Resize(cols, rows uint16) error {
	if p.tty == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before, err := sizeOf(p.tty)
	if err != nil {
		return err
	}
	if err := setSize(p.tty, cols, rows); err != nil {
		return err
	}
	p.sized++
	this := p.sized
	time.AfterFunc(sizeStays, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if now, err := sizeOf(p.tty); err == nil && now == before && p.sized == this {
			_ = setSize(p.tty, cols, rows) // a terminal that is gone has no size
		}
	})
	return nil
}

// sizeStays is when a new size is looked at again. Readline, with which bash reads its
// lines, reads the size before each prompt and sets what it has read: it takes back one
// that comes in between.
const sizeStays = 200 * time.Millisecond

// Signal sends a signal.
func (p *process) Signal(sig int, tree bool) error {
	s := unix.Signal(sig)
	switch {
	case tree && p.job == nil:
		return p.signalTree(s)
	case tree && s == unix.SIGKILL:
		return p.job.kill()
	case tree:
		return p.job.signal(s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	return unix.Kill(p.child.pid, s)
}

// Wait returns when the first process has ended.
func (p *process) Wait() agent.ExitStatus {
	e := <-p.exit
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	st := agent.ExitStatus{
		CPUTime:    time.Duration(unix.TimevalToNsec(e.usage.Utime) + unix.TimevalToNsec(e.usage.Stime)),
		PeakMemory: peakMemory(&e.usage),
	}
	if err := p.child.failure(); err != nil {
		st.NotStarted = p.l.explainFork(err, p.prog)
		return st
	}
	if e.status.Signaled() {
		st.Signal = int(e.status.Signal())
		return st
	}
	st.Code = e.status.ExitStatus()
	return st
}

// peakMemory is the most bytes that a child had; 0 when that can't be told. A
// child begins as a sharer of this process's memory, so the kernel counts at
// least as much for it as this process ever had.
func peakMemory(child *unix.Rusage) int64 {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil || child.Maxrss <= own.Maxrss {
		return 0
	}
	return child.Maxrss << 10
}

// Drain passes on what is in the pipes. What processes that outlive the command
// write later is read and dropped, so that they don't die of it; a terminal is
// hung up.
func (p *process) Drain() {
	for _, pump := range p.pumps {
		pump.drain()
	}
	if p.in != nil {
		p.in.Close()
	}
	if p.job != nil {
		go func() { // nobody waits for it
			p.job.remove()
			p.job.g.prepare()
		}()
	}
}
