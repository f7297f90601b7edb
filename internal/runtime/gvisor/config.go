package gvisor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"agentbox/internal/sandbox"
)

// settings are gVisor's flags for every sandbox. They are set, not left to
// defaults, so that an update of gVisor does not change them silently.
var settings = map[string]string{
	"platform":                "systrap",
	"network":                 "none", // loopback only
	"directfs":                "true", // what the compiled seccomp filter is made for
	"host-uds":                "none",
	"host-fifo":               "none",
	"overlay2":                "none", // the writable layer is asked for by annotations; see openLayer
	"gofer-network-namespace": "new",  // one for all would be kept by a mount that nobody takes away
	"host-settings":           "ignore",
	"ignore-cgroups":          "true", // gVisor would move this whole process into the sandbox's
	"in-sandbox-cgroup":       "v2",
	"sidecar-usage-policy":    "STRICT",
	"net-raw":                 "false",
	"debug":                   "false",
}

func newConfig(root string, rootless bool) (*config.Config, error) {
	fs := flag.NewFlagSet("gvisor", flag.ContinueOnError)
	config.RegisterFlags(fs)
	set := func(name, value string) error {
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("set gVisor's option %s: %w", name, err)
		}
		return nil
	}
	for name, value := range settings {
		if err := set(name, value); err != nil {
			return nil, err
		}
	}
	if err := set("root", root); err != nil {
		return nil, err
	}
	if err := set("rootless", fmt.Sprint(rootless)); err != nil {
		return nil, err
	}
	conf, err := config.NewFromFlags(fs)
	if err != nil {
		return nil, fmt.Errorf("configure gVisor: %w", err)
	}
	return conf, nil
}

// forSandbox returns a copy of conf for one sandbox.
func forSandbox(conf *config.Config, l sandbox.Limits, panicLog string) *config.Config {
	c := *conf
	c.PanicLog = panicLog
	// To spin instead of sleeping while the other side works is a gain only with
	// a processor to spare.
	c.SystrapDisableFastPath = guestCPUs(l) == 1
	return &c
}

// engineFD is above every number that a file has in a child.
const engineFD = 256

var engine struct {
	mu   sync.Mutex
	path string
	dir  *os.File
}

// useEngine makes path the program that gVisor's library executes. The library
// remembers it for the life of the process.
func useEngine(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find the engine: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("find the engine: %w", err)
	}
	engine.mu.Lock()
	defer engine.mu.Unlock()
	if engine.path != "" && engine.path != path {
		return fmt.Errorf("use engine %s: this process uses %s already: %w", path, engine.path, errdefs.ErrFailedPrecondition)
	}
	if engine.path != "" {
		return nil
	}
	// The sandbox's user, who is nobody on the host, executes the engine, but
	// need not have the right to walk to it. Through a descriptor nobody walks.
	fd, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the engine's directory: %w", err)
	}
	// High, because the child puts the files that it is given on low numbers.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, engineFD)
	unix.Close(fd)
	if err != nil {
		return fmt.Errorf("keep the engine's directory: %w", err)
	}
	engine.path, engine.dir = path, os.NewFile(uintptr(high), filepath.Dir(path))
	specutils.ExePath = fmt.Sprintf("/proc/self/fd/%d/%s", high, filepath.Base(path))
	log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}}) // else: our standard error
	return nil
}

// gvisorVersion is the version of the linked module.
func gvisorVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "gvisor.dev/gvisor" {
				return m.Version
			}
		}
	}
	return "unknown"
}
