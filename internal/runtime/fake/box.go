package fake

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/guest/agent"
	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/runtime/fake/toyos"
)

// box is one sandbox. mu is held for everything that is done with it.
type box struct {
	spec runtime.Spec

	mu      sync.Mutex
	info    runtime.Info
	disk    *toyos.Disk
	saved   *toyos.Disk // as the last Stop left it; nil before
	key     guest.Key
	machine *machine // nil unless it runs
	gone    bool     // destroyed
}

func (b *box) wrongState() error {
	return fmt.Errorf("sandbox %s is %s: %w", ids.Short(b.spec.ID), b.info.State, errdefs.ErrFailedPrecondition)
}

// halt ends everything that runs and keeps the files.
func (b *box) halt() {
	if b.machine != nil {
		b.machine.stop()
		b.machine = nil
	}
}

// machine is the agent of a running sandbox with the system it works on.
type machine struct {
	sys   *toyos.System
	agent *agent.Agent

	mu      sync.Mutex
	streams map[net.Conn]struct{} // the agent's ends
	serving sync.WaitGroup
}

func newMachine(b *box) *machine {
	name := cmp.Or(b.spec.Hostname, ids.Short(b.spec.ID))
	sys := toyos.New(name, b.disk, b.spec.Limits.Pids)
	hello := func(h *guestv1.Hello) {
		if h.GetHostname() != "" {
			sys.SetHostname(h.GetHostname())
		}
	}
	a := agent.New(agent.Options{Launcher: sys, Files: sys, Ports: sys, Loopback: sys, Build: "fake", Hello: hello})
	return &machine{sys: sys, agent: a, streams: map[net.Conn]struct{}{}}
}

// attach gives the agent a new stream; both ends prove that they hold the key.
// The agent lets go of the one before when it takes a session on this one.
func (m *machine) attach(ctx context.Context, key guest.Key) (net.Conn, error) {
	ours, theirs := net.Pipe()
	m.serve(theirs, key)
	interrupt := context.AfterFunc(ctx, func() { ours.Close() })
	err := guest.ProveHost(ours, key)
	if !interrupt() {
		err = context.Cause(ctx)
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}

func (m *machine) serve(conn net.Conn, key guest.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams[conn] = struct{}{}
	m.serving.Go(func() {
		defer func() {
			conn.Close()
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.streams, conn)
		}()
		if guest.ProveGuest(conn, key) == nil {
			_ = m.agent.Serve(conn, true) // how a session ends concerns its host
		}
	})
}

// stop is the end of the sandbox's processes, the agent's included.
func (m *machine) stop() {
	m.mu.Lock()
	for conn := range m.streams {
		conn.Close()
	}
	m.mu.Unlock()
	m.agent.Close()
	m.sys.Shutdown()
	m.serving.Wait()
}
