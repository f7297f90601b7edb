// Package doctor tells what a machine can do for sandboxes and how to get what
// is missing. [HostEnv] gathers facts, [Run] judges them, so that every judgement
// can be tested without such a machine.
package doctor

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"agentbox/internal/sandbox"
)

// Status of one check.
type Status string

const (
	// OK: nothing to do.
	OK Status = "ok"
	// Warn: sandboxes run, but with less than there could be.
	Warn Status = "warn"
	// Fail: sandboxes can't run.
	Fail Status = "fail"
)

// Check is one finding.
type Check struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Status Status `json:"status"`
	// Detail says what was found.
	Detail string `json:"detail"`
	// Fix says how to get what is missing.
	Fix string `json:"fix,omitempty"`
}

// Report is the result of [Run].
type Report struct {
	// Mode in force, in one line.
	Mode string `json:"mode"`
	// NotEnforced names the limits that this mode can't enforce (sandbox.Limit…).
	NotEnforced []string `json:"not_enforced"`
	// Identity tells as which host user the sandbox's code runs.
	Identity string  `json:"identity"`
	Checks   []Check `json:"checks"`
}

// Fatal reports whether a check failed: sandboxes can't run.
func (r Report) Fatal() bool {
	return slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Fail })
}

// Env is what is known of the machine. [HostEnv] fills in all but Probe.
type Env struct {
	UID     int    // effective, of this process
	DataDir string // where images and sandboxes are
	Kernel  string // release, such as "6.12.5-amd64"
	Arch    string // as Go names it
	// Userns is nil when a process in a user namespace of its own could be
	// started, with the rights there that a sandbox needs.
	Userns error
	// Sysctl values by name with dots; what the kernel does not have is absent.
	Sysctl map[string]string
	Cgroup Cgroup
	Disk   Disk
	Memory Memory
	// Volumes is what can be kept beyond a sandbox's life.
	Volumes Volumes
	// Container names the container that we are in ("docker"); empty: none.
	Container string
	// Seccomp: a filter that somebody else set restricts this process.
	Seccomp bool
	// LSM is the active security module that can confine programs; empty: none.
	LSM string
	// Programs are the paths of optional host programs by name.
	Programs map[string]string
	// SubIDs: this user has ranges in /etc/subuid and /etc/subgid.
	SubIDs bool
	// Runc is the version of the runc on the PATH; empty: none.
	Runc string
	// DockerTCP are the addresses on which something listens on Docker's
	// unencrypted port.
	DockerTCP []string
	// Probe starts a real sandbox and says how it went. Nil: not tried.
	Probe func(ctx context.Context) (detail string, err error)
}

// Cgroup is how the host's control groups can be used.
type Cgroup struct {
	Version     int      // 0 when they can't be
	Reason      string   // in words
	NotEnforced []string // sandbox.Limit… that hold for nobody here
}

// Disk is what the data directory's file system can do.
type Disk struct {
	Err    error  // it can't be made or written
	FSType string // "ext4"
	NoExec bool   // mounted so that no program in it can be started
	Free   int64  // bytes
	// Unnamed and Holes are nil when files without a name can be made and
	// parts of a file can be given back to the disk.
	Unnamed, Holes error
}

// Volumes is how volumes of sandboxes are kept in the data directory.
type Volumes struct {
	Kind sandbox.VolumeKind // empty: it was not tried
	// Why says why not in a better way; nil: there is none.
	Why error
	// Closed is a directory above that keeps sandboxes out; nil: none does.
	Closed error
}

// Memory of the machine, in bytes.
type Memory struct{ Total, Available, Swap int64 }

// probeTimeout bounds the last check. Making a first image is part of it.
const probeTimeout = 15 * time.Minute

// Run judges e. The last check starts a sandbox by e.Probe; it is left out when
// an earlier one failed in a way that makes it hopeless.
func Run(ctx context.Context, e Env) Report {
	r := Report{Mode: mode(e), NotEnforced: append([]string{}, e.Cgroup.NotEnforced...), Identity: identity(e)}
	for _, check := range checks {
		if c := check(e); c.ID != "" {
			r.Checks = append(r.Checks, c)
		}
	}
	if e.Probe != nil {
		r.Checks = append(r.Checks, probe(ctx, e, r.Fatal()))
	}
	return r
}

func probe(ctx context.Context, e Env, hopeless bool) Check {
	c := Check{ID: "sandbox", Title: "a real sandbox"}
	if hopeless {
		c.Status, c.Detail, c.Fix = Fail, "not tried, because of what failed above", "see above"
		return c
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	detail, err := e.Probe(ctx)
	if err != nil {
		c.Status, c.Detail, c.Fix = Fail, err.Error(), "nothing above explains it: please report it with this output"
		if e.Container != "" {
			c.Fix = containerFix
		}
		return c
	}
	c.Status, c.Detail = OK, detail
	return c
}

// mode is the one line that says how sandboxes are held.
func mode(e Env) string {
	who := "root"
	if e.UID != 0 {
		who = fmt.Sprintf("ordinary user (uid %d)", e.UID)
	}
	limits := "no cgroups: the host limits nothing"
	if e.Cgroup.Version != 0 {
		limits = fmt.Sprintf("cgroup v%d: the host enforces memory and cpus", e.Cgroup.Version)
		if n := e.Cgroup.NotEnforced; len(n) > 0 {
			limits = fmt.Sprintf("cgroup v%d: the host does not enforce %s", e.Cgroup.Version, strings.Join(n, ", "))
		}
	}
	return who + ", " + limits
}

// guestUID is the host uid of a sandbox's processes when root runs agentbox.
const guestUID = 100_000

// SandboxUser is the host uid of a sandbox's processes.
func SandboxUser() uint32 {
	if uid := os.Geteuid(); uid != 0 {
		return uint32(uid)
	}
	return guestUID
}

// identity: users differ in gVisor's kernel only, the host sees one.
func identity(e Env) string {
	uid := e.UID
	if uid == 0 {
		uid = guestUID
	}
	return fmt.Sprintf("every user inside is uid %d on this host", uid)
}
