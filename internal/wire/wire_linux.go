// Package wire puts the parts of this machine's back end together. It is the one
// place that knows which they are.
package wire

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"

	"agentbox/internal/cgroup"
	"agentbox/internal/cli"
	"agentbox/internal/datadir"
	"agentbox/internal/doctor"
	"agentbox/internal/image"
	"agentbox/internal/local"
	"agentbox/internal/programs"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/gvisor"
)

// Local is what the command line acts on.
func Local() *cli.Local {
	return &cli.Local{
		Images: Images, Backend: Backend, Facts: Facts, Programs: Programs, Engine: Engine, PurgeHost: PurgeHost, Network: Network,
		Serve: Serve, DaemonRuns: DaemonRuns, ReclaimDaemon: ReclaimDaemon,
	}
}

// Images opens the image store of a data directory.
func Images(dataDir string) (*image.Store, error) {
	if err := datadir.Make(dataDir); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	path, build, err := programs.Guest(dataDir)
	if err != nil {
		return nil, fmt.Errorf("lay out the guest agent: %w", err)
	}
	s, err := image.Open(filepath.Join(dataDir, "images"), image.Agent{Path: path, Build: build})
	if err != nil {
		return nil, err
	}
	s.KeepFor(func() ([]string, error) { return gvisor.ImagesOf(filepath.Join(dataDir, daemonDir)) })
	return s, nil
}

// Backend makes gVisor back ends for a data directory.
func Backend(dataDir string) local.Backend {
	return func(ownerID, dir string) (runtime.Runtime, error) {
		engine, err := programs.Engine(dataDir)
		if err != nil {
			return nil, fmt.Errorf("lay out the engine: %w", err)
		}
		guest, _, err := programs.Guest(dataDir)
		if err != nil {
			return nil, fmt.Errorf("lay out the guest agent: %w", err)
		}
		return gvisor.New(gvisor.Options{
			Dir: dir, EnginePath: engine, GuestPath: guest,
			Cgroups: cgroup.Detect(cgroup.Options{Owner: ownerID}),
		})
	}
}

// Facts are what the doctor judges.
func Facts(dataDir string) doctor.Env {
	e := doctor.HostEnv(dataDir)
	if e.Disk.Err == nil {
		e.Volumes = volumeFacts(dataDir)
	}
	return e
}

// Programs identifies the engine and the guest agent.
func Programs() (cli.Programs, error) {
	c, err := programs.Look()
	return cli.Programs{Engine: c.Engine, Guest: c.Guest, Embedded: c.Embedded}, err
}

// Engine replaces this process by the engine's own command line.
func Engine(dataDir string, args []string) error {
	engine, err := programs.Engine(dataDir)
	if err != nil {
		return err
	}
	return syscall.Exec(engine, append([]string{"runsc"}, args...), syscall.Environ())
}

// PurgeHost removes what lies outside the data directory: cgroups in which
// nothing runs.
func PurgeHost(context.Context) error { return cgroup.Purge() }
