package manager

import (
	"context"
	"errors"
	"fmt"

	"agentbox/internal/failpoint"
	"agentbox/internal/guest/client"
	"agentbox/internal/live"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Stop ends all processes of a sandbox and keeps its files. One that is stopped
// stays so. It goes on when ctx ends first.
func (m *Manager) Stop(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error) {
	return m.change(ctx, c, id, "stop sandbox", func(ctx context.Context, b *box) error {
		if b.status() == sandbox.Stopped {
			return nil
		}
		return m.stopNow(ctx, b, doom{reason: sandbox.ReasonStopped})
	})
}

// Start runs a stopped sandbox again, with the files that it had. One that runs
// goes on. It goes on when ctx ends first.
func (m *Manager) Start(ctx context.Context, c sandbox.Caller, id string) (sandbox.Sandbox, error) {
	return m.change(ctx, c, id, "start sandbox", func(ctx context.Context, b *box) error {
		if b.status() == sandbox.Live {
			return nil
		}
		return m.startNow(ctx, b)
	})
}

// change does something with the caller's sandbox that needs Stop of the back
// end, while nobody else changes it.
func (m *Manager) change(ctx context.Context, c sandbox.Caller, id, verb string, f func(context.Context, *box) error) (sandbox.Sandbox, error) {
	b, err := m.find(ctx, c, id)
	switch {
	case err != nil:
	case !m.Capabilities().Stop:
		err = unsupported(verb)
	default:
		err = m.detached(ctx, func(ctx context.Context) error { return m.changeNow(ctx, b, f) })
	}
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("%s: %w", verb, explainFull(err))
	}
	return b.snapshot(), nil
}

func (m *Manager) changeNow(ctx context.Context, b *box, f func(context.Context, *box) error) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if b.isGone() {
		return b.goneErr()
	}
	err := m.unfinished(ctx, b)
	if err == nil && b.why().reason == "" {
		err = f(b.work(ctx), b)
	}
	if b.why().reason != "" { // before or meanwhile: then a failure is no wonder
		return b.stateErr("Sandbox is being destroyed")
	}
	return err
}

// unfinished brings a sandbox, whose stop or start ended without being recorded,
// into the state that it is in. The caller holds b.op.
func (m *Manager) unfinished(ctx context.Context, b *box) error {
	if s := b.status(); s == sandbox.Stopping || s == sandbox.Starting {
		return m.settle(ctx, b, errUnfinished)
	}
	return nil
}

var errUnfinished = errors.New("what became of an earlier stop or start was not recorded")

// stateErr says that the state of the sandbox does not allow a call.
func (b *box) stateErr(text string) error {
	sb := b.snapshot()
	return &sandbox.StateError{Short: sb.Short, Status: sb.Status, Text: text}
}

// stopNow stops a sandbox that runs. The caller holds b.op.
func (m *Manager) stopNow(ctx context.Context, b *box, why doom) error {
	if b.status() != sandbox.Live {
		return b.stateErr(sandbox.NotRunning)
	}
	if err := m.transition(ctx, b, sandbox.Stopping, why, nil); err != nil {
		return err
	}
	if l := m.halt(b); l != nil {
		l.End(why.reason, why.text)
	}
	err := failpoint.StopRecorded.Hit()
	if err == nil {
		err = m.opts.Runtime.Stop(ctx, b.uid())
	}
	if err == nil {
		err = failpoint.StopFreed.Hit()
	}
	if err != nil {
		err = fmt.Errorf("stop the sandbox: %w", err)
		return errors.Join(err, m.settle(ctx, b, err))
	}
	if err := m.transition(ctx, b, sandbox.Stopped, why, nil); err != nil {
		return err
	}
	return failpoint.StopStopped.Hit()
}

// startNow starts a sandbox that is stopped. The caller holds b.op.
func (m *Manager) startNow(ctx context.Context, b *box) error {
	if b.status() != sandbox.Stopped {
		return b.stateErr("Sandbox is not stopped")
	}
	if err := m.place(ctx); err != nil {
		return err
	}
	defer m.leave()
	if err := m.transition(ctx, b, sandbox.Starting, doom{}, nextEpoch); err != nil {
		return err
	}
	l, err := m.run(ctx, b)
	if err != nil {
		return errors.Join(err, m.settle(ctx, b, err))
	}
	b.begun()
	m.runs(ctx, b, l, m.listenAgain(ctx, b))
	return failpoint.StartRunning.Hit()
}

