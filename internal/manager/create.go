package manager

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/failpoint"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/live"
	"agentbox/internal/ports"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Create makes a sandbox and returns when commands can run in it. With a key,
// the same request of the same owner within a day gives the same sandbox, also
// while it is being made. When ctx ends first, nothing is left of it.
func (m *Manager) Create(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest, key string) (sandbox.Sandbox, error) {
	began := time.Now()
	sb, err := m.create(ctx, c, r, key)
	m.opts.Meter.Created(err, time.Since(began))
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("create a sandbox: %w", explainFull(err))
	}
	return sb, nil
}

func (m *Manager) create(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest, key string) (sandbox.Sandbox, error) {
	var none sandbox.Sandbox
	if m.draining.Load() {
		return none, errDraining
	}
	if err := sandbox.CheckOwner(c.Owner); err != nil {
		return none, err
	}
	p, err := m.plan(r)
	if err == nil {
		err = m.giveSecrets(c.Owner, r.Secrets, &p)
	}
	if err != nil {
		return none, err
	}
	request, err := fingerprint(r, key)
	if err != nil {
		return none, err
	}
	for {
		b, fresh, err := m.enter(ctx, c, r, p, key, request)
		switch {
		case err != nil:
			return none, err
		case fresh:
			return m.carryOut(ctx, b, p)
		}
		sb, err := m.await(ctx, b)
		if err != nil && b.isGone() && b.why().reason == sandbox.ReasonUnmade {
			continue // what was waited for failed, so the key is free again
		}
		return sb, err
	}
}

// fingerprint tells requests with the same key apart.
func fingerprint(r sandbox.CreateRequest, key string) ([]byte, error) {
	if key == "" {
		return nil, nil
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r) // keys of maps are sorted
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// enter records a new sandbox and makes it findable; the caller then holds its
// op. Or it returns the one that the same request was answered with before.
func (m *Manager) enter(ctx context.Context, c sandbox.Caller, r sandbox.CreateRequest, p plan, key string, request []byte) (*box, bool, error) {
	m.admit.Lock()
	defer m.admit.Unlock()
	for range drawTries {
		rec := record(c, r, p)
		a := sandbox.Admission{Sandbox: rec, MaxTotal: m.policy.MaxSandboxes, MaxOwner: m.policy.MaxPerOwner, Key: key, Request: request}
		if key != "" {
			a.Key = storedKey(key)
		}
		before, err := m.opts.Store.Admit(ctx, a, m.event(rec, sandbox.EventState))
		switch {
		case errors.Is(err, sandbox.ErrDrawAgain):
			continue
		case err != nil:
			return nil, false, err
		case before != "":
			b, err := m.replayed(ctx, c, before)
			return b, false, err
		}
		b := newBox(rec)
		b.op <- struct{}{}
		b.arm()
		m.index.add(b)
		m.nudge()
		return b, true, nil
	}
	return nil, false, fmt.Errorf("draw an id: %w", sandbox.ErrDrawAgain)
}

// drawTries is how often ids are drawn: two equal ones in 48 random bits are
// hardly ever seen, three times in a row is an error elsewhere.
const drawTries = 3

// replayed is what a repeated request is answered with.
func (m *Manager) replayed(ctx context.Context, c sandbox.Caller, uid string) (*box, error) {
	if b := m.index.byUID(uid); b != nil {
		return b, nil
	}
	return nil, m.missing(ctx, c.Owner, uid)
}

// await waits until a sandbox that somebody else makes is made.
func (m *Manager) await(ctx context.Context, b *box) (sandbox.Sandbox, error) {
	if err := b.lock(ctx); err != nil {
		return sandbox.Sandbox{}, err
	}
	defer b.unlock()
	if b.isGone() {
		return sandbox.Sandbox{}, b.goneErr()
	}
	switch why := b.why(); why.reason {
	case "":
		return b.snapshot(), nil
	case sandbox.ReasonUnmade: // and could not be undone yet
		return sandbox.Sandbox{}, fmt.Errorf("it could not be made: %s: %w", why.text, errdefs.ErrUnavailable)
	}
	return sandbox.Sandbox{}, b.stateErr("Sandbox is being destroyed")
}

func record(c sandbox.Caller, r sandbox.CreateRequest, p plan) sandbox.Sandbox {
	t := wall()
	uid := ids.UID()
	rec := sandbox.Sandbox{
		UID: uid, Short: ids.Short(uid), Label: newLabel(), Name: r.Name, Aliases: r.Aliases, Owner: c.Owner,
		Status: sandbox.Creating, Image: p.Image, User: p.User, Workdir: p.Workdir, Env: p.Env, Labels: maps.Clone(r.Labels),
		Volumes: slices.Clone(r.Volumes), Tenant: r.Tenant, Storage: p.storage, Ports: slices.Clone(r.Ports), Limits: p.Limits, Require: p.Require, Network: p.network, Secrets: p.secrets, OnIdle: p.onIdle, ProcessAPI: r.ProcessAPI, KeepStopped: r.KeepStopped, KeepFailed: r.KeepFailed, IdleTimeout: p.idle, Lifetime: p.lifetime,
		Created: t, LastActivity: t, Epoch: 1,
	}
	if p.lifetime != sandbox.Never {
		rec.Expires = t.Add(p.lifetime)
	}
	return rec
}

// newLabel draws a label: "i" and 20 of a-z0-9, 100 bits.
func newLabel() string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	label := []byte("i")
	for b := make([]byte, 1); len(label) < 21; {
		_, _ = rand.Read(b) // never fails: crypto/rand ends the program instead
		if n := int(b[0]); n < 256/len(letters)*len(letters) {
			label = append(label, letters[n%len(letters)])
		}
	}
	return string(label)
}

