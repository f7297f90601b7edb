// Package runtime is the seam between agentbox and what isolates a sandbox.
//
// A back end only has to create, start, stop and destroy a sandbox and give one
// duplex byte stream to the guest agent in it. Everything that happens inside
// (commands, terminals, files, ports, egress) goes over that stream to the same
// agent, so every back end behaves alike. There is no exec and there are no
// files in this interface, on purpose.
package runtime

import (
	"context"
	"net"
	"net/netip"
	"time"

	"agentbox/internal/sandbox"
)

// Runtime is one back end. Its methods may be called from any goroutine; calls
// for one id are serialized by the back end.
//
// # Life of a sandbox
//
//	Create ──► created ──Start──► running ──Stop──► stopped ──Start──► running
//	   running ──crash──► error ──Start, if it was stopped before──► running
//	   every state ──Destroy──► gone
//
// Create makes everything that needs no user code to run: records, limits, the
// isolated process. It is complete or leaves nothing behind. Start lets the
// guest agent run. Attach gives the stream to it. Destroy ends the sandbox
// and removes all that Create made.
//
// # Durability
//
// A sandbox outlives the process that created it. A back end writes what it
// needs to find its sandboxes again before the side effect itself, so that
// after a kill at any moment a new process can List, Attach and Destroy all of
// them. It believes the kernel (pidfd, start time), never a recorded pid alone.
//
// # Errors
//
// Errors are of the classes of containerd/errdefs: NotFound for an id that the
// back end does not have, FailedPrecondition for a call that the state does not
// allow, InvalidArgument for a spec that can't be, NotImplemented for what
// Capabilities denies, Unavailable for what may work later. A limit that the
// caller asked for and the back end can't enforce is a FailedPrecondition
// error, never a weaker sandbox.
type Runtime interface {
	// Capabilities tell what this back end can do on this host, in this mode.
	Capabilities() Capabilities

	// Create makes the sandbox spec.ID, ready to be started. AlreadyExists when
	// there is one of that id.
	Create(ctx context.Context, spec Spec) error

	// Start runs the guest agent of a created or stopped sandbox. It returns as
	// soon as Attach can succeed. Starting a running sandbox is
	// FailedPrecondition. A stopped sandbox comes back with the files, the
	// limits and the image of before, which must still be there (NotFound), and
	// with a new agent, to which every epoch is new. A sandbox that crashed and
	// has Info.Saved starts with the files of its last Stop. Saved files that are
	// damaged are DataLoss. When Start of a stopped sandbox fails, it is stopped
	// as before.
	Start(ctx context.Context, id string) error

	// Attach opens the stream to the guest agent of a running sandbox and
	// proves to both ends that the other is the right one. The caller speaks
	// first on it (guest HELLO), owns it and closes it. When the agent takes a
	// session on a new stream, it lets go of the one before; so it does when
	// another process attaches, which is how a restarted daemon takes its
	// sandboxes back. If the stream has a method Established(), the caller calls
	// it then, so that the back end can end the stream before on this side.
	Attach(ctx context.Context, id string) (net.Conn, error)

	// Stop ends all processes and the stream, and keeps the files of the writable
	// layer; Start brings it back with them. Sockets, file systems in memory and
	// open files without a name are not kept. A caller who wants commands and
	// transfers to end in order does that before. When Stop fails, such as with
	// ResourceExhausted because there are too many files, the sandbox is running,
	// without its processes, and can be attached to; or it is stopped and has a
	// process left, which another Stop ends. NotImplemented unless
	// Capabilities.Stop.
	Stop(ctx context.Context, id string) error

	// Destroy ends the sandbox and removes everything of it. It works from any
	// state, also half-made and dead ones, and is idempotent: an id that does
	// not exist is success.
	Destroy(ctx context.Context, id string) error

	// List returns everything that carries this back end's mark, in any state,
	// sorted by id.
	List(ctx context.Context) ([]Info, error)

	// Watch reports the end of sandboxes from the time of the call on, also of
	// sandboxes that another process created. The channel is closed when ctx
	// ends or the runtime is closed. A receiver that is slow delays nobody; no
	// event is lost.
	Watch(ctx context.Context) <-chan Event

	// Close lets go of the sandboxes without ending them.
	Close() error
}

// Spec describes one sandbox for a back end.
type Spec struct {
	// ID is 64 hex digits (ids.UID). Nothing else is accepted, because runtimes
	// match ids by prefix.
	ID string
	// Image is the root file system.
	Image Image
	// Hostname inside. Empty: the first 12 digits of ID.
	Hostname string
	// Limits with defaults filled in.
	Limits sandbox.Limits
	// Require names the limits that the caller asked for (sandbox.Limit…).
	// Create fails when one of them can't be enforced; others that can't be are
	// listed in Info.NotEnforced.
	Require []string
	// Labels are kept with the sandbox and returned by List.
	Labels map[string]string
	// Mounts are directories of the host that the sandbox sees. Without any there
	// is nothing of the host's files in it, and no process that could open some.
	Mounts []Mount
}

