package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"

	"agentbox/internal/audit"
	"agentbox/internal/ids"
	"agentbox/internal/sandbox"
	"agentbox/internal/server/doors"
)

// Limits of sandboxes whose caller does not say, as clients rely on them.
const (
	defaultMemory = "2g"
	defaultCPU    = "2.0"
)

// wanted is a request for a sandbox.
type wanted struct {
	project, memory, cpu, image string
	ports                       []sandbox.Port
	env                         []string
	network                     bool
}

func (d *door) create(r *http.Request, c sandbox.Caller) (any, error) {
	ctx := r.Context()
	q, err := readWanted(r)
	if err != nil {
		return nil, err
	}
	sb, err := d.makeRecorded(ctx, c, q)
	details := map[string]string{"project": q.project, "image": sb.Image, "network": string(sb.Network.Mode)}
	doors.Record(ctx, d.Audit, c, audit.Create, sb.UID, err, details)
	if err != nil {
		return nil, failed(err, "Failed to create sandbox")
	}
	return sandboxOf(&sb), nil
}

// makeRecorded makes a sandbox, unless nobody could see it afterwards.
func (d *door) makeRecorded(ctx context.Context, c sandbox.Caller, q *wanted) (sandbox.Sandbox, error) {
	var none sandbox.Sandbox
	if err := doors.MustBeSeen(ctx, d.Audit); err != nil {
		return none, err
	}
	s, err := d.settingsOf(ctx, c.Owner)
	if err != nil {
		return none, err
	}
	req, err := d.request(q, s)
	if err != nil {
		return none, err
	}
	sb, err := d.make(ctx, c, q.project, req)
	if errdefs.IsNotFound(err) {
		if q.image == "" {
			return sb, fmt.Errorf("%w: the image %s is missing: %s", errdefs.ErrInternal, req.Image, err.Error())
		}
		err = &sandbox.InvalidError{Field: "image", Value: q.image, Allowed: "an image that the server has"}
	}
	return sb, err
}

func readWanted(r *http.Request) (*wanted, error) {
	f, err := readForm(r)
	if err != nil {
		return nil, err
	}
	f.require("project_name")
	q := &wanted{
		project: f.text("project_name"), memory: f.textOrNumber("memory_limit"), cpu: f.textOrNumber("cpu_limit"),
		image: f.text("image"), network: f.boolean("network_enabled", true),
	}
	env, ports := f.texts("env"), f.ports()
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := sandbox.CheckID("project_name", q.project); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if strings.Contains(name, "=") {
			return nil, &sandbox.InvalidError{Field: "env", Value: sandbox.Clip(name, 64), Allowed: "names without ="}
		}
		q.env = append(q.env, name+"="+env[name])
	}
	q.ports, err = portsOf(ports)
	return q, err
}

// ports is the map of the sandbox's ports, which are texts, to the host's.
func (f *form) ports() (m map[string]json.Number) {
	if raw, ok := f.get("ports"); ok && json.Unmarshal(raw, &m) != nil {
		f.wrong("dict_type", "ports", "it must be an object: the sandbox's ports, and for each a port of the host as a number", raw)
	}
	return m
}

func portsOf(m map[string]json.Number) (list []sandbox.Port, err error) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		guest, bad := strconv.ParseUint(name, 10, 16)
		if bad != nil || guest == 0 || name[0] == '+' {
			return nil, &sandbox.InvalidError{Field: "ports", Value: sandbox.Clip(name, 64), Allowed: "ports of the sandbox from 1 to 65535"}
		}
		host, bad := strconv.ParseFloat(m[name].String(), 64)
		if bad != nil || host < 0 || host > 65535 || host != math.Trunc(host) {
			return nil, &sandbox.InvalidError{Field: "ports", Value: sandbox.Clip(m[name].String(), 64), Allowed: "ports of the host from 1 to 65535; 0 for any that is free"}
		}
		list = append(list, sandbox.Port{Guest: uint16(guest), Host: uint16(host)})
	}
	return list, nil
}

