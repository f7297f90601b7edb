package agentbox

import (
	"encoding/json"
	"time"
)

// Sandbox is a sandbox as the server described it. Its environment is not shown.
type Sandbox struct {
	ID      string `json:"id"`       // 64 hex digits
	ShortID string `json:"short_id"` // the first 12 of them
	Label   string `json:"label"`    // an id that is fit for host names
	Name    string `json:"name"`     // empty: none
	// Status is creating, running, paused, suspended, stopping, stopped, starting, error or
	// destroying.
	Status      string            `json:"status"`
	ErrorReason string            `json:"error_reason"` // why it is so, if it is not as it should be
	Image       string            `json:"image"`
	User        string            `json:"user"`    // who commands run as
	Workdir     string            `json:"workdir"` // where commands run
	Labels      map[string]string `json:"labels"`
	Limits      Limits            `json:"limits"`
	NotEnforced []string          `json:"not_enforced"` // limits that this server can't enforce
	Network     Network           `json:"network"`
	Ports       []PublishedPort   `json:"ports"`
	Volumes     []Mount           `json:"volumes"`
	Secrets     []string          `json:"secrets"`   // names
	TenantID    string            `json:"tenant_id"` // whose storage it has; empty: nobody's
	// ProcessAPI: programs in it find the process API on 127.0.0.1:2024.
	ProcessAPI bool   `json:"process_api"`
	OnIdle     string `json:"on_idle"` // destroy or stop
	// IdleTimeout is how long it may be without use; Never: for ever.
	IdleTimeout    time.Duration `json:"-"`
	CreatedAt      time.Time     `json:"created_at"`
	StartedAt      time.Time     `json:"started_at"` // zero: it has not started
	StoppedAt      time.Time     `json:"stopped_at"` // zero: it has not been stopped
	LastActivityAt time.Time     `json:"last_activity_at"`
	ExpiresAt      time.Time     `json:"expires_at"` // zero: never
}

