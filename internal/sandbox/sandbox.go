package sandbox

// State is where a sandbox is in its life.
type State string

const (
	Creating  State = "creating"  // being made
	Created   State = "created"   // made, not started
	Live      State = "running"   // started
	Paused    State = "paused"    // frozen, memory kept in place
	Suspended State = "suspended" // checkpoint on disk, memory freed
	Stopping  State = "stopping"  // on its way to Stopped
	Stopped   State = "stopped"   // files kept, processes gone
	Failed    State = "error"     // always with a Reason
)

// Reason tells why a sandbox ended or failed.
type Reason string

const (
	ReasonNone      Reason = ""          // it lives, or nobody knows
	ReasonExited    Reason = "exited"    // its first process ended
	ReasonOOM       Reason = "oom"       // its memory limit was reached
	ReasonCrashed   Reason = "crashed"   // the engine ended unexpectedly
	ReasonDestroyed Reason = "destroyed" // somebody asked for it
)

// Not-enforced limits are named by these words in reports.
const (
	LimitMemory = "memory"
	LimitCPUs   = "cpus"
	LimitPids   = "pids"
	LimitDisk   = "disk"
)
