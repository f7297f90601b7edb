package manager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs"

	"agentbox/internal/live"
	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

// checkPorts refuses ports that the policy does not allow on the host.
func (p *Policy) checkPorts(want []sandbox.Port) error {
	if len(want) > sandbox.MaxPorts {
		return &sandbox.InvalidError{Field: "ports", Value: fmt.Sprint(len(want)), Allowed: fmt.Sprintf("at most %d", sandbox.MaxPorts)}
	}
	for _, w := range want {
		if w.Guest == 0 {
			return &sandbox.InvalidError{Field: "ports", Value: "0", Allowed: "ports of the sandbox from 1 to 65535"}
		}
		if w.Host != 0 && (w.Host < p.Ports.First || w.Host > p.Ports.Last) {
			return &sandbox.InvalidError{Field: "ports", Value: fmt.Sprint(w.Host), Allowed: "ports of the host from " + p.Ports.String()}
		}
	}
	return nil
}

// listen opens a sandbox's ports on the host and returns which they are.
// Connections wait until the sandbox runs. If not strict, one that somebody else
// has meanwhile is replaced by one that is free.
func (m *Manager) listen(want []sandbox.Port, strict bool) (open []*ports.Forward, got []sandbox.Port, err error) {
	for _, w := range want {
		f, err := ports.Open(mapping(w), m.policy.Ports)
		if errdefs.IsAlreadyExists(err) && !strict {
			w.Host = 0
			f, err = ports.Open(mapping(w), m.policy.Ports)
		}
		if errdefs.IsAlreadyExists(err) {
			err = sandbox.Refuse(errdefs.ErrAlreadyExists, "port %d of the host is in use: name another one, or none for any that is free", w.Host)
		}
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(open))
		}
		open = append(open, f)
		got = append(got, sandbox.Port{Guest: w.Guest, Host: f.Host.Port()})
	}
	return open, got, nil
}

func mapping(p sandbox.Port) ports.Mapping {
	return ports.Mapping{Host: netip.AddrPortFrom(ports.Loopback, p.Host), Guest: p.Guest}
}

func closeAll(open []*ports.Forward) (err error) {
	for _, f := range open {
		err = errors.Join(err, f.Close())
	}
	return err
}

// listenAgain opens the ports that a sandbox had before. It is not kept from
// running by ports that can't be had: the record then has those that are there.
// The caller holds b.op.
func (m *Manager) listenAgain(ctx context.Context, b *box) []*ports.Forward {
	sb := b.snapshot()
	open, got, err := m.listen(sb.Ports, false)
	if err != nil {
		m.note(ctx, b, fmt.Errorf("listen for the sandbox's ports: %w", err))
		return nil
	}
	if !slices.Equal(got, sb.Ports) {
		sb.Ports = got
		if err := m.save(ctx, b, sb, nil); err != nil {
			m.log.Error("record the sandbox's ports", "sandbox", sb.Short, "error", err)
		}
	}
	return open
}

// serve passes connections to the host's ports on to the sandbox. They count as
// its use.
func (m *Manager) serve(b *box, open []*ports.Forward) {
	for _, f := range open {
		f.Serve(func(ctx context.Context, port int) (ports.Conn, error) { return m.dial(ctx, b, port) })
	}
}

// halt takes what runs of a sandbox: the caller ends it, and what comes of that
// is by order. Its ports are free again, its connections to the network end.
func (m *Manager) halt(b *box) *live.Box {
	b.mu.Lock()
	l, open := b.live, b.forwards
	b.live, b.forwards = nil, nil
	b.mu.Unlock()
	m.opts.Egress.Shut(b.uid())
	if err := closeAll(open); err != nil {
		m.log.Warn("stop listening for a sandbox", "sandbox", b.snapshot().Short, "error", err)
	}
	return l
}
