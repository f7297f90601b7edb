package manager

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/image"
	"agentbox/internal/live"
	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

// Policy is what the operator allows, and what holds when a caller says nothing.
// Zero fields have the defaults that are given.
type Policy struct {
	// DefaultImage is what a sandbox is made of when nobody says. "default".
	DefaultImage string
	// Max bounds what a caller may ask for. It has no default: see
	// sandbox.MaxLimits.
	Max sandbox.Limits
	// MaxSandboxes and MaxPerOwner are how many sandboxes there may be at once,
	// stopped ones included: 100 in all, 50 of one owner.
	MaxSandboxes, MaxPerOwner int
	// Creates is how many sandboxes are made or started at the same time; more
	// wait. The number of cores.
	Creates int
	// IdleTimeout and Lifetime of sandboxes whose caller does not say: 30 minutes
	// and 24 hours.
	IdleTimeout, Lifetime time.Duration
	// MaxIdleTimeout and MaxLifetime bound what a caller may ask for; 0: nothing
	// does.
	MaxIdleTimeout, MaxLifetime time.Duration
	// Ports of the host that sandboxes may have: ports.DefaultRange.
	Ports ports.Range
	// ExecTimeout is that of commands whose caller does not say: an hour.
	// MaxExecTimeout is the longest that a caller may ask for: a day, which is
	// also the most that there can be.
	ExecTimeout, MaxExecTimeout time.Duration
	// Output is how many bytes of each stream of a command are captured when its
	// caller does not say, MaxOutput the most that a caller may ask for: those of
	// package sandbox.
	Output, MaxOutput int64
	// Execs is how many commands run at once in one sandbox; more wait.
	Execs int
}

// Defaults of [Policy].
const (
	DefaultImage        = "default"
	DefaultMaxSandboxes = 100
	DefaultMaxPerOwner  = 50
)

func (p Policy) withDefaults() Policy {
	p.DefaultImage = cmp.Or(p.DefaultImage, DefaultImage)
	p.MaxSandboxes = cmp.Or(p.MaxSandboxes, DefaultMaxSandboxes)
	p.MaxPerOwner = cmp.Or(p.MaxPerOwner, DefaultMaxPerOwner)
	p.IdleTimeout = shorter(cmp.Or(p.IdleTimeout, sandbox.DefaultIdleTimeout), p.MaxIdleTimeout)
	p.Lifetime = shorter(cmp.Or(p.Lifetime, sandbox.DefaultLifetime), p.MaxLifetime)
	p.Ports = cmp.Or(p.Ports, ports.DefaultRange)
	p.MaxExecTimeout = shorter(cmp.Or(p.MaxExecTimeout, sandbox.MaxTimeout), sandbox.MaxTimeout)
	p.ExecTimeout = shorter(cmp.Or(p.ExecTimeout, sandbox.DefaultTimeout), p.MaxExecTimeout)
	p.MaxOutput = min(cmp.Or(p.MaxOutput, sandbox.MaxMaxOutput), sandbox.MaxMaxOutput)
	p.Output = min(cmp.Or(p.Output, sandbox.DefaultMaxOutput), p.MaxOutput)
	return p
}

// command is a caller's command after the policy. One in the background runs
// without an end unless the caller wants one; so do terminals and detached
// streams, for which doors ask by a negative timeout.
func (p *Policy) command(c sandbox.Command) (sandbox.Command, error) {
	switch {
	case c.Timeout == 0 && c.Background:
		c.Timeout = -1
	case c.Timeout == 0:
		c.Timeout = p.ExecTimeout
	case c.Timeout > p.MaxExecTimeout:
		return c, &sandbox.InvalidError{Field: "timeout", Value: c.Timeout.String(), Allowed: "at most " + p.MaxExecTimeout.String()}
	}
	if c.MaxOutput > p.MaxOutput {
		return c, &sandbox.InvalidError{Field: "max_output", Value: fmt.Sprint(c.MaxOutput), Allowed: fmt.Sprintf("at most %d", p.MaxOutput)}
	}
	c.MaxOutput = cmp.Or(c.MaxOutput, p.Output)
	return c, nil
}

// shorter lowers a default to the maximum, if there is one.
func shorter(d, most time.Duration) time.Duration {
	if most == 0 || d != sandbox.Never && d < most {
		return d
	}
	return most
}

