package wire

import (
	"cmp"

	presets "agentbox/internal/egress/policy"
	"agentbox/internal/image"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/rpc"
)

// Defaults of sessions, as their contract has them. On a smaller machine they have
// what the operator's maximum allows.
const (
	sessionMemory         = 4 * sandbox.GiB
	sessionCPUs   float64 = 4
)

// session is what sessions of gRPC have whose caller does not say.
func (d *daemon) session() rpc.Session {
	hosts, _ := presets.Preset("default")
	l := d.cfg.Limits
	s := rpc.Session{
		Image: d.cfg.GRPC.Image, Hosts: hosts, MaxExec: l.ExecTimeout,
		Limits: sandbox.Limits{Memory: sessionMemory, CPUs: sessionCPUs, Disk: d.cfg.Sandbox.Disk, Pids: d.cfg.Sandbox.Pids},
		// A session ends when nobody uses it, however old it is.
		IdleTimeout: endless(d.cfg.GRPC.SessionTimeout), Lifetime: cmp.Or(l.Lifetime, sandbox.Never),
	}
	if most := l.IdleTimeout; most > 0 && (s.IdleTimeout == sandbox.Never || s.IdleTimeout > most) {
		s.IdleTimeout = most
	}
	if _, ok := image.FindAlias(s.Image); !ok { // which has a user and a directory
		s.User, s.Workdir = "root", sandbox.WorkspacePath
	}
	return s
}
