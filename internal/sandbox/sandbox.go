package sandbox

import "time"

// Sandbox is one sandbox as the core knows it: a snapshot, which does not
// change when the sandbox does. Times are in UTC; a zero time is "never" or
// "not yet".
type Sandbox struct {
	// UID is the primary key, 64 hex digits; Short its first 12, unique too;
	// Label is fit for host names: "i" and 20 of a-z0-9.
	UID, Short, Label string
	// Name was chosen by the owner and is unique among the owner's sandboxes;
	// empty: none. Aliases are further ids that doors gave it, as unique.
	Name    string
	Aliases []Alias
	Owner   string

	Status State
	// Reason tells why Status is Failed, Destroying or Stopped, or why the
	// sandbox runs on although it was to stop; ReasonText says more in words.
	Reason     Reason
	ReasonText string

	Image       string // by the name that was asked for, or what an alias stands for
	ImageDigest string
	// ImagePath is the root file system on the host, for the daemon's eyes only.
	ImagePath string
	// User and Workdir are what commands have unless they ask for something
	// else. Env is the whole environment, the image's included. It may hold
	// secrets: no door shows it, no log has it.
	User, Workdir string
	Env           []string
	Labels        map[string]string
	Limits        Limits
	// Require names the limits that the caller asked for, NotEnforced those that
	// this host can't enforce (Limit…).
	Require, NotEnforced []string

	// Volumes are those of the owner that the sandbox sees. It holds them until it
	// is destroyed, also while it is stopped.
	Volumes []VolumeMount
	// Tenant as in the request. Storage: the sandbox has that tenant's storage.
	// DropStorage: the storage is to go with the sandbox.
	Tenant               string
	Storage, DropStorage bool
	// DropVolumes are the volumes that are to go with the sandbox, by name.
	DropVolumes []string

	// Network is what the sandbox may reach. Its mode is set.
	Network Network
	// Secrets that it was given; Env has the placeholders.
	Secrets []SecretUse

	// Ports lead from the host's loopback interface into the sandbox while it
	// runs.
	Ports []Port

	OnIdle OnIdle
	// ProcessAPI as in the request.
	ProcessAPI bool
	// KeepStopped and KeepFailed as in the request.
	KeepStopped time.Duration
	KeepFailed  bool
	// IdleTimeout is how long a running sandbox may do nothing, Lifetime how
	// long it may exist before Expires; Never: no end.
	IdleTimeout, Lifetime time.Duration

	Created, Started, Stopped, LastActivity, Expires time.Time

	// Epoch numbers the sessions with the sandbox's agent. It only grows.
	Epoch uint64
}

// Alias is an id that a door gave a sandbox.
type Alias struct {
	Kind  string // which door's form it is
	Value string
}

// Port is a TCP port of the sandbox and one of the host that leads to it. A
// request may leave Host 0: any that is free.
type Port struct{ Guest, Host uint16 }

// VolumeMount is a volume in a sandbox.
type VolumeMount struct {
	Name     string
	Path     string // as CheckMountPaths allows
	ReadOnly bool
	// Make: it is made with the sandbox, in the size that volumes have by default,
	// and goes with a sandbox that could not be made. Later it is like all others.
	Make bool
}

// Never is a timeout that does not end anything.
const Never time.Duration = -1

// OnIdle is what becomes of a sandbox that was idle for too long.
type OnIdle string

// Fates.
const (
	IdleDestroy OnIdle = "destroy" // the default
	IdleStop    OnIdle = "stop"
)

// Defaults and bounds of timeouts.
const (
	DefaultIdleTimeout = 30 * time.Minute
	DefaultLifetime    = 24 * time.Hour
	// MinIdleTimeout and MinLifetime are the shortest that make sense.
	MinIdleTimeout = time.Second
	MinLifetime    = time.Second
	// MaxTimeouts keeps times computable: 100 years.
	MaxTimeouts = 100 * 365 * 24 * time.Hour
)

// Tombstone is what is left of a sandbox for KeepTombstone after its end, for
// its owner only.
type Tombstone struct {
	UID, Short, Label, Name string
	Aliases                 []Alias
	Owner                   string
	Reason                  Reason
	ReasonText              string
	Created, Destroyed      time.Time
}

// KeepTombstone is how long a tombstone stays.
const KeepTombstone = 24 * time.Hour

// Event is one thing that happened to a sandbox.
type Event struct {
	// Seq grows with every event of the server.
	Seq    int64
	UID    string
	Owner  string
	Time   time.Time
	Type   EventType
	Status State // after it
	Reason Reason
	Detail string // in words, may be empty
}

// EventType names what happened.
type EventType string

// Types of events.
const (
	EventState   EventType = "state"   // Status changed
	EventFailure EventType = "failure" // a transition failed and was taken back
	EventUpdate  EventType = "update"  // labels or timeouts changed
	EventOOM     EventType = "oom"     // a command reached the memory limit
	EventAdopted EventType = "adopted" // a new daemon took the sandbox over
)

// MaxEvents is how many events of one sandbox are kept; the oldest go first.
const MaxEvents = 1000