// run lets run, in the back end and in the record, what is recorded as starting.
func (m *Manager) run(ctx context.Context, b *box) (*live.Box, error) {
	if err := failpoint.StartRecorded.Hit(); err != nil {
		return nil, err
	}
	sb := b.snapshot()
	l, err := m.startLive(ctx, &sb)
	if err != nil {
		return nil, err
	}
	if err = failpoint.StartRan.Hit(); err == nil {
		err = m.transition(ctx, b, sandbox.Live, doom{}, func(sb *sandbox.Sandbox) { sb.Started = wall() })
	}
	if err != nil {
		l.LetGo()
		m.opts.Egress.Shut(sb.UID)
		return nil, err
	}
	return l, nil
}

// startLive starts the sandbox with all that it had.
func (m *Manager) startLive(ctx context.Context, sb *sandbox.Sandbox) (*live.Box, error) {
	if _, _, err := m.acquire(ctx, sb); err != nil {
		return nil, err
	}
	l, err := m.host.Start(ctx, sb.UID, m.config(sb, m.wayOut(sb)), sb.Epoch)
	if err != nil {
		m.opts.Egress.Shut(sb.UID)
	}
	return l, err
}

// nextEpoch numbers the session that is about to begin.
func nextEpoch(sb *sandbox.Sandbox) { sb.Epoch++ }

// config is what the agent of a sandbox must know, and its way out.
func (m *Manager) config(sb *sandbox.Sandbox, way client.Tunnel) live.Config {
	return live.Config{
		Limits: sb.Limits, User: sb.User, Workdir: sb.Workdir, Env: sb.Env, Execs: m.policy.Execs,
		Tunnel: way, Resolver: sb.Network.Resolver, Trust: m.trust(sb),
		ProcessAPI: m.processAPI(sb),
	}
}

// processAPI is that of a sandbox which has it, within the policy; nil: it has none.
func (m *Manager) processAPI(sb *sandbox.Sandbox) *live.ProcessAPI {
	if !sb.ProcessAPI {
		return nil
	}
	return &live.ProcessAPI{MaxTimeout: m.policy.MaxExecTimeout, MaxOutput: m.policy.Output}
}

// settle finds out what became of a sandbox that could not be stopped or started
// and brings its record to that: it runs on, is stopped, or is of no use any more.
// The caller holds b.op.
func (m *Manager) settle(ctx context.Context, b *box, failure error) error {
	if b.why().reason != "" {
		return nil // it is about to be destroyed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	sb := b.snapshot()
	m.log.Error("stop or start a sandbox", "sandbox", sb.Short, "error", failure)
	if !hasClass(failure) {
		failure = errUnsettled
	}
	m.note(ctx, b, failure)
	info, err := m.look(ctx, sb.UID)
	if err != nil {
		return err
	}
	// One that was being started and runs half is stopped again.
	if sb.Status == sandbox.Starting && (info.State == sandbox.Live || info.State == sandbox.Created) {
		if err := m.opts.Runtime.Stop(ctx, sb.UID); err == nil {
			info.State, info.Pid = sandbox.Stopped, 0
		}
	}
	why := doom{sandbox.ReasonFailure, failure.Error()}
	switch {
	case info.State == sandbox.Stopped:
		if info.Pid != 0 { // its files are safe, and it could not be ended
			if err := m.opts.Runtime.Stop(ctx, sb.UID); err != nil {
				return err
			}
		}
		return m.transition(ctx, b, sandbox.Stopped, why, nil)
	case info.State == sandbox.Live && sb.Status == sandbox.Stopping:
		if err := m.transition(ctx, b, sandbox.Live, why, nextEpoch); err != nil {
			return err
		}
		return m.adopt(ctx, b)
	}
	return m.transition(ctx, b, sandbox.Failed, why, nil)
}

// errUnsettled is what the owner is told of what is wrong on the host.
var errUnsettled = errors.New("it could not be stopped or started; the server's log says why")

// note records that something failed.
func (m *Manager) note(ctx context.Context, b *box, failure error) {
	ev := m.event(b.snapshot(), sandbox.EventFailure)
	ev.Reason, ev.Detail = sandbox.ReasonFailure, failure.Error()
	m.addEvent(ctx, b, ev)
}

func (m *Manager) addEvent(ctx context.Context, b *box, ev *sandbox.Event) {
	if err := m.opts.Store.AddEvent(ctx, ev); err != nil {
		m.log.Warn("record an event", "sandbox", ev.UID, "error", err)
		return
	}
	b.tell()
}

// look is what the back end knows of a sandbox; the zero Info when it has none.
func (m *Manager) look(ctx context.Context, uid string) (runtime.Info, error) {
	all, err := m.opts.Runtime.List(ctx)
	if err != nil {
		return runtime.Info{}, err
	}
	for _, i := range all {
		if i.ID == uid {
			return i, nil
		}
	}
	return runtime.Info{}, nil
}
