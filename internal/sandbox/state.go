package sandbox

import "slices"

// State is where a sandbox is in its life.
type State string

const (
	Creating   State = "creating"   // being made
	Created    State = "created"    // a back end's: made, not started
	Live       State = "running"    // started
	Paused     State = "paused"     // frozen, memory kept in place
	Suspended  State = "suspended"  // checkpoint on disk, memory freed
	Stopping   State = "stopping"   // on its way to Stopped
	Stopped    State = "stopped"    // files kept, processes gone
	Starting   State = "starting"   // on its way from Stopped to Live
	Failed     State = "error"      // unusable, always with a Reason
	Destroying State = "destroying" // on its way to Destroyed
	Destroyed  State = "destroyed"  // gone; a tombstone tells why
)

// transitions is the state machine: which states may follow which. Creating,
// Stopping and Starting go back to where they came from when they fail.
var transitions = map[State][]State{
	Creating:   {Live, Failed, Destroying},
	Live:       {Stopping, Failed, Destroying},
	Stopping:   {Stopped, Live, Failed, Destroying},
	Stopped:    {Starting, Failed, Destroying},
	Starting:   {Live, Stopped, Failed, Destroying},
	Failed:     {Destroying},
	Destroying: {Destroyed},
}

// MayBecome reports whether a sandbox in the state s may come into the state
// next.
func (s State) MayBecome(next State) bool { return slices.Contains(transitions[s], next) }

// Reason tells why a sandbox ended or failed.
type Reason string

const (
	ReasonNone        Reason = ""             // it lives, or nobody knows
	ReasonExited      Reason = "exited"       // its first process ended
	ReasonOOM         Reason = "oom"          // its memory limit was reached
	ReasonCrashed     Reason = "crashed"      // the engine ended unexpectedly
	ReasonDestroyed   Reason = "destroyed"    // somebody asked for it
	ReasonIdle        Reason = "idle"         // nothing was done with it for too long
	ReasonLifetime    Reason = "lifetime"     // its time was over
	ReasonHostRestart Reason = "host_restart" // the machine had no trace of it any more
	ReasonUnmade      Reason = "unmade"       // its creation failed or was cut off
	ReasonStopped     Reason = "stopped"      // of commands: their sandbox was stopped
	ReasonFailure     Reason = "failure"      // it could be neither started nor stopped again
)

// Not-enforced limits are named by these words in reports.
const (
	LimitMemory = "memory"
	LimitCPUs   = "cpus"
	LimitPids   = "pids"
	LimitDisk   = "disk"
)