// carryOut makes a sandbox that was recorded, or undoes all of it. It ends when
// the sandbox is destroyed meanwhile.
func (m *Manager) carryOut(ctx context.Context, b *box, p plan) (sb sandbox.Sandbox, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ctx, func() { cancel(errDraining) })()
	done := make(chan struct{})
	begun := m.spawn(func() {
		defer close(done)
		defer b.unlock()
		if err = m.make(b.work(ctx), b, p); err == nil {
			sb = b.snapshot()
			return
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = m.undo(ctx, b, err)
	})
	if !begun {
		b.unlock() // the next manager undoes what is recorded
		return sb, errDraining
	}
	<-done
	return sb, err
}

// undo removes a sandbox that could not be made, and returns what the caller is
// told: why, or that somebody destroyed it.
func (m *Manager) undo(ctx context.Context, b *box, err error) error {
	if m.keepUnmade(ctx, b, err) {
		return err
	}
	first := b.mark(doom{sandbox.ReasonUnmade, err.Error()})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if left := m.end(ctx, b); left != nil {
		m.log.Error("undo a creation", "sandbox", b.snapshot().Short, "error", left)
		return err
	}
	if first.reason != sandbox.ReasonUnmade {
		return b.goneErr()
	}
	return err
}

func (m *Manager) make(ctx context.Context, b *box, p plan) error {
	if err := failpoint.CreateRecorded.Hit(); err != nil {
		return err
	}
	if err := m.hasMemory(); err != nil {
		return err
	}
	img, err := m.image(ctx, b, p.Image)
	if err != nil {
		return err
	}
	if err := m.place(ctx); err != nil {
		return err
	}
	defer m.leave()
	rec := b.snapshot()
	if err := m.makeVolumes(ctx, &rec); err != nil {
		return err
	}
	mounts, unbounded, err := m.acquire(ctx, &rec)
	if err == nil {
		err = failpoint.CreateVolumes.Hit()
	}
	if err != nil {
		return err
	}
	open, got, err := m.listen(rec.Ports, true)
	if err != nil {
		return err
	}
	spec := p.Spec(rec.UID, img)
	spec.Execs, spec.Mounts = m.policy.Execs, mounts
	spec.Tunnel, spec.Resolver, spec.Trust = m.wayOut(&rec), rec.Network.Resolver, m.trust(&rec)
	spec.ProcessAPI = m.processAPI(&rec)
	rec.User, rec.Workdir, rec.Env, rec.Ports, rec.ImageDigest, rec.ImagePath = spec.User, spec.Workdir, spec.Env, got, img.Digest, img.Path
	if spec.Labels, err = copyOf(rec); err != nil {
		return errors.Join(err, closeAll(open))
	}
	l, err := m.host.Create(ctx, spec)
	if err != nil {
		m.opts.Egress.Shut(rec.UID)
		return errors.Join(err, closeAll(open))
	}
	if err = failpoint.CreateMade.Hit(); err == nil {
		err = m.transition(ctx, b, sandbox.Live, doom{}, func(sb *sandbox.Sandbox) {
			sb.Started, sb.NotEnforced = wall(), append(m.Capabilities().NotEnforced, unbounded...)
			sb.ImageDigest, sb.ImagePath = rec.ImageDigest, rec.ImagePath
			sb.User, sb.Workdir, sb.Env, sb.Ports = rec.User, rec.Workdir, rec.Env, rec.Ports
		})
	}
	if err != nil {
		l.End(sandbox.ReasonUnmade, "")
		m.opts.Egress.Shut(rec.UID)
		return errors.Join(err, closeAll(open))
	}
	b.begun()
	m.runs(ctx, b, l, open)
	return failpoint.CreateRunning.Hit()
}