// request is what the core takes.
func (d *door) request(q *wanted, s settings) (sandbox.CreateRequest, error) {
	r := sandbox.CreateRequest{
		Image: q.image, Env: q.env, Ports: q.ports, Workdir: sandbox.WorkspacePath, KeepFailed: true, IdleTimeout: s.idle(d.MaxIdle), Lifetime: sandbox.Never,
	}
	if r.Image == "" {
		r.Image = d.Image()
	}
	if d.MaxLifetime > 0 {
		r.Lifetime = d.MaxLifetime
	}
	if q.network {
		r.Network = d.Network()
	}
	if d.Sandboxes.Capabilities().Stop {
		r.OnIdle, r.KeepStopped = sandbox.IdleStop, s.keepStopped()
	}
	memory, cpu := s.memory(), defaultCPU
	var err error
	if r.Defaults.Memory, err = sizeOf("memory_limit", memory); err != nil {
		return r, err
	}
	if r.Defaults.Disk, err = sizeOf("sandbox_image_size", s.ImageSize); err != nil {
		return r, err
	}
	r.Defaults.CPUs, _ = strconv.ParseFloat(cpu, 64)
	if q.memory != "" {
		memory = q.memory
		if r.Limits.Memory, err = sizeOf("memory_limit", memory); err != nil {
			return r, err
		}
	}
	if q.cpu != "" {
		cpu = q.cpu
		if r.Limits.CPUs, err = coresOf(cpu); err != nil {
			return r, err
		}
	}
	r.Labels = map[string]string{labelSandbox: "true", labelProject: q.project, labelMemory: memory, labelCPU: cpu}
	return r, nil
}

// sizeOf reads a size such as 2g, of more than 0.
func sizeOf(field, s string) (int64, error) {
	n, err := sandbox.ParseSize(field, s)
	if err != nil || n == 0 || len(s) > maxNumber {
		return 0, &sandbox.InvalidError{Field: field, Value: sandbox.Clip(s, 64), Allowed: "digits and b, k, m or g, such as 512m or 2g, more than 0"}
	}
	return n, nil
}

// maxNumber is the longest text of a number, in bytes.
const maxNumber = 32

var decimal = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9]+(\.[0-9]*)?|\.[0-9]+)$`) })

// coresOf reads a number of cores, of more than 0.
func coresOf(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n <= 0 || len(s) > maxNumber || !decimal().MatchString(s) {
		return 0, &sandbox.InvalidError{Field: "cpu_limit", Value: sandbox.Clip(s, 64), Allowed: "a decimal number such as 2.0 or 0.5, more than 0"}
	}
	return n, nil
}

// drawTries is how often an id is drawn: two equal ones of 32 random bits are not
// seen three times in a row.
const drawTries = 3

// make makes a sandbox with an id of the door, and a workspace: the newest that was
// kept of the project and that nobody has, else a new one.
func (d *door) make(ctx context.Context, c sandbox.Caller, project string, r sandbox.CreateRequest) (sb sandbox.Sandbox, err error) {
	kept, err := d.kept(ctx, c.Owner, project)
	if err != nil {
		return sb, err
	}
	for tries := 0; tries < drawTries; {
		id := "sandbox-" + ids.Hex(4)
		r.Aliases, r.Labels[labelID] = []sandbox.Alias{{Kind: Kind, Value: id}}, id
		mount := sandbox.VolumeMount{Name: workspaceName(project, id), Path: sandbox.WorkspacePath, Make: true}
		if len(kept) > 0 {
			mount.Name, mount.Make = kept[0], false
		}
		r.Volumes = []sandbox.VolumeMount{mount}
		sb, err = d.Sandboxes.Create(ctx, c, r, "")
		var clash *sandbox.ClashError
		switch {
		case errors.As(err, &clash):
			tries++
		case len(kept) > 0 && isTaken(err):
			kept = kept[1:]
		default:
			return sb, err
		}
	}
	return sb, err
}

// isTaken reports a workspace that somebody took, or removed, meanwhile.
func isTaken(err error) bool {
	var held *sandbox.VolumeHeldError
	var invalid *sandbox.InvalidError
	return errors.As(err, &held) || errors.As(err, &invalid) && invalid.Field == "volumes"
}
