package rest

import (
	"time"

	"agentbox/internal/sandbox"
)

// Sandbox is a sandbox as it is now. Its environment is not shown: it may hold
// secrets.
type Sandbox struct {
	ID             string            `json:"id" doc:"64 hex digits. The short id, the label and the name are accepted in its place everywhere."`
	ShortID        string            `json:"short_id" doc:"The first 12 digits of the id."`
	Label          string            `json:"label" doc:"An id that is fit for host names."`
	Name           *string           `json:"name" doc:"Your name for it; null: none."`
	Status         string            `json:"status" enum:"creating,running,paused,suspended,stopping,stopped,starting,error,destroying"`
	ErrorReason    *string           `json:"error_reason" doc:"Why it is in this state, if it is not as it should be, such as idle or failure."`
	Image          string            `json:"image"`
	User           string            `json:"user" doc:"Who commands run as."`
	Workdir        string            `json:"workdir" doc:"Where commands run."`
	Labels         map[string]string `json:"labels"`
	Limits         Limits            `json:"limits"`
	NotEnforced    []string          `json:"not_enforced" nullable:"false" doc:"Limits that this server can't enforce."`
	Network        Network           `json:"network"`
	Ports          []PublishedPort   `json:"ports" nullable:"false"`
	Volumes        []Mount           `json:"volumes" nullable:"false"`
	Secrets        []string          `json:"secrets" nullable:"false" doc:"Names of the secrets that its requests may have put in."`
	TenantID       *string           `json:"tenant_id" doc:"Whose storage it has; null: nobody's."`
	OnIdle         string            `json:"on_idle" enum:"destroy,stop" doc:"What becomes of it after idle_timeout."`
	ProcessAPI     bool              `json:"process_api" doc:"Programs in it find the process API on 127.0.0.1:2024."`
	IdleTimeout    *float64          `json:"idle_timeout" doc:"Seconds without use; null: it may be idle for ever."`
	CreatedAt      time.Time         `json:"created_at"`
	StartedAt      *time.Time        `json:"started_at"`
	StoppedAt      *time.Time        `json:"stopped_at"`
	LastActivityAt time.Time         `json:"last_activity_at"`
	ExpiresAt      *time.Time        `json:"expires_at" doc:"When it is destroyed; null: never."`
}

// Limits are what a sandbox may use.
type Limits struct {
	Memory int64   `json:"memory" doc:"Bytes."`
	CPUs   float64 `json:"cpus" doc:"Cores."`
	Disk   int64   `json:"disk" doc:"Bytes of written files, /tmp included."`
	Shm    int64   `json:"shm" doc:"Bytes of /dev/shm."`
	Pids   int64   `json:"pids" doc:"Processes and threads."`
}

// PublishedPort is a port of a sandbox that the host offers.
type PublishedPort struct {
	Guest Int `json:"guest" minimum:"1" maximum:"65535" doc:"Port in the sandbox."`
	Host  Int `json:"host,omitzero" minimum:"0" maximum:"65535" doc:"Port on the host's loopback interface, in the operator's range; 0: any that is free."`
}

// Mount is a volume in a sandbox.
type Mount struct {
	Name     string `json:"name" maxLength:"128"`
	Path     string `json:"path" maxLength:"4095" doc:"Where it is in the sandbox."`
	ReadOnly Bool   `json:"read_only,omitempty"`
}

func sandboxOf(sb *sandbox.Sandbox) Sandbox {
	shown := Sandbox{
		ID: sb.UID, ShortID: sb.Short, Label: sb.Label, Status: string(sb.Status),
		Image: sb.Image, User: sb.User, Workdir: sb.Workdir, Labels: sb.Labels,
		Limits:      Limits{sb.Limits.Memory, sb.Limits.CPUs, sb.Limits.Disk, sb.Limits.Shm, sb.Limits.Pids},
		NotEnforced: sb.NotEnforced, Network: networkOf(&sb.Network), Ports: []PublishedPort{}, Volumes: []Mount{}, Secrets: []string{},
		OnIdle: string(sb.OnIdle), ProcessAPI: sb.ProcessAPI,
		CreatedAt: sb.Created, StartedAt: at(sb.Started), StoppedAt: at(sb.Stopped), LastActivityAt: sb.LastActivity, ExpiresAt: at(sb.Expires),
	}
	for _, p := range sb.Ports {
		shown.Ports = append(shown.Ports, PublishedPort{Int{Value: int64(p.Guest)}, Int{Value: int64(p.Host)}})
	}
	for _, v := range sb.Volumes {
		shown.Volumes = append(shown.Volumes, Mount{Name: v.Name, Path: v.Path, ReadOnly: Bool{Value: v.ReadOnly}})
	}
	for _, u := range sb.Secrets {
		shown.Secrets = append(shown.Secrets, u.Name)
	}
	if sb.Tenant != "" {
		shown.TenantID = &sb.Tenant
	}
	if sb.Name != "" {
		shown.Name = &sb.Name
	}
	if sb.Reason != sandbox.ReasonNone {
		reason := string(sb.Reason)
		shown.ErrorReason = &reason
	}
	if sb.IdleTimeout != sandbox.Never {
		seconds := sb.IdleTimeout.Seconds()
		shown.IdleTimeout = &seconds
	}
	if shown.Labels == nil {
		shown.Labels = map[string]string{}
	}
	if shown.NotEnforced == nil {
		shown.NotEnforced = []string{}
	}
	return shown
}

// at is null for the zero time.
func at(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
