package sandboxes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"agentbox/internal/audit"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// testTimeout bounds the test: to look at the back end and make a sandbox, and to run
// a command in it.
const testTimeout = (10 + 30) * time.Second

// test tries whether sandboxes can be had: one with the memory that is asked for runs
// a command, and goes. A test that fails is a result, too.
func (d *door) test(r *http.Request, c sandbox.Caller) (any, error) {
	f, err := readForm(r)
	if err != nil {
		return nil, err
	}
	f.require("use_sandbox")
	use, memory := f.boolean("use_sandbox", false), f.textOrNumber("sandbox_memory")
	if f.text("sandbox_image_size"); f.err() != nil {
		return nil, f.err()
	}
	if !use {
		return done{true, "Direct execution mode - no sandbox testing required."}, nil
	}
	if memory == "" {
		memory = "4gb"
	}
	size, err := sizeOf("sandbox_memory", memory)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), testTimeout)
	defer cancel()
	name := backEnd(d.Sandboxes.Capabilities().Name)
	stderr, err := d.try(ctx, c, size)
	switch {
	case err != nil && r.Context().Err() != nil:
		return nil, context.Cause(r.Context())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return done{false, name + " command timed out. The server may be busy; try again."}, nil
	case err != nil:
		server.LogError(ctx, err)
		return done{false, "Sandbox test failed: " + server.ProblemOf(err).Detail}, nil
	case stderr != "":
		return done{false, "Sandbox test failed: " + sandbox.Clip(stderr, 1024)}, nil
	}
	return done{true, "Sandbox test passed! " + name + " is working with " + memory + " memory limit."}, nil
}

// backEnd is the back end's name as people write it.
func backEnd(name string) string {
	if name == "gvisor" {
		return "gVisor"
	}
	return name
}

// probe is what the sandbox of a test prints.
const probe = "Sandbox test successful"

// try runs a command in a sandbox that goes at once; stderr is what it complained
// of.
func (d *door) try(ctx context.Context, c sandbox.Caller, memory int64) (stderr string, err error) {
	if err := doors.MustBeSeen(ctx, d.Audit); err != nil {
		return "", err
	}
	sb, err := d.Sandboxes.Create(ctx, c, sandbox.CreateRequest{
		Image: d.Image(), Limits: sandbox.Limits{Memory: memory}, IdleTimeout: time.Minute, Lifetime: 2 * testTimeout,
		Labels: map[string]string{"autocoder.test": "true"},
	}, "")
	doors.Record(ctx, d.Audit, c, audit.Create, sb.UID, err, map[string]string{"test": "true"})
	if err != nil {
		return "", err
	}
	defer func() {
		gone := d.Sandboxes.Destroy(context.WithoutCancel(ctx), c, sb.UID) // its lifetime ends it else
		doors.Record(ctx, d.Audit, c, audit.Destroy, sb.UID, gone, map[string]string{"test": "true"})
		if gone != nil {
			server.LogError(ctx, gone)
		}
	}()
	e, err := d.Sandboxes.StartExec(ctx, c, sb.UID, sandbox.Command{Argv: []string{"echo", probe}, Timeout: min(30*time.Second, d.Exec)}, client.Output{}, "")
	details := map[string]string{"command": "echo " + probe, "test": "true"}
	if err == nil {
		details["exec_id"] = e.ID()
	}
	doors.Record(ctx, d.Audit, c, audit.Exec, sb.UID, err, details)
	if err != nil {
		return "", err
	}
	res, err := e.Wait(ctx)
	switch {
	case err != nil:
		e.Abandon()
		return "", err
	case res.Outcome != sandbox.Exited || res.ExitCode != 0 || strings.TrimSpace(string(res.Stdout)) != probe:
		return strings.TrimSpace(string(res.Stderr)) + " " + res.Reason, nil
	}
	return "", nil
}
