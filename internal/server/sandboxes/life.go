package sandboxes

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/doors"
)

func (d *door) list(r *http.Request, c sandbox.Caller) (any, error) {
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	project, all := q.text("project_name"), []Sandbox{} // never null
	_, only := q.get("project_name")
	err = d.each(r.Context(), c, func(sb *sandbox.Sandbox) error {
		if sb.Status != sandbox.Destroying && (!only || projectOf(sb) == project) {
			all = append(all, sandboxOf(sb))
		}
		return nil
	})
	return all, err
}

// each calls f with all sandboxes of the caller, until f returns an error.
func (d *door) each(ctx context.Context, c sandbox.Caller, f func(*sandbox.Sandbox) error) error {
	for cursor := ""; ; {
		page, err := d.Sandboxes.List(ctx, c, sandbox.Filter{Cursor: cursor, Limit: sandbox.MaxPage})
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := f(&page.Items[i]); err != nil {
				return err
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

func (d *door) get(r *http.Request, c sandbox.Caller) (any, error) {
	sb, err := d.Sandboxes.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return sandboxOf(&sb), nil
}

func (d *door) start(r *http.Request, c sandbox.Caller) (any, error) {
	return d.change(r, c, audit.Start, "start", d.Sandboxes.Start)
}

func (d *door) stop(r *http.Request, c sandbox.Caller) (any, error) {
	return d.change(r, c, audit.Stop, "stop", d.Sandboxes.Stop)
}

// past are the verbs in messages.
var past = map[string]string{"start": "started", "stop": "stopped", "destroy": "destroyed"}

func said(sb *sandbox.Sandbox, verb string) done {
	return done{true, fmt.Sprintf("Sandbox %s %s successfully", idOf(sb), past[verb])}
}

func (d *door) change(r *http.Request, c sandbox.Caller, action audit.Action, verb string, do func(context.Context, sandbox.Caller, string) (sandbox.Sandbox, error)) (any, error) {
	ctx := r.Context()
	sb, err := d.Sandboxes.Get(ctx, c, r.PathValue("id"))
	if err == nil {
		_, err = do(ctx, c, sb.UID)
	}
	doors.Record(ctx, d.Audit, c, action, sb.UID, err, nil)
	if err != nil {
		return nil, failed(err, "Failed to "+verb+" sandbox")
	}
	return said(&sb, verb), nil
}

func (d *door) destroy(r *http.Request, c sandbox.Caller) (any, error) {
	ctx := r.Context()
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	remove := q.boolean("remove_volume", true)
	if err := q.err(); err != nil {
		return nil, err
	}
	sb, err := d.Sandboxes.Get(ctx, c, r.PathValue("id"))
	details := map[string]string{}
	switch workspace := workspaceOf(&sb); {
	case err != nil:
	case remove && workspace != "":
		details["workspace"] = "removed"
		err = d.Sandboxes.DestroyWithVolume(ctx, c, sb.UID, workspace)
	default:
		err = d.Sandboxes.Destroy(ctx, c, sb.UID)
	}
	doors.Record(ctx, d.Audit, c, audit.Destroy, sb.UID, err, details)
	if err != nil {
		return nil, failed(err, "Failed to destroy sandbox")
	}
	return said(&sb, "destroy"), nil
}

// cleanup destroys the door's sandboxes of the caller that have been stopped for some
// hours, with their workspaces. The id in its path means nothing.
func (d *door) cleanup(r *http.Request, c sandbox.Caller) (any, error) {
	ctx := r.Context()
	q, err := readQuery(r)
	if err != nil {
		return nil, err
	}
	hours := q.whole("hours", 24)
	if err := q.err(); err != nil {
		return nil, err
	}
	before := time.Now().Add(-time.Duration(min(hours, maxHours)) * time.Hour)
	removed := 0
	err = d.each(ctx, c, func(sb *sandbox.Sandbox) error {
		if !isOurs(sb) || sb.Status != sandbox.Stopped || sb.Stopped.After(before) {
			return nil
		}
		did, err := d.Sandboxes.DestroyStopped(ctx, c, sb.UID, before, workspaceOf(sb))
		if isGone(err) {
			return nil // somebody else did
		}
		if did || err != nil {
			doors.Record(ctx, d.Audit, c, audit.Destroy, sb.UID, err, map[string]string{"cleanup": fmt.Sprint(hours) + "h"})
		}
		if did {
			removed++
		}
		return err
	})
	if err != nil {
		return nil, failed(err, "Failed to destroy sandbox")
	}
	return done{true, fmt.Sprintf("Cleaned up %d stopped sandbox(es)", removed)}, nil
}

// maxHours keeps the time computable: 100 years.
const maxHours = 100 * 365 * 24
