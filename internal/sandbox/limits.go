package sandbox

import (
	"fmt"
	"time"
)

// Sizes are bytes; the constants make literals readable.
const (
	KiB int64 = 1 << 10
	MiB int64 = 1 << 20
	GiB int64 = 1 << 30
)

// Limits bound what one sandbox may use. The zero value of a field means "the
// default"; [Limits.WithDefaults] fills it in. There is no way to say
// "unlimited": a limit that is not set is a hole.
type Limits struct {
	// Memory is the cap for user code, in bytes. It is a cap, not a
	// reservation. Default 512 MiB.
	Memory int64
	// CPUs is the CPU time per wall time that the sandbox may use, 1.0 = one
	// core. The guest sees it rounded up as its number of processors.
	// Default 1.0.
	CPUs float64
	// Disk is the size of the writable layer in bytes, /tmp and /var/tmp
	// included. It lies on the host's disk, never in memory. Default 4 GiB.
	Disk int64
	// Shm is the size of /dev/shm in bytes; it counts against Memory.
	// Default Memory / 2.
	Shm int64
	// Run is the size of /run in bytes; it counts against Memory.
	// Default 64 MiB, at most Memory / 4.
	Run int64
	// Pids is the number of processes and threads that the sandbox may hold
	// at once; one more fork fails with EAGAIN. Default 256.
	Pids int64
	// OpenFiles is RLIMIT_NOFILE of every process. Default 65,536.
	OpenFiles int64
}

// Defaults of [Limits].
const (
	DefaultMemory            = 512 * MiB
	DefaultCPUs      float64 = 1
	DefaultDisk              = 4 * GiB
	DefaultRun               = 64 * MiB
	DefaultPids      int64   = 256
	DefaultOpenFiles int64   = 65_536
)

// Smallest values that a sandbox can still start with.
const (
	MinMemory            = 32 * MiB
	MinCPUs      float64 = 0.01
	MinDisk              = 1 * MiB
	MinShm               = 4 * KiB
	MinPids      int64   = 8
	MinOpenFiles int64   = 64
)

// MaxLimits are the operator's maximums that hold without configuration, given
// the host's memory in bytes and its number of cores.
func MaxLimits(hostMemory int64, hostCPUs int) Limits {
	m := (hostMemory - hostMemory/10) / MiB * MiB // a size that people can read
	return Limits{
		Memory:    m,
		CPUs:      float64(hostCPUs),
		Disk:      64 * GiB,
		Shm:       m,
		Run:       m,
		Pids:      4_096,
		OpenFiles: 1_048_576,
	}
}

// WithDefaults returns l with every zero field set to its default.
func (l Limits) WithDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Memory, DefaultMemory)
	if l.CPUs == 0 {
		l.CPUs = DefaultCPUs
	}
	def(&l.Disk, DefaultDisk)
	def(&l.Shm, l.Memory/2)
	def(&l.Run, min(DefaultRun, l.Memory/4))
	def(&l.Pids, DefaultPids)
	def(&l.OpenFiles, DefaultOpenFiles)
	return l
}

// Clamp returns l with every field lowered to maximum's. It is for defaults
// only: a value that a caller chose is checked by [Limits.Check] and refused.
func (l Limits) Clamp(maximum Limits) Limits {
	l.Memory = min(l.Memory, maximum.Memory)
	l.CPUs = min(l.CPUs, maximum.CPUs)
	l.Disk = min(l.Disk, maximum.Disk)
	l.Shm = min(l.Shm, maximum.Shm)
	l.Run = min(l.Run, maximum.Run)
	l.Pids = min(l.Pids, maximum.Pids)
	l.OpenFiles = min(l.OpenFiles, maximum.OpenFiles)
	return l
}

// CheckResize reports the first field of next, other than memory, processors and
// processes, that differs from l, as an [*InvalidError].
func (l Limits) CheckResize(next Limits) error {
	for _, f := range []struct {
		name     string
		now, new int64
	}{
		{"disk", l.Disk, next.Disk}, {"shm", l.Shm, next.Shm}, {"run", l.Run, next.Run}, {"open_files", l.OpenFiles, next.OpenFiles},
	} {
		if f.now != f.new {
			return &InvalidError{Field: f.name, Value: FormatSize(f.new), Allowed: "what the sandbox was made with, " + FormatSize(f.now)}
		}
	}
	return nil
}

// Check reports the first field of l, which must have its defaults filled in,
// that lies outside what a sandbox needs and maximum allows, as an
// [*InvalidError].
func (l Limits) Check(maximum Limits) error {
	for _, f := range []struct {
		name      string
		v, lo, hi int64
		size      bool
	}{
		{"memory", l.Memory, MinMemory, maximum.Memory, true},
		{"disk", l.Disk, MinDisk, maximum.Disk, true},
		{"shm", l.Shm, MinShm, maximum.Shm, true},
		{"run", l.Run, MiB, maximum.Run, true},
		{"pids", l.Pids, MinPids, maximum.Pids, false},
		{"open_files", l.OpenFiles, MinOpenFiles, maximum.OpenFiles, false},
	} {
		if f.v >= f.lo && f.v <= f.hi {
			continue
		}
		show := func(v int64) string { return fmt.Sprint(v) }
		if f.size {
			show = FormatSize
		}
		return &InvalidError{Field: f.name, Value: show(f.v), Allowed: show(f.lo) + " to " + show(f.hi)}
	}
	if !(l.CPUs >= MinCPUs && l.CPUs <= maximum.CPUs) { // also refuses NaN
		return &InvalidError{Field: "cpus", Value: fmt.Sprint(l.CPUs), Allowed: fmt.Sprintf("%v to %v", MinCPUs, maximum.CPUs)}
	}
	return nil
}

// Limits of one command. They are defaults and maximums of what a caller may
// ask for with [Command].
const (
	DefaultTimeout   = time.Hour
	MaxTimeout       = 24 * time.Hour
	DefaultMaxOutput = 10_000_000
	MaxMaxOutput     = 100_000_000
	DefaultRing      = 4 * MiB
	MaxRing          = 64 * MiB
	// MaxExecs run at once in one sandbox; MaxQueuedExecs more wait in order.
	MaxExecs       = 64
	MaxQueuedExecs = 1_024
	// KeepResult is how long the result of a finished command is kept.
	KeepResult = time.Hour
	// DisconnectGrace is how long a command with OnDisconnect = Kill lives on
	// without a client.
	DisconnectGrace = 5 * time.Second
)

// InvalidError tells which field of a request has a value that is not allowed,
// and what would be.
type InvalidError struct {
	Field   string
	Value   string
	Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("invalid %s %q: allowed is %s", e.Field, e.Value, e.Allowed)
}

// InvalidParameter marks the error for containerd/errdefs.IsInvalidArgument.
func (e *InvalidError) InvalidParameter() {}