// UnmarshalJSON reads what a server sends.
func (s *Sandbox) UnmarshalJSON(data []byte) error {
	type plain Sandbox
	wire := struct {
		*plain
		IdleTimeout *float64 `json:"idle_timeout"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	s.IdleTimeout = Never
	if wire.IdleTimeout != nil {
		s.IdleTimeout = seconds(*wire.IdleTimeout)
	}
	return nil
}

// Never is a time limit that there is none of.
const Never time.Duration = -1

// seconds is a duration as servers write it.
func seconds(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }

// inSeconds is a time limit for a server; nil: it has its default.
func inSeconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	f := max(d.Seconds(), 0) // 0 is never
	return &f
}

// Limits are what a sandbox may use. In requests 0 is the server's default.
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes
	CPUs   float64 `json:"cpus,omitempty"`   // cores, such as 0.5
	Disk   int64   `json:"disk,omitempty"`   // bytes of written files, /tmp included
	Shm    int64   `json:"shm,omitempty"`    // bytes of /dev/shm
	Pids   int64   `json:"pids,omitempty"`   // processes and threads
}

// Network is what a sandbox may reach.
type Network struct {
	// Mode is none, allowlist or full. In requests empty is allowlist if there is anything
	// in Allow, else none.
	Mode string `json:"mode,omitempty"`
	// Allow has hosts (api.example.com), all below one (*.example.com), hosts with a port,
	// addresses, ranges, requests (GET api.example.com/v1/*) and presets such as python.
	Allow []string `json:"allow,omitempty"`
	// Intercept are hosts whose TLS the server's proxy ends itself, to see requests.
	Intercept []string `json:"intercept,omitempty"`
	// Resolver: programs that take no proxy reach allowed names, too. nil in requests: true.
	Resolver *bool `json:"resolver,omitempty"`
}

// PublishedPort is a port of a sandbox that the server's machine offers on its loopback
// interface.
type PublishedPort struct {
	Guest int `json:"guest"`          // in the sandbox
	Host  int `json:"host,omitempty"` // on the server's machine; 0 in requests: any that is free
}

// Mount is a volume in a sandbox.
type Mount struct {
	Name     string `json:"name"`
	Path     string `json:"path"` // where it is in the sandbox
	ReadOnly bool   `json:"read_only,omitempty"`
}

// CreateOptions are what a sandbox is to be. What is zero has the server's default.
type CreateOptions struct {
	Image   string            `json:"image,omitempty"` // a name of one that the server has
	Name    string            `json:"name,omitempty"`  // yours for it, unique among your sandboxes
	Labels  map[string]string `json:"labels,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`
	Limits
	// IdleTimeout is how long it may be without use, Lifetime how long it may live.
	IdleTimeout time.Duration   `json:"-"`
	Lifetime    time.Duration   `json:"-"`
	OnIdle      string          `json:"on_idle,omitempty"` // destroy (default) or stop
	Network     *Network        `json:"network,omitempty"` // nil: see NetworkEnabled
	Ports       []PublishedPort `json:"ports,omitempty"`
	Volumes     []Mount         `json:"volumes,omitempty"`
	Secrets     []string        `json:"secrets,omitempty"`
	// TenantID says whose storage it has, where the server keeps any.
	TenantID string `json:"tenant_id,omitempty"`
	// ProcessAPI lets programs in it find the process API on 127.0.0.1:2024.
	ProcessAPI bool `json:"process_api,omitempty"`
	// NetworkEnabled, without a Network, is everything public where the operator allows
	// that, else the hosts of the preset default.
	NetworkEnabled bool `json:"network_enabled,omitempty"`
	// IdempotencyKey is yours, so that a program that is started anew finds the sandbox that
	// it made: the same key and options within a day give the same sandbox. Empty: the
	// client makes one for its own attempts.
	IdempotencyKey string `json:"-"`
}

// MarshalJSON writes what a server takes.
func (o CreateOptions) MarshalJSON() ([]byte, error) {
	type plain CreateOptions
	return json.Marshal(struct {
		plain
		IdleTimeout *float64 `json:"idle_timeout,omitempty"`
		Lifetime    *float64 `json:"lifetime,omitempty"`
	}{plain(o), inSeconds(o.IdleTimeout), inSeconds(o.Lifetime)})
}

// UpdateOptions are what changes of a sandbox. What is zero stays as it is.
type UpdateOptions struct {
	Labels map[string]string `json:"labels,omitempty"` // all of them
	Limits
	IdleTimeout time.Duration `json:"-"`
	Lifetime    time.Duration `json:"-"` // from now on
}

// MarshalJSON writes what a server takes.
func (o UpdateOptions) MarshalJSON() ([]byte, error) {
	type plain UpdateOptions
	return json.Marshal(struct {
		plain
		IdleTimeout *float64 `json:"idle_timeout,omitempty"`
		Lifetime    *float64 `json:"lifetime,omitempty"`
	}{plain(o), inSeconds(o.IdleTimeout), inSeconds(o.Lifetime)})
}

// ListOptions choose sandboxes. What is empty chooses nothing.
type ListOptions struct {
	Labels map[string]string // all of them
	Status []string          // one of them
	Name   string
}

// Stats is what a sandbox uses, as the host measures it.
type Stats struct {
	Time       time.Time `json:"time"`
	CPU        float64   `json:"cpu"`         // seconds since its start
	Memory     int64     `json:"memory"`      // bytes; 0: not known
	PeakMemory int64     `json:"peak_memory"` // most bytes at one time; 0: not known
	OOMKills   int64     `json:"oom_kills"`   // how often the memory limit was reached
	Disk       int64     `json:"disk"`        // bytes on the host's disk
	Processes  int64     `json:"processes"`   // tasks on the host
	NetworkIn  int64     `json:"network_in"`  // bytes
	NetworkOut int64     `json:"network_out"` // bytes
}

// Isolation is what keeps a sandbox from the host.
type Isolation struct {
	Backend      string   `json:"backend"`
	Version      string   `json:"version"`
	Mode         string   `json:"mode"`              // how it works on this host, in words
	HostUser     int64    `json:"host_user"`         // who root of the sandbox is on the host
	Capabilities []string `json:"host_capabilities"` // on the host
	Seccomp      bool     `json:"seccomp"`
	Network      Network  `json:"network"`
	Limits       Limits   `json:"limits"`
	Enforced     []string `json:"enforced"` // limits that hold whatever the sandbox does
	NotEnforced  []string `json:"not_enforced"`
}

// LifeEvent is something that happened to a sandbox.
type LifeEvent struct {
	Seq    int64     `json:"seq"` // grows
	Time   time.Time `json:"time"`
	Type   string    `json:"type"`   // state, failure, update, oom or adopted
	Status string    `json:"status"` // since then
	Reason string    `json:"reason"`
	Detail string    `json:"detail"`
}
