package gvisor

import (
	"fmt"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"agentbox/internal/runtime"
)

// A sandbox with directories of the host has a gofer: a process of gVisor's, of
// the sandbox's user on the host, that opens those directories and hands them to
// the sandbox process. It is in the sandbox's control group and ends with it.

func (r *Runtime) checkMounts(mounts []runtime.Mount) error {
	gid := r.hostUser()
	if r.rootless {
		gid = uint32(os.Getgid())
	}
	return runtime.CheckMounts(mounts, r.hostUser(), gid)
}

// binds are the directories as the OCI spec has them.
func binds(all []runtime.Mount) []specs.Mount {
	out := make([]specs.Mount, 0, len(all))
	for _, m := range all {
		opts := []string{"bind", "nosuid", "nodev", "rw"}
		if m.ReadOnly {
			opts[len(opts)-1] = "ro"
		}
		out = append(out, specs.Mount{Destination: m.Path, Type: "bind", Source: m.Source, Options: opts})
	}
	return out
}

// openLayer tells gVisor's library where to make the file of the writable layer,
// which it does itself for a sandbox with a gofer.
func (b *box) openLayer(spec runtime.Spec) error {
	if len(spec.Mounts) == 0 {
		return nil
	}
	if err := b.conf.Overlay2.Set("root:dir=" + b.dir); err != nil {
		return fmt.Errorf("keep the writable layer in %s, whose path gVisor can't read: %w", b.dir, err)
	}
	return nil
}

// takeGofer puts the gofer, if there is one, into the sandbox's control group and
// into the record. The library forks it where the daemon is.
func (b *box) takeGofer() (err error) {
	pid := b.c.GoferPid.Load()
	if pid == 0 {
		return nil
	}
	if b.rec.Gofer, err = identify(pid); err != nil {
		return fmt.Errorf("find the gofer: %w", err)
	}
	return b.group.Add(pid)
}

// endGofer kills the gofer. When the sandbox process is dead it ends by itself,
// but not at once.
func (b *box) endGofer() error {
	if p, err := hold(b.rec.Gofer); err == nil {
		defer p.close()
		if err := p.kill(); err != nil {
			return err
		}
	}
	reap(b.rec.Gofer)
	return nil
}

// reap takes the exit status of a dead process that is our child. It may be
// another Runtime's child in this process, so gVisor's memory of that is not
// asked.
func reap(id procID) {
	if now, err := identify(id.Pid); err != nil || now != id {
		return // another child may have the pid by now
	}
	_, _ = unix.Wait4(id.Pid, nil, unix.WNOHANG, nil)
}
