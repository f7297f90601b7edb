package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"agentbox/internal/sandbox"
)

// healthy is a machine that has all.
func healthy() Env {
	return Env{
		UID: 0, DataDir: "/var/lib/agentbox", Kernel: "6.12.5-amd64", Arch: "amd64", Sysctl: map[string]string{},
		Cgroup: Cgroup{Version: 2, Reason: "groups are made in /sys/fs/cgroup/agentbox"},
		Disk:   Disk{FSType: "ext4", Free: 100 * sandbox.GiB}, Memory: Memory{Total: 16 * sandbox.GiB, Available: 12 * sandbox.GiB},
		Volumes: Volumes{Kind: sandbox.VolumeImage}, LSM: "AppArmor", Programs: map[string]string{"mmdebstrap": "/usr/bin/mmdebstrap"},
		Probe: func(context.Context) (string, error) { return "worked", nil },
	}
}

func find(r Report, id string) Check {
	i := slices.IndexFunc(r.Checks, func(c Check) bool { return c.ID == id })
	if i < 0 {
		return Check{}
	}
	return r.Checks[i]
}

func TestHealthyMachine(t *testing.T) {
	r := Run(t.Context(), healthy())
	for _, c := range r.Checks {
		if c.Status != OK || c.Title == "" || c.Detail == "" {
			t.Errorf("%+v, want ok", c)
		}
	}
	if r.Fatal() || r.Checks[len(r.Checks)-1].ID != "sandbox" {
		t.Errorf("fatal %v, checks %v", r.Fatal(), r.Checks)
	}
	if want := "root, cgroup v2: the host enforces memory and cpus"; r.Mode != want {
		t.Errorf("mode %q, want %q", r.Mode, want)
	}
}

