package toyos

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
	"agentbox/internal/sandbox"
)

// System is one toy Unix. It gives a guest agent its launcher and its files.
type System struct {
	disk *disk
	wg   sync.WaitGroup // of processes and pumps

	maxProcs int64

	mu       sync.Mutex
	hostname string
	config   *guestv1.GuestConfig
	procs    map[int]*proc
	ports    map[uint16]*listener
	lastPid  int
	down     bool
}

var (
	_ agent.Launcher = (*System)(nil)
	_ agent.Files    = (*System)(nil)
)

// New boots a system with the files of d. It holds at most maxProcs processes;
// 0 is no limit.
func New(hostname string, d *Disk, maxProcs int64) *System {
	return &System{
		disk: d.disk, hostname: hostname, maxProcs: maxProcs, config: &guestv1.GuestConfig{}, procs: map[int]*proc{}, ports: map[uint16]*listener{}, lastPid: 1,
	}
}

// SetHostname changes the name that the system has for itself.
func (s *System) SetHostname(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hostname = name
}

// Shutdown kills everything and waits until nothing runs any more. Writers that
// were given to Start must not block by then.
func (s *System) Shutdown() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	_, _ = s.KillAll()
	s.wg.Wait()
}

// Configure takes the limits and defaults of the host.
func (s *System) Configure(c *guestv1.GuestConfig) error {
	if c == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c
	return nil
}

// KillAll ends every process.
func (s *System) KillAll() (int, error) {
	all := s.all()
	for _, p := range all {
		p.kill(int(syscall.SIGKILL))
	}
	for _, p := range all {
		<-p.done
	}
	return len(all), nil
}

func (s *System) all() []*proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.procs))
}

func (s *System) settings() (*guestv1.GuestConfig, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, s.hostname
}

// SetMaxProcs changes how many processes the system holds at most.
func (s *System) SetMaxProcs(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxProcs = n
}

// register gives p a pid and counts its goroutine.
func (s *System) register(p *proc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := func(limit int64) bool { return limit > 0 && int64(len(s.procs)) >= limit }
	if s.down || full(s.maxProcs) || full(s.config.GetMaxPids()) {
		return syscall.EAGAIN
	}
	s.lastPid++
	p.pid = s.lastPid
	s.procs[p.pid] = p
	s.wg.Add(1)
	return nil
}

func (s *System) unregister(p *proc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.procs, p.pid)
}

// job is a command of the agent with all processes that came from it.
type job struct {
	sys     *System
	first   *proc
	stdin   io.WriteCloser
	tty     *tty
	outputs []*pump
	marks   []int64 // what the outputs had when the first process ended
}

// Start runs one command.
func (s *System) Start(spec agent.ProcessSpec, stdout, stderr io.Writer) (agent.Process, error) {
	config, _ := s.settings()
	user := spec.User
	if user == "" {
		user = config.GetUser()
	}
	who, err := s.disk.users.lookup(user)
	if err != nil {
		return nil, err
	}
	argv := spec.Argv
	if spec.Shell != "" {
		argv = []string{"/bin/sh", "-c", spec.Shell}
	}
	dir := spec.Dir
	if dir == "" {
		dir = who.home
	}
	if info, err := s.disk.as(who, "/").Stat(dir, true); err != nil || info.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return nil, &agent.StartError{Code: sandbox.ExitNotExecutable, Message: fmt.Sprintf("working directory %s: not a directory", dir)}
	}
	set := func(p *proc) {
		p.cred, p.dir, p.argv = who, path.Clean(dir), argv
		p.env["PATH"], p.env["HOME"], p.env["USER"] = "/usr/local/bin:/usr/bin:/bin", who.home, who.name
		if spec.TTY {
			p.env["TERM"] = "xterm-256color"
		}
		for _, e := range config.GetEnv() {
			p.setEnv(string(e))
		}
		for _, e := range spec.Env {
			p.setEnv(e)
		}
	}
	run, serr := s.find(who, dir, argv)
	if serr != nil {
		return nil, serr
	}
	return s.launch(spec, stdout, stderr, set, run)
}

func (s *System) launch(spec agent.ProcessSpec, stdout, stderr io.Writer, set func(*proc), run func(*proc) int) (agent.Process, error) {
	j := &job{sys: s}
	fds := j.wire(spec, stdout, stderr)
	s.wg.Add(len(j.outputs))
	for _, o := range j.outputs {
		go func() { defer s.wg.Done(); o.run() }()
	}
	started := make(chan struct{})
	first, err := s.spawn(j, nil, fds, set, func(p *proc) int {
		<-started
		return run(p)
	})
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	j.first = first
	if k, ok := j.stdin.(*keyboard); ok {
		k.ctx = first.ctx
	}
	close(started)
	return j, nil
}

// wire makes the files of the first process.
func (j *job) wire(spec agent.ProcessSpec, stdout, stderr io.Writer) [3]file {
	output := func(to io.Writer) *pipeWriter {
		r, w := newPipe()
		j.outputs = append(j.outputs, newPump(r, to))
		return w
	}
	if spec.TTY {
		j.tty = newTTY(output(stdout), spec.Cols, spec.Rows, func() { _ = j.Signal(int(syscall.SIGINT), true) })
		j.stdin = &keyboard{t: j.tty}
		return [3]file{j.tty, j.tty.ref(), j.tty.ref()}
	}
	fds := [3]file{null{}, output(stdout), output(stderr)}
	if spec.Stdin {
		r, w := newPipe()
		fds[0], j.stdin = r, &stdin{w: w, first: func() *proc { return j.first }}
	}
	return fds
}

// stdin is the host's end of a command's standard input.
type stdin struct {
	w      *pipeWriter
	first  func() *proc
	closed sync.Once
}

func (s *stdin) Write(b []byte) (int, error) { return s.w.write(s.first().ctx, b) }

func (s *stdin) Close() error {
	s.closed.Do(s.w.close)
	return nil
}

func (j *job) Pid() int              { return j.first.pid }
func (j *job) Stdin() io.WriteCloser { return j.stdin }

func (j *job) Resize(cols, rows uint16) error {
	if j.tty == nil {
		return syscall.ENOTTY
	}
	j.tty.resize(cols, rows)
	return nil
}

func (j *job) Signal(signal int, tree bool) error {
	if !tree {
		select {
		case <-j.first.done:
			return syscall.ESRCH
		default:
			j.first.kill(signal)
			return nil
		}
	}
	for _, p := range j.sys.all() {
		if p.job == j {
			p.kill(signal)
		}
	}
	return nil
}

func (j *job) Wait() agent.ExitStatus {
	<-j.first.done
	for _, o := range j.outputs {
		j.marks = append(j.marks, o.from.p.total())
	}
	if j.tty != nil {
		j.tty.hangUp()
	}
	if j.stdin != nil {
		_ = j.stdin.Close()
	}
	return agent.ExitStatus{Code: j.first.code, Signal: j.first.signal}
}

func (j *job) Drain() {
	for i, o := range j.outputs {
		o.drain(j.marks[i])
	}
}

func (p *proc) setEnv(e string) {
	if name, value, ok := strings.Cut(e, "="); ok {
		p.env[name] = value
	}
}
