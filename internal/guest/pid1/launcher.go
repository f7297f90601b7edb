//go:build linux

package pid1

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// defaultUser runs commands when neither the host nor the caller names one.
const defaultUser = "1000"

// launcher starts real processes.
type launcher struct {
	reaper *reaper
	users  *users
	groups *cgroups // nil where the sandbox has none

	plain  *plain
	null   int    // /dev/null, for commands without input
	nofile uint64 // limit of open files that commands inherit

	trust trust

	mu   sync.Mutex
	conf *guestv1.GuestConfig
}

func newLauncher(u *users, g *cgroups) (*launcher, error) {
	l := &launcher{reaper: newReaper(), users: u, groups: g}
	var err error
	if l.plain, err = newPlain(); err != nil {
		return nil, err
	}
	if l.null, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return nil, fmt.Errorf("read the limit of open files: %w", err)
	}
	l.nofile = lim.Cur
	return l, nil
}

// nprocSlack is what RLIMIT_NPROC allows beyond the limit of processes: root's
// count includes the threads of the agent.
const nprocSlack = 64

// Configure applies the sandbox's limits and what its programs are to trust. The
// control group is what holds; RLIMIT_NPROC holds for each user even if guest root
// finds a way around it.
func (l *launcher) Configure(c *guestv1.GuestConfig) error {
	l.mu.Lock()
	l.conf = c
	l.mu.Unlock()
	return errors.Join(l.limitPids(c.GetMaxPids()), l.trust.give(c.GetTrust()))
}

func (l *launcher) limitPids(n int64) error {
	if n <= 0 {
		return nil
	}
	lim := &unix.Rlimit{Cur: uint64(n) + nprocSlack, Max: uint64(n) + nprocSlack}
	err := unix.Setrlimit(unix.RLIMIT_NPROC, lim)
	if l.groups != nil {
		err = errors.Join(err, l.groups.limit(n))
	}
	return err
}

func (l *launcher) config() *guestv1.GuestConfig {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conf
}

// KillAll ends every process of every command.
func (l *launcher) KillAll() (int, error) {
	if l.groups != nil {
		return l.groups.killAll()
	}
	return killOthers()
}

// Start runs one command.
func (l *launcher) Start(s agent.ProcessSpec, stdout, stderr io.Writer) (agent.Process, error) {
	id, err := l.users.lookup(cmp.Or(s.User, defaultUser))
	if err != nil {
		return nil, err
	}
	env := environment(s, id, l.config().GetNetwork(), &l.trust)
	dir, err := workingDir(s.Dir, id)
	if err != nil {
		return nil, err
	}
	file, argv, err := findProgram(s, dir, valueOf(env, "PATH"))
	if err != nil {
		return nil, err
	}
	if err := mustFit(file, argv, env); err != nil {
		return nil, err
	}
	p := &process{l: l, stdout: stdout, stderr: stderr}
	files, err := p.openFiles(s, id)
	if err != nil {
		p.closeFiles()
		return nil, err
	}
	p.prog = program{
		file: file, argv: argv, env: env, dir: dir, files: files, terminal: s.TTY, id: id, openFiles: l.openFiles(), cgroup: -1,
	}
	err = p.fork(l.forkerFor(s, id))
	p.closeTheirs()
	if err != nil {
		p.closeFiles()
		return nil, l.explainFork(err, p.prog)
	}
	p.pump()
	return p, nil
}

// openFiles is a command's limit of open files where it is below this process's
// own, which must be enough for the agent; else 0.
func (l *launcher) openFiles() uint64 {
	if n := l.config().GetOpenFiles(); n > 0 && uint64(n) < l.nofile {
		return uint64(n)
	}
	return 0
}

// forkerFor: root, and others where setuid programs are to work, may gain what
// the bounding set allows.
func (l *launcher) forkerFor(s agent.ProcessSpec, id identity) forker {
	if id.uid == 0 || s.AllowNewPrivs {
		return l.plain.do
	}
	return confined
}

func workingDir(dir string, id identity) (string, error) {
	var st unix.Stat_t
	if dir == "" {
		if unix.Stat(id.home, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return id.home, nil
		}
		return "/", nil
	}
	dir = below("/", dir)
	err := unix.Stat(dir, &st)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	switch err {
	case nil:
		return dir, nil
	case unix.ENOENT:
		return "", notExecutable("working directory "+dir, "No such file or directory")
	case unix.ENOTDIR:
		return "", notExecutable("working directory "+dir, "Not a directory")
	}
	return "", notExecutable("working directory "+dir, describe(err))
}

// explainFork tells why a program that is there did not start.
func (l *launcher) explainFork(err error, p program) error {
	var e syscall.Errno
	if !errors.As(err, &e) {
		return err
	}
	if s := new(spawnError); errors.As(err, &s) && s.call == unix.SYS_CHDIR {
		return notExecutable("working directory "+p.dir, describe(e))
	}
	switch e {
	case syscall.EAGAIN:
		return notExecutable(p.file, fmt.Sprintf("Resource temporarily unavailable: the sandbox's limit of %d processes is reached", l.config().GetMaxPids()))
	case syscall.ENOENT:
		return notFound(p.file, "its interpreter was not found")
	case syscall.EACCES:
		return notExecutable(p.file, fmt.Sprintf("Permission denied (as uid %d, in %s)", p.id.uid, p.dir))
	case syscall.EMFILE, syscall.ENFILE:
		return fmt.Errorf("start %s: %w", p.file, err)
	}
	return explain(p.file, e)
}

// fork starts the program on a forker's thread, in a control group of its own.
func (p *process) fork(f forker) (err error) {
	if p.l.groups != nil {
		if p.job, err = p.l.groups.newJob(); err != nil {
			return err
		}
		defer p.job.close()
		p.prog.cgroup = p.job.fd
	}
	for end := time.Now().Add(forkPatience); ; time.Sleep(forkPause) {
		p.child, p.exit, err = p.l.reaper.launch(func() (c *child, err error) {
			if e := f(func() { c, err = spawn(p.prog) }); e != nil {
				err = e
			}
			return c, err
		})
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(end) {
			break
		}
	}
	if err != nil && p.job != nil {
		p.job.remove()
	}
	return err
}

// A sandbox at its limit of processes often has room a moment later.
const (
	forkPatience = time.Second
	forkPause    = 50 * time.Millisecond
)
