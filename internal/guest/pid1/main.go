//go:build linux

package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/agent"
)

// Init is the life of the first process. It returns only when it can't do its
// work.
func Init(build string) error {
	tune()
	if err := takeSignals(); err != nil {
		return err
	}
	s, err := takeStreams()
	if err != nil {
		return err
	}
	unix.Umask(agent.Umask)
	warn(boundSockets())
	groups, err := openCgroups()
	if err != nil {
		return err // without them commands could leave processes behind, and exceed the limit of processes as root
	}
	u := newUsers()
	l, err := newLauncher(u, groups)
	if err != nil {
		return err
	}
	s.agent = agent.New(agent.Options{
		Launcher: l, Files: &files{u, l.config}, Ports: network{}, Loopback: &loopback{}, Build: build, Hello: takeHostname, Idle: debug.FreeOSMemory,
	})
	return s.serveDonated()
}

// tune makes the runtime modest, since every sandbox has one of it. The agent
// moves bytes and waits; a second processor for it would cost more in waking
// threads, which is dear in a sandbox, than it gains: measured at half the time
// for a command on a busy machine.
func tune() {
	const percent = 40
	debug.SetGCPercent(percent)
	runtime.GOMAXPROCS(1)
}

// takeHostname follows the host's name for the sandbox, which a restored copy
// must not share with its template. It needs a right that not every sandbox
// has; then the name from the start stays.
func takeHostname(h *guestv1.Hello) {
	const longest = 64 // HOST_NAME_MAX
	if name := h.GetHostname(); name != "" && len(name) <= longest {
		_ = unix.Sethostname([]byte(name))
		warn(nameInHosts(name))
	}
}

// nameInHosts lets programs look the sandbox's own name up. An image without
// /etc has nothing that would.
func nameInHosts(name string) error {
	fd, err := unix.Open("/etc/hosts", unix.O_RDWR|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open /etc/hosts: %w", err)
	}
	f := os.NewFile(uintptr(fd), "/etc/hosts")
	defer f.Close()
	b, err := readBounded(f, maxHosts)
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(string(b)), name) {
		return nil
	}
	line := "127.0.1.1\t" + name + "\n" // the address that Debian uses for it
	if len(b) > 0 && b[len(b)-1] != '\n' {
		line = "\n" + line
	}
	_, err = f.WriteString(line)
	return err
}

// maxHosts is far more than an image's own hosts take.
const maxHosts = 1 << 20

// warn tells on standard error, which a sandbox may have nowhere to show.
func warn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "agentbox-guest:", err)
	}
}