// timeout is what a caller's timeout is after the policy: refused if it is not
// allowed, the default if it was not said.
func timeout(field string, asked, byDefault, least, most time.Duration) (time.Duration, error) {
	bounded := most
	if most == 0 {
		bounded = sandbox.MaxTimeouts
	}
	switch {
	case asked == 0:
		return byDefault, nil
	case asked == sandbox.Never && most == 0:
		return asked, nil
	case asked < least || asked > bounded:
		shown := asked.String()
		if asked == sandbox.Never {
			shown = "never"
		}
		return 0, &sandbox.InvalidError{Field: field, Value: shown, Allowed: fmt.Sprintf("%v to %v", least, bounded)}
	}
	return asked, nil
}

// limits are a new sandbox's: the caller's, checked against the maximum, before
// the door's defaults, lowered to it, before the native ones. require names those
// that the caller chose.
func (p *Policy) limits(asked, door sandbox.Limits) (l sandbox.Limits, require []string, err error) {
	l = asked
	def := func(v *int64, d int64) { *v = cmp.Or(*v, d) }
	def(&l.Memory, door.Memory)
	l.CPUs = cmp.Or(l.CPUs, door.CPUs)
	def(&l.Disk, door.Disk)
	def(&l.Shm, door.Shm)
	def(&l.Run, door.Run)
	def(&l.Pids, door.Pids)
	def(&l.OpenFiles, door.OpenFiles)
	l = l.WithDefaults().Clamp(p.Max)
	// What the caller chose is not lowered but checked. A part of the memory is
	// limited by the memory, too.
	restore := func(v *int64, a int64) { *v = cmp.Or(a, *v) }
	restore(&l.Memory, asked.Memory)
	l.CPUs = cmp.Or(asked.CPUs, l.CPUs)
	restore(&l.Disk, asked.Disk)
	restore(&l.Shm, asked.Shm)
	restore(&l.Run, asked.Run)
	restore(&l.Pids, asked.Pids)
	restore(&l.OpenFiles, asked.OpenFiles)
	if err := l.Check(p.Max); err != nil {
		return l, nil, err
	}
	for _, c := range []struct {
		name   string
		chosen bool
	}{
		{sandbox.LimitMemory, asked.Memory != 0}, {sandbox.LimitCPUs, asked.CPUs != 0},
		{sandbox.LimitPids, asked.Pids != 0}, {sandbox.LimitDisk, asked.Disk != 0},
	} {
		if c.chosen {
			require = append(require, c.name)
		}
	}
	return l, require, nil
}

// plan is a checked request.
type plan struct {
	live.Request
	idle, lifetime time.Duration
	onIdle         sandbox.OnIdle
	storage        bool // the tenant's
	network        sandbox.Network
	secrets        []sandbox.SecretUse
}

func (m *Manager) plan(r sandbox.CreateRequest) (plan, error) {
	var p plan
	err := r.Check()
	if err != nil {
		return p, err
	}
	if err := m.policy.checkPorts(r.Ports); err != nil {
		return p, err
	}
	if p.network, err = m.network(r.Network); err != nil {
		return p, err
	}
	if len(r.Volumes) > 0 && m.opts.Volumes == nil {
		return p, unsupported("a volume")
	}
	p.storage = r.Tenant != "" && m.TenantStorage()
	p.onIdle = cmp.Or(r.OnIdle, sandbox.IdleDestroy)
	if p.onIdle == sandbox.IdleStop && !m.Capabilities().Stop {
		return p, unsupported("on_idle stop")
	}
	if p.idle, err = timeout("idle_timeout", r.IdleTimeout, m.policy.IdleTimeout, sandbox.MinIdleTimeout, m.policy.MaxIdleTimeout); err != nil {
		return p, err
	}
	if p.lifetime, err = timeout("lifetime", r.Lifetime, m.policy.Lifetime, sandbox.MinLifetime, m.policy.MaxLifetime); err != nil {
		return p, err
	}
	p.Request = live.Request{Image: cmp.Or(r.Image, m.policy.DefaultImage), User: r.User, Workdir: r.Workdir, Env: r.Env}
	p.ApplyAlias()
	if err := image.CheckReference(p.Image); err != nil {
		return p, err
	}
	if p.Limits, p.Require, err = m.policy.limits(r.Limits, r.Defaults); err != nil {
		return p, err
	}
	for _, l := range m.Capabilities().NotEnforced {
		if slices.Contains(p.Require, l) {
			return p, sandbox.Refuse(errdefs.ErrNotImplemented, "a limit of %s can't be enforced in the server's mode; agentbox doctor says how to get it", l)
		}
	}
	return p, nil
}