// image acquires what a sandbox is made of, and gives it back with the sandbox. It
// may have to be pulled first, so no place is held meanwhile.
func (m *Manager) image(ctx context.Context, b *box, name string) (image.Image, error) {
	img, release, err := m.opts.Images.Acquire(ctx, name)
	if err != nil {
		return img, err
	}
	b.mu.Lock()
	b.release = release
	b.mu.Unlock()
	return img, failpoint.CreateImage.Hit()
}

// place waits for its turn: making sandboxes is work for all cores.
func (m *Manager) place(ctx context.Context) error {
	select {
	case m.creates <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m *Manager) leave() { <-m.creates }

// runs notes that a sandbox runs from now on, and watches for its end.
func (m *Manager) runs(ctx context.Context, b *box, l *live.Box, open []*ports.Forward) {
	m.register(ctx, b)
	b.mu.Lock()
	b.live, b.forwards, b.ending = l, open, b.doom.reason != ""
	b.mu.Unlock()
	m.serve(b, open)
	m.nudge()
	m.complain(b, l)
	m.spawn(func() {
		select {
		case <-l.Ended():
			m.ended(b, l, l.HowEnded())
		case <-m.ctx.Done():
		}
	})
}

// complain records what the agent of a sandbox could not do of what it was told,
// such as to change trust stores that somebody made links of.
func (m *Manager) complain(b *box, l *live.Box) {
	if text := l.Session().Reply().GetError(); text != "" {
		m.note(m.ctx, b, fmt.Errorf("the sandbox's agent: %.500s", strings.ToValidUTF8(text, "?")))
	}
}

// ended buries a sandbox that ended by itself.
func (m *Manager) ended(b *box, l *live.Box, ev runtime.Event) {
	if b.running() != l {
		return // it was told to
	}
	m.log.Warn("a sandbox ended", "sandbox", b.snapshot().Short, "reason", ev.Reason, "detail", ev.Detail)
	if err := m.lose(m.ctx, b, l, doom{ev.Reason, ev.Detail}); err != nil {
		m.log.Error("remove a sandbox that ended", "sandbox", b.snapshot().Short, "error", err)
	}
}

// hasMemory refuses a new sandbox on a host that has little memory left: a limit
// is no reservation.
func (m *Manager) hasMemory() error {
	if m.opts.Memory == nil {
		return nil
	}
	available, total, err := m.opts.Memory()
	if err != nil {
		m.log.Warn("read how much memory is available", "error", err)
		return nil
	}
	if available < total/10 {
		return sandbox.TooLittle("memory")
	}
	return nil
}

// explainFull tells callers of a full disk, whatever class its error has. What the
// sandbox's own kernel ran into comes as a text, and the database has its own.
func explainFull(err error) error {
	text := err.Error()
	if errdefs.IsInvalidArgument(err) || !strings.Contains(text, syscall.ENOSPC.Error()) && !strings.Contains(text, "disk is full") {
		return err
	}
	return fmt.Errorf("%w: %s", sandbox.Refuse(errdefs.ErrUnavailable, "The server's disk is full"), text)
}

// errDraining asks for patience as long as another daemon needs to start.
var errDraining = &sandbox.DrainingError{RetryAfter: 10 * time.Second}