// Image is a root file system as back ends take it: one EROFS file that holds
// the guest agent at AgentPath.
type Image struct {
	// Path of the EROFS file on the host. It must not change while a sandbox
	// uses it.
	Path string
	// Digest identifies the content ("sha256:…").
	Digest string
}

// AgentPath is where the image has the guest agent.
const AgentPath = "/.agentbox/guest"

// Capabilities tell what a back end can do on this host, in this mode.
type Capabilities struct {
	// Name of the back end ("gvisor", "fake"), and the version of what isolates.
	Name, Version string
	// Mode in words: "root, cgroup v1", "rootless, no cgroups".
	Mode string
	// NotEnforced names the limits (sandbox.Limit…) that this mode can't
	// enforce.
	NotEnforced []string
	// HostUser is the host uid that guest root maps to. Each process of a
	// sandbox has it, whatever user its program is inside.
	HostUser uint32
	// HostUsers is how many host uids, from HostUser on, are users of a sandbox:
	// what it writes to a mount belongs to them. 0: one.
	HostUsers int
	// HostCapabilities are those that the isolating process keeps on the host;
	// Seccomp tells whether a filter bounds its system calls there.
	HostCapabilities []string
	Seccomp          bool
	// Guest reports whether the stream leads to a real Linux guest, so that
	// programs can be run. Without it only the built-in commands of the fake
	// exist.
	Guest bool
	// Stop, Suspend: whether the calls work.
	Stop, Suspend bool
}

// Info is what List knows of a sandbox.
type Info struct {
	ID          string
	State       sandbox.State
	Reason      sandbox.Reason // of Failed
	Created     time.Time
	Labels      map[string]string
	Limits      sandbox.Limits
	NotEnforced []string
	// Pid of the isolated process on the host; 0 when there is none.
	Pid int
	// Saved is the time of the last Stop whose files are kept; zero when there
	// are none.
	Saved time.Time
}

// Event tells that a sandbox ended without being asked to.
type Event struct {
	ID     string
	Reason sandbox.Reason // ReasonExited, ReasonOOM or ReasonCrashed
	// ExitCode of the guest's first process, -1 when unknown.
	ExitCode int
	// Detail for the operator's log, such as what matters of a panic log.
	Detail string
	Time   time.Time
}

// Suspender is implemented by back ends that can write a running sandbox to
// disk and bring it back. The caller ends its guest session before Suspend
// (guest quiesce), because an open stream would make an image that can never
// be restored.
type Suspender interface {
	// Suspend writes the sandbox to dir, which must not exist, and ends it. On
	// error the sandbox runs on.
	Suspend(ctx context.Context, id, dir string) error
	// Resume makes the sandbox spec.ID, which must not exist, from an image
	// that Suspend wrote for a sandbox of the same spec.
	Resume(ctx context.Context, spec Spec, dir string) error
}

// Resizer is implemented by back ends that can change limits of a sandbox that
// is there.
type Resizer interface {
	// Resize gives a running or stopped sandbox the memory, processors and
	// processes of l; the other limits are as they were (InvalidArgument). They
	// hold from then on, over Stop and Start, too, while the guest goes on to see
	// the memory and processors that it was started with. On error all is as
	// before. A running sandbox that has more memory in use is
	// FailedPrecondition, and none of its processes ends for it.
	Resize(ctx context.Context, id string, l sandbox.Limits) error
}

// Networked is implemented by back ends whose sandboxes have a network of their
// own, over which they reach the egress proxy's listener and nothing else: that is
// for the back end to enforce. Programs in them find it by a URL with a token.
type Networked interface {
	// Addresses are those from which connections of a running sandbox come to this
	// host. Together with the token they are its identity, so no other sandbox may
	// send from them as long as it runs. They are asked for after each Start and
	// when a daemon takes the sandbox over.
	Addresses(ctx context.Context, id string) ([]netip.Addr, error)
}

// StatsReader is implemented by back ends that can measure a sandbox.
type StatsReader interface {
	Stats(ctx context.Context, id string) (Stats, error)
}

// OOMReader is implemented by back ends that count what the host killed for its
// memory: the one number of [Stats] that is asked for with each command.
type OOMReader interface {
	OOMKills(ctx context.Context, id string) (int64, error)
}

// Stats are measured on the host, so the guest can't lie about them.
type Stats struct {
	CPUTime            time.Duration
	Memory, PeakMemory int64 // bytes; 0 when the mode can't tell
	OOMKills           int64
	Pids               int64 // host tasks
	DiskUsed           int64 // bytes of the writable layer and of saved files on the host's disk
	// BytesOut and BytesIn went over the network since the sandbox began to run,
	// or since another daemon took it over. Back ends leave them 0.
	BytesOut, BytesIn int64
}

// Unwrapper is implemented by decorators of a Runtime.
type Unwrapper interface{ Unwrap() Runtime }

// As finds an optional interface of r through its decorators.
func As[T any](r Runtime) (T, bool) {
	for r != nil {
		if t, ok := r.(T); ok {
			return t, true
		}
		u, ok := r.(Unwrapper)
		if !ok {
			break
		}
		r = u.Unwrap()
	}
	var none T
	return none, false
}
