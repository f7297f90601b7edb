package rest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// NewSandbox is what a sandbox is to be. What is left out has the server's
// default.
type NewSandbox struct {
	Image   string            `json:"image,omitempty" maxLength:"512" doc:"Name of an image that the server has."`
	Name    string            `json:"name,omitempty" maxLength:"128" doc:"Your name for it, unique among your sandboxes."`
	Labels  map[string]string `json:"labels,omitempty"`
	Env     map[string]string `json:"env,omitempty" doc:"Added to the image's environment."`
	User    string            `json:"user,omitempty" maxLength:"128" doc:"Who commands run as, instead of the image's user."`
	Workdir string            `json:"workdir,omitempty" maxLength:"4095" doc:"Where commands run, instead of the image's directory."`
	NewLimits
	IdleTimeout    *Duration       `json:"idle_timeout,omitempty"`
	Lifetime       *Duration       `json:"lifetime,omitempty"`
	NetworkEnabled Bool            `json:"network_enabled,omitempty"`
	Network        *NewNetwork     `json:"network,omitempty"`
	Ports          []PublishedPort `json:"ports,omitempty" maxItems:"32" doc:"Ports of the sandbox that the server's machine offers on its loopback interface, for as long as the sandbox runs."`
	Volumes        []Mount         `json:"volumes,omitempty" maxItems:"16" doc:"Your volumes that it is to have. One to which it may write is had by no other sandbox."`
	Secrets        []string        `json:"secrets,omitempty" maxItems:"32" doc:"Your secrets that its requests may have put in: see POST /secrets. It has a placeholder for each, in a variable of that name."`
	TenantID       string          `json:"tenant_id,omitempty" maxLength:"128" doc:"Whose storage it has on /workspace and /mnt/user-data/outputs: one among yours, made on first use and shared by all your sandboxes that name it."`
	OnIdle         string          `json:"on_idle,omitempty" enum:"destroy,stop" doc:"What becomes of it after idle_timeout. Default: destroy."`
	ProcessAPI     Bool            `json:"process_api,omitempty" doc:"Programs in it find the process API on 127.0.0.1:2024: POST /exec, /exec/stream, /file/write and /file/read, GET /health."`
}

// NewLimits are limits that a caller chooses.
type NewLimits struct {
	Memory *Size  `json:"memory,omitempty"`
	CPUs   *Float `json:"cpus,omitempty" doc:"Cores, such as 0.5."`
	Disk   *Size  `json:"disk,omitempty" doc:"Of written files, /tmp included."`
	Shm    *Size  `json:"shm,omitempty" doc:"Of /dev/shm."`
	Pids   *Int   `json:"pids,omitempty" doc:"Processes and threads."`
}

type createInput struct {
	Key  string `header:"Idempotency-Key" maxLength:"255" doc:"The same key with the same body within a day gives the same sandbox; with another body it is a conflict."`
	Body NewSandbox
}

type sandboxOutput struct{ Body Sandbox }

func (a *API) createSandbox(ctx context.Context, c sandbox.Caller, in *createInput) (*sandboxOutput, error) {
	r, err := a.request(&in.Body)
	if err == nil {
		err = doors.MustBeSeen(ctx, a.Audit)
	}
	var sb sandbox.Sandbox
	if err == nil {
		sb, err = a.Sandboxes.Create(ctx, c, r, in.Key)
		err = notCreated(ctx, err, in.Body.Image)
	}
	details := map[string]string{"image": r.Image, "name": r.Name, "network": string(r.Network.Mode)}
	addList(details, "allow", r.Network.Allow)
	addList(details, "intercept", r.Network.Intercept)
	if err == nil { // else they may be no names
		details["secrets"] = strings.Join(r.Secrets, " ")
	}
	a.recordOn(ctx, c, audit.Create, sb.UID, err, details)
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{sandboxOf(&sb)}, nil
}

// notCreated tells the errors of a creation apart that have the same class: an
// image that is not there is the request's fault if the request named it, and
// else the server's.
func notCreated(ctx context.Context, err error, image string) error {
	if err == nil {
		return nil
	}
	p := server.ProblemOf(err)
	switch {
	case p.Code == server.CodeNotFound && image != "":
		return &sandbox.InvalidError{Field: "image", Value: image, Allowed: "an image that the server has, see GET " + Prefix + "/images"}
	case p.Code == server.CodeNotFound, p.Code == server.CodeInternal:
		server.LogError(ctx, err)
		return server.NewProblem(server.CodeInternal, "Failed to create sandbox container")
	}
	return err
}

// request translates a body for the core.
func (a *API) request(b *NewSandbox) (sandbox.CreateRequest, error) {
	r := sandbox.CreateRequest{
		Image: b.Image, Name: b.Name, Labels: b.Labels, User: b.User, Workdir: b.Workdir, OnIdle: sandbox.OnIdle(b.OnIdle), ProcessAPI: b.ProcessAPI.Value, Defaults: a.Defaults,
	}
	for _, name := range slices.Sorted(maps.Keys(b.Env)) { // repeated requests are compared
		if strings.Contains(name, "=") {
			return r, &sandbox.InvalidError{Field: "env", Value: name, Allowed: "names without ="}
		}
		r.Env = append(r.Env, name+"="+b.Env[name])
	}
	var err error
	if r.Network, err = b.network(a.Networks.DefaultNetwork); err != nil {
		return r, err
	}
	if r.Tenant = b.TenantID; r.Tenant != "" && !a.Sandboxes.TenantStorage() {
		return r, sandbox.Refuse(errdefs.ErrNotImplemented, "this server keeps no storage of tenants: its operator has not set storage")
	}
	r.Secrets = b.Secrets
	for _, v := range b.Volumes {
		r.Volumes = append(r.Volumes, sandbox.VolumeMount{Name: v.Name, Path: v.Path, ReadOnly: v.ReadOnly.Value})
	}
	if r.Limits, err = b.chosen(); err != nil {
		return r, err
	}
	for _, p := range b.Ports {
		r.Ports = append(r.Ports, sandbox.Port{Guest: uint16(p.Guest.Value), Host: uint16(p.Host.Value)}) // the document bounds them
	}
	r.IdleTimeout, r.Lifetime = span(b.IdleTimeout), span(b.Lifetime)
	return r, nil
}

// chosen is what the caller chose. A zero is none that a caller can choose, and
// stands for the default below.
func (b *NewLimits) chosen() (l sandbox.Limits, err error) {
	for _, f := range []struct {
		name  string
		asked *Size
		to    *int64
	}{
		{"memory", b.Memory, &l.Memory}, {"disk", b.Disk, &l.Disk}, {"shm", b.Shm, &l.Shm},
	} {
		if f.asked == nil {
			continue
		}
		if f.asked.Bytes == 0 {
			return l, tooSmall(f.name)
		}
		*f.to = f.asked.Bytes
	}
	if b.CPUs != nil {
		if l.CPUs = b.CPUs.Value; l.CPUs == 0 {
			return l, tooSmall("cpus")
		}
	}
	if b.Pids != nil {
		if l.Pids = b.Pids.Value; l.Pids == 0 {
			return l, tooSmall("pids")
		}
	}
	return l, nil
}

func tooSmall(field string) error {
	return &sandbox.InvalidError{Field: field, Value: "0", Allowed: "more than 0; leave it out for the default"}
}

// span is a timeout for the core: 0 is without end, and what was not said is the
// default.
func span(d *Duration) time.Duration {
	switch {
	case d == nil:
		return 0
	case d.Value == 0:
		return sandbox.Never
	case d.Value < 0: // not a way to write "never"
		return time.Nanosecond
	}
	return d.Value
}