// BACK-04: what is dangerous or missing on a host is named, with its cure, and
// what keeps sandboxes from running is fatal.
func TestBACK04EachFindingIsNamed(t *testing.T) {
	all := []string{"memory", "cpus"}
	for _, c := range []struct {
		name   string
		change func(*Env)
		id     string
		status Status
		detail string
		fix    string
	}{
		{"closed to sandboxes", func(e *Env) { e.Volumes.Closed = errors.New("can't go through /root") }, "volumes", Warn, "/root", "chmod"},
		{"volumes without limit", func(e *Env) {
			e.Volumes = Volumes{Kind: sandbox.VolumeDirectory, Why: errors.New("only root may")}
		}, "volumes", Warn, "only root may", "prjquota"},
		{"old kernel", func(e *Env) { e.Kernel = "4.19.0" }, "kernel", Fail, "4.19.0", "5.3"},
		{"strange kernel", func(e *Env) { e.Kernel = "" }, "kernel", Fail, "Linux", "5.3"},
		{"unprivileged container", func(e *Env) { e.Container, e.Userns = "docker", errors.New("EPERM") }, "container", Warn, "docker", "--security-opt seccomp=unconfined"},
		{"no user namespaces in a container", func(e *Env) { e.Container, e.Userns = "docker", errors.New("EPERM") }, "userns", Fail, "EPERM", "--user 1000"},
		{"user namespaces off for users", func(e *Env) {
			e.UID, e.Userns, e.Sysctl = 1000, errors.New("EPERM"), map[string]string{"kernel.unprivileged_userns_clone": "0"}
		}, "userns", Fail, "can't be made", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"user namespaces off", func(e *Env) {
			e.Userns, e.Sysctl = errors.New("ENOSPC"), map[string]string{"user.max_user_namespaces": "0"}
		}, "userns", Fail, "ENOSPC", "user.max_user_namespaces="},
		{"AppArmor restricts them", func(e *Env) {
			e.UID, e.Userns, e.Sysctl = 1000, errors.New("EPERM"), map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1"}
		}, "userns", Fail, "EPERM", `profile with the rule "userns,"`},
		{"a profile denies them", func(e *Env) { e.UID, e.Userns = 1000, errors.New("EACCES") }, "userns", Fail, "EACCES", "security module"},
		{"ptrace off", func(e *Env) { e.Sysctl["kernel.yama.ptrace_scope"] = "3" }, "ptrace", Fail, "ptrace_scope=3", "ptrace_scope to 2"},
		{"strict overcommit", func(e *Env) { e.Sysctl["vm.overcommit_memory"] = "2" }, "overcommit", Warn, "strict", "vm.overcommit_memory=0"},
		{"cgroup v1", func(e *Env) { e.Cgroup = Cgroup{Version: 1} }, "cgroup", Warn, "version 1", "cgroup v2"},
		{"cgroup v1 without memory", func(e *Env) { e.Cgroup = Cgroup{Version: 1, NotEnforced: all[:1]} }, "cgroup", Warn, "not enforced by the host: memory", "mounted"},
		{"cgroup v2 without delegation", func(e *Env) {
			e.UID, e.Cgroup = 1000, Cgroup{Reason: "not delegated to us", NotEnforced: all}
		}, "cgroup", Warn, "memory, cpus", "systemd-run --user --scope -p Delegate=yes"},
		{"cgroup v2 without cpu", func(e *Env) { e.UID, e.Cgroup = 1000, Cgroup{Version: 2, NotEnforced: all[1:2]} }, "cgroup", Warn, "cpus", "Delegate=cpu memory pids"},
		{"no cgroups for root", func(e *Env) { e.Cgroup = Cgroup{Reason: "read-only", NotEnforced: all} }, "cgroup", Warn, "read-only", "mount cgroup v2"},
		{"data directory can't be written", func(e *Env) { e.Disk.Err = errors.New("permission denied") }, "data_dir", Fail, "permission denied", "--data-dir"},
		{"noexec data directory", func(e *Env) { e.Disk.NoExec = true }, "data_dir", Fail, "noexec", "--data-dir"},
		{"no unnamed files", func(e *Env) { e.Disk.Unnamed = errors.New("EOPNOTSUPP") }, "data_dir", Warn, "EOPNOTSUPP", "ext4"},
		{"no holes", func(e *Env) { e.Disk.Holes = errors.New("EOPNOTSUPP") }, "data_dir", Warn, "EOPNOTSUPP", "ext4"},
		{"data in memory", func(e *Env) { e.Disk.FSType = "tmpfs" }, "data_dir", Warn, "lies in memory", "--data-dir"},
		{"disk full", func(e *Env) { e.Disk.Free = 100 * sandbox.MiB }, "disk", Fail, "0.1 GiB free", "free some space"},
		{"disk nearly full", func(e *Env) { e.Disk.Free = 3 * sandbox.GiB }, "disk", Warn, "3.0 GiB free", "free some space"},
		{"little memory", func(e *Env) { e.Memory.Available = sandbox.GiB }, "memory", Warn, "1.0 GiB available of 16.0 GiB", "less memory"},
		{"swap", func(e *Env) { e.Memory.Swap = 2 * sandbox.GiB }, "swap", Warn, "2.0 GiB on", "swapoff -a"},
		{"no AppArmor", func(e *Env) { e.LSM = "" }, "lsm", Warn, "AppArmor", "apparmor=1"},
		{"no mmdebstrap", func(e *Env) { e.Programs = nil }, "images", Warn, "mmdebstrap is missing", "apt-get install mmdebstrap"},
		{"no ids for a user's images", func(e *Env) { e.UID = 1000 }, "images", Warn, "newuidmap", "apt-get install uidmap"},
		{"old runc", func(e *Env) { e.Runc = "1.1.5+ds1" }, "runc", Warn, "1.1.5", "1.4.3"},
		{"old runc of the 1.4 line", func(e *Env) { e.Runc = "1.4.0-rc.3" }, "runc", Warn, "1.4.0", "1.4.3"},
		{"good runc of the 1.3 line", func(e *Env) { e.Runc = "1.3.6" }, "runc", OK, "1.3.6", ""},
		{"good runc", func(e *Env) { e.Runc = "1.4.3" }, "runc", OK, "1.4.3", ""},
		{"open Docker port", func(e *Env) { e.DockerTCP = []string{"0.0.0.0:2375"} }, "docker_tcp", Warn, "0.0.0.0:2375", "TLS"},
		{"the sandbox does not start", func(e *Env) {
			e.Probe = func(context.Context) (string, error) { return "", errors.New("boot: no") }
		}, "sandbox", Fail, "boot: no", "report"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := healthy()
			c.change(&e)
			r := Run(t.Context(), e)
			got := find(r, c.id)
			if got.Status != c.status || !strings.Contains(got.Detail, c.detail) || !strings.Contains(got.Fix, c.fix) {
				t.Errorf("%+v, want %s, %q, fix %q", got, c.status, c.detail, c.fix)
			}
			if (got.Status != OK) != (got.Fix != "") {
				t.Errorf("%+v: a finding needs a fix, and nothing else does", got)
			}
			if c.status == Fail && !r.Fatal() {
				t.Error("not fatal")
			}
			if c.status == Warn && c.name != "unprivileged container" && r.Fatal() {
				t.Errorf("fatal: %+v", r.Checks)
			}
		})
	}
}

// The probe would only hide the real cause.
func TestProbeIsNotTriedWithoutHope(t *testing.T) {
	e := healthy()
	e.Disk.NoExec = true
	e.Probe = func(context.Context) (string, error) { t.Error("tried"); return "", nil }
	r := Run(t.Context(), e)
	if c := find(r, "sandbox"); c.Status != Fail || c.Fix == "" {
		t.Errorf("%+v", c)
	}
}

func TestReportOfAnOrdinaryUser(t *testing.T) {
	e := healthy()
	e.UID, e.Cgroup = 1000, Cgroup{Reason: "not delegated", NotEnforced: []string{"memory", "cpus"}}
	b, err := json.Marshal(Run(t.Context(), e))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"mode":"ordinary user (uid 1000), no cgroups: the host limits nothing"`,
		`"not_enforced":["memory","cpus"]`, `"identity":"every user inside is uid 1000 on this host"`,
		`"id":"cgroup"`, `"status":"warn"`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	b, _ = json.Marshal(Run(t.Context(), healthy()))
	if !strings.Contains(string(b), `"not_enforced":[]`) {
		t.Errorf("an empty list is not [] in %s", b)
	}
}

func TestVersion(t *testing.T) {
	for s, want := range map[string][]int{
		"6.12.5-amd64": {6, 12, 5}, "5.10": {5, 10}, "1.4.0-rc.3": {1, 4, 0}, "1.1.5+ds1": {1, 1, 5}, "": nil, "x.1": nil, "6..1": {6},
	} {
		if got := version(s); !slices.Equal(got, want) {
			t.Errorf("version(%q) = %v, want %v", s, got, want)
		}
	}
}
