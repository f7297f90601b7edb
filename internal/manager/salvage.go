package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"agentbox/internal/ids"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// The back end keeps a copy of a sandbox's record as it was made. Nobody needs it
// unless the store was lost, replaced by an older one, or damaged: then what runs
// or is stopped is taken up with the copy, as what it was, under its old owner.

// labelRecord is the copy's name in the back end.
const labelRecord = "agentbox.record"

// copyOf is the copy that goes to the back end. It has the environment, too: the
// agent is told it with each session, and knows it from nowhere else.
func copyOf(rec sandbox.Sandbox) (map[string]string, error) {
	text, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("encode the sandbox's record: %w", err)
	}
	return map[string]string{labelRecord: string(text)}, nil
}

// salvaged is the record of a sandbox that the back end has, from its copy. One
// without a copy that can be read belongs to the default owner.
func (m *Manager) salvaged(info runtime.Info) sandbox.Sandbox {
	var rec sandbox.Sandbox
	if err := json.Unmarshal([]byte(info.Labels[labelRecord]), &rec); err != nil || rec.UID != info.ID {
		rec = sandbox.Sandbox{
			Created: info.Created, IdleTimeout: m.policy.IdleTimeout, Lifetime: m.policy.Lifetime, OnIdle: sandbox.IdleDestroy,
		}
	}
	t := wall()
	rec.UID, rec.Short, rec.Label = info.ID, ids.Short(info.ID), cmp.Or(rec.Label, newLabel())
	rec.Owner = cmp.Or(rec.Owner, sandbox.DefaultOwner)
	rec.Status, rec.NotEnforced, rec.LastActivity = info.State, slices.Clone(info.NotEnforced), t
	rec.Limits = info.Limits // those of the copy may have been changed since
	// So may its network, which may have been narrowed: nobody knows to what.
	if rec.Network.On() {
		m.log.Warn("a sandbox whose record was lost has no network any more: set it again", "sandbox", rec.Short, "owner", rec.Owner)
	}
	rec.Network = sandbox.Network{Mode: sandbox.NetworkNone}
	if rec.Created.IsZero() {
		rec.Created = t
	}
	if rec.Started.IsZero() {
		rec.Started = rec.Created
	}
	// It may have been given more time since the copy was made.
	if rec.Lifetime != sandbox.Never && !rec.Expires.After(t) {
		rec.Expires = t.Add(rec.Lifetime)
	}
	// Nobody knows how many sessions there were; seconds are more.
	rec.Epoch = max(rec.Epoch, uint64(t.Unix()))
	return rec
}

// damaged reports a record of which the store could read its columns only.
func damaged(rec *sandbox.Sandbox) bool { return rec.Created.IsZero() }

// mended is a damaged record with what the back end's copy has, as far as there is
// one.
func (m *Manager) mended(rec sandbox.Sandbox, info runtime.Info) sandbox.Sandbox {
	m.log.Error("the record of a sandbox is damaged", "sandbox", rec.Short, "owner", rec.Owner, "copy", info.Labels[labelRecord] != "")
	if info.ID == "" {
		rec.Created = wall() // for its tombstone
		return rec
	}
	whole := m.salvaged(info)
	whole.Owner, whole.Status, whole.Epoch = rec.Owner, rec.Status, max(whole.Epoch, rec.Epoch)
	whole.Short, whole.Label, whole.Name = rec.Short, cmp.Or(rec.Label, whole.Label), rec.Name // by which it is found
	return whole
}

// unrecorded takes up a sandbox that the store does not have, or removes it if
// there is nothing to take up.
func (m *Manager) unrecorded(ctx context.Context, info runtime.Info) error {
	if info.State != sandbox.Live && info.State != sandbox.Stopped {
		m.log.Warn("remove a sandbox that is not recorded", "sandbox", info.ID, "state", info.State)
		return m.opts.Runtime.Destroy(ctx, info.ID)
	}
	rec := m.salvaged(info)
	m.log.Warn("take up a sandbox that is not recorded", "sandbox", rec.Short, "owner", rec.Owner, "state", info.State)
	a := sandbox.Admission{Sandbox: rec, MaxTotal: math.MaxInt, MaxOwner: math.MaxInt}
	_, err := m.opts.Store.Admit(ctx, a, m.event(rec, sandbox.EventState))
	var clash *sandbox.ClashError
	if errors.As(err, &clash) { // somebody has the name by now
		a.Sandbox.Name, a.Sandbox.Aliases = "", nil
		_, err = m.opts.Store.Admit(ctx, a, m.event(rec, sandbox.EventState))
	}
	if err != nil {
		return fmt.Errorf("record it: %w", err)
	}
	b := newBox(a.Sandbox)
	b.arm()
	m.index.add(b)
	m.takeUp(ctx, b, info)
	return nil
}
