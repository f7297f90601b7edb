package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	manager = "/user.slice/user-1000.slice/user@1000.service"
	scope   = manager + "/app.slice/run-1.scope"
)

// userHost is an ordinary user's process in a unit of the user's own manager.
func userHost(delegate bool) *kernel {
	k := newKernel(1000, scope, "/user.slice", "/user.slice/user-1000.slice", manager, manager+"/app.slice", scope)
	k.give(1000, manager, manager+"/app.slice", scope)
	k.delegated["run-1.scope"] = delegate
	return k
}

func detect(k *kernel) *Host { return Detect(Options{Owner: "own", Root: "/cg", tree: k}) }

func TestDetectV2(t *testing.T) {
	all := []string{"memory", "cpus", "pids"}
	for _, c := range []struct {
		name    string
		kernel  *kernel
		change  func(*kernel)
		mode    Mode
		reason  string // part of it
		missing []string
	}{
		{name: "root", kernel: newKernel(0, "/system.slice", "/system.slice"), mode: V2, reason: "/cg/agentbox"},
		{name: "root, read-only", kernel: newKernel(0, "/"), change: func(k *kernel) { k.readOnly = true },
			mode: None, reason: "read-only", missing: all},
		{name: "user, delegated unit", kernel: userHost(true), mode: V2, reason: "/cg" + scope + "/agentbox"},
		{name: "user, other unit", kernel: userHost(false), mode: None, reason: "Delegate=yes", missing: all},
		{name: "user, systemd silent", kernel: userHost(true), change: func(k *kernel) { clear(k.delegated) },
			mode: None, reason: "ask systemd about run-1.scope", missing: all},
		{name: "user, session scope", kernel: newKernel(1000, "/session-1.scope", "/session-1.scope"),
			mode: None, reason: "not delegated to us", missing: all},
		{name: "user, service of the system", kernel: newKernel(1000, "/agentbox.service", "/agentbox.service").give(1000, "/agentbox.service"),
			mode: V2, reason: "/cg/agentbox.service/agentbox"},
		{name: "user, no systemd", kernel: newKernel(1000, "/mine", "/mine").give(1000, "/mine"), mode: V2, reason: "/cg/mine/agentbox"},
		{name: "user, no cpu controller", kernel: userHost(true),
			change: func(k *kernel) { k.dirs["/cg"+scope].files["cgroup.controllers"] = "memory pids" },
			mode:   V2, missing: []string{"cpus"}},
		{name: "user, no controllers", kernel: userHost(true),
			change: func(k *kernel) { k.dirs["/cg"+scope].files["cgroup.controllers"] = "" },
			mode:   None, reason: "none of the controllers", missing: all},
		{name: "user, cgroup above the namespace", kernel: userHost(true), change: func(k *kernel) { k.self = "0::/../..\n" },
			mode: None, reason: "in no cgroup", missing: all},
		{name: "user, only v1 lines", kernel: userHost(true), change: func(k *kernel) { k.self = "4:memory:/\n1:cpu:/\n" },
			mode: None, reason: "in no cgroup", missing: all},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.kernel)
			}
			h := detect(c.kernel)
			if h.Mode() != c.mode || !strings.Contains(h.Reason(), c.reason) || !slices.Equal(h.NotEnforced(), c.missing) {
				t.Errorf("%v, %q, not enforced %v; want %v, %q, %v", h.Mode(), h.Reason(), h.NotEnforced(), c.mode, c.reason, c.missing)
			}
			if c.mode == None && len(c.kernel.log) > 0 {
				t.Errorf("changed a host that is not ours: %q", c.kernel.log)
			}
		})
	}
}

func TestRootWritesInOrder(t *testing.T) {
	k := newKernel(0, "/system.slice", "/system.slice")
	h := detect(k)
	g, err := h.Create("box", Limits{Memory: 512 << 20, Pids: 300})
	if err != nil {
		t.Fatal(err)
	}
	if f, each := g.JoinFiles(); each || !slices.Equal(f, []string{"/cg/agentbox/own/box/cgroup.procs"}) {
		t.Errorf("files to join by: %v, for each thread: %v", f, each)
	}
	if err := errors.Join(k.Write("/cg/agentbox/own/box/cgroup.procs", "5000001"), g.SetCPUs(1.5), g.Kill(), g.Remove()); err != nil {
		t.Fatal(err)
	}
	const dir = "/cg/agentbox/own/box"
	want := []string{
		"mkdir /cg/agentbox",
		"write +memory +cpu +pids to /cg/agentbox/cgroup.subtree_control",
		"mkdir /cg/agentbox/own",
		"write +memory +cpu +pids to /cg/agentbox/own/cgroup.subtree_control",
		"mkdir " + dir,
		"write 536870912 to " + dir + "/memory.max",
		"write 0 to " + dir + "/memory.swap.max",
		"write 1 to " + dir + "/memory.oom.group",
		"write 4800 to " + dir + "/pids.max",
		"write 5000001 to " + dir + "/cgroup.procs",
		"write 150000 100000 to " + dir + "/cpu.max",
		"write 150000 to " + dir + "/cpu.max.burst",
		"write 1 to " + dir + "/cgroup.kill",
		"rmdir " + dir,
		"rmdir /cg/agentbox/own",
		"rmdir /cg/agentbox",
	}
	if !slices.Equal(k.log, want) {
		t.Errorf("the kernel was asked for\n%s\nwant\n%s", strings.Join(k.log, "\n"), strings.Join(want, "\n"))
	}
}

func TestUserMovesToALeafFirst(t *testing.T) {
	k := userHost(true)
	k.dirs["/cg"+scope].files[procs] = "99\n100\n" // the shell that started us, and we
	h := detect(k)
	base := "/cg" + scope
	want := []string{
		"mkdir " + base + "/agentbox.host",
		"write 99 to " + base + "/agentbox.host/cgroup.procs",
		"write 100 to " + base + "/agentbox.host/cgroup.procs",
		"write +memory +cpu +pids to " + base + "/cgroup.subtree_control",
	}
	if h.Mode() != V2 || !slices.Equal(k.log, want) {
		t.Fatalf("%v (%s); the kernel was asked for\n%s\nwant\n%s", h.Mode(), h.Reason(), strings.Join(k.log, "\n"), strings.Join(want, "\n"))
	}
	// A later process of the same unit is born in the leaf and goes on there.
	k.self, k.log = "0::"+scope+"/agentbox.host\n", nil
	if h := detect(k); h.Mode() != V2 || h.Reason() != "groups are made in "+base+"/agentbox" || len(k.log) != 0 {
		t.Errorf("second process: %v (%s), asked for %q", h.Mode(), h.Reason(), k.log)
	}
}

// In a container with a cgroup namespace the mount's root is no real root.
func TestRootInAContainerMovesToALeaf(t *testing.T) {
	k := newKernel(0, "/")
	k.realRoot, k.dirs["/cg"].files[subtree], k.dirs["/cg"].files[procs] = "", "", "1\n100\n"
	h := detect(k)
	if h.Mode() != V2 || k.dirs["/cg/agentbox.host"] == nil || k.dirs["/cg"].files[procs] != "" {
		t.Errorf("%v (%s), asked for %q", h.Mode(), h.Reason(), k.log)
	}
}

// A process that starts in another unit, or in none that it may use, still
// finds and removes what an earlier one left.
func TestListFindsGroupsOfOtherUnits(t *testing.T) {
	k := userHost(true)
	if _, err := detect(k).Create("left", Limits{Memory: 1 << 20, Pids: 8}); err != nil {
		t.Fatal(err)
	}
	if err := k.Mkdir("/cg" + manager + "/app.slice/run-2.scope"); err != nil {
		t.Fatal(err)
	}
	k.self = "0::" + manager + "/app.slice/run-2.scope\n"
	k.delegated["run-2.scope"] = false
	h := detect(k)
	all, err := h.List("own")
	if err != nil || len(all) != 1 || all[0].ID() != "left" || !slices.Equal(all[0].Dirs(), []string{"/cg" + scope + "/agentbox/own/left"}) {
		t.Fatalf("List = %v, %v", all, err)
	}
	if g, err := h.Open("left"); err != nil || !slices.Equal(g.Dirs(), all[0].Dirs()) {
		t.Errorf("Open = %v, %v", g, err)
	}
	if err := errors.Join(all[0].Kill(), all[0].Remove()); err != nil {
		t.Error(err)
	}
	if all, err := h.List("own"); err != nil || len(all) != 0 {
		t.Errorf("after Remove: List = %v, %v", all, err)
	}
}

func TestPurgeRemovesWhatIsEmpty(t *testing.T) {
	k := newKernel(0, "/")
	k.youngDirs = map[string]bool{"/cg/agentbox/two/young": true}
	for _, owner := range []string{"one", "two"} {
		h := Detect(Options{Owner: owner, Root: "/cg", tree: k})
		for _, id := range []string{"empty", "busy", "young"} {
			if _, err := h.Create(id, Limits{Memory: 1 << 20, Pids: 8}); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.dirs["/cg/agentbox/two/busy"].files[procs] = "5000001"
	if err := errors.Join(detect(k).purge(), k.Rmdir("/cg/agentbox/one/busy"), k.Rmdir("/cg/agentbox/one/young")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Purge: %v", err)
	}
	if left, _ := k.Subdirs("/cg/agentbox"); !slices.Equal(left, []string{"two"}) {
		t.Errorf("owners left: %v, want two", left)
	}
	if left, _ := k.Subdirs("/cg/agentbox/two"); !slices.Equal(left, []string{"busy", "young"}) {
		t.Errorf("groups left: %v, want the busy one and the one that was just made", left)
	}
}

func TestCreateV2(t *testing.T) {
	t.Run("without optional files", func(t *testing.T) {
		k := newKernel(0, "/")
		k.absent = []string{"memory.swap.max", "memory.oom.group"}
		if _, err := detect(k).Create("box", Limits{Memory: 1 << 20, Pids: 8}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a limit that can't be set undoes all", func(t *testing.T) {
		k := newKernel(0, "/")
		k.absent = []string{"pids.max"}
		_, err := detect(k).Create("box", Limits{Memory: 1 << 20, Pids: 8})
		if !errors.Is(err, fs.ErrNotExist) || k.dirs["/cg/agentbox/own/box"] != nil {
			t.Errorf("error %v, group left: %v", err, k.dirs["/cg/agentbox/own/box"] != nil)
		}
	})
	t.Run("twice", func(t *testing.T) {
		h := detect(newKernel(0, "/"))
		_, err1 := h.Create("box", Limits{Memory: 1 << 20, Pids: 8})
		_, err2 := h.Create("box", Limits{Memory: 1 << 20, Pids: 8})
		if err1 != nil || !errors.Is(err2, fs.ErrExist) {
			t.Errorf("errors %v, %v", err1, err2)
		}
	})
	t.Run("names that lead elsewhere", func(t *testing.T) {
		k := newKernel(0, "/")
		h := detect(k)
		k.log = nil
		for _, id := range []string{"", ".", "..", "../x", "a/b", ".hidden", "a\x00b", "ä", strings.Repeat("a", 129)} {
			_, err1 := h.Create(id, Limits{})
			_, err2 := h.Open(id)
			_, err3 := h.List(id)
			if err1 == nil || err2 == nil || err3 == nil {
				t.Errorf("%q is accepted: %v, %v, %v", id, err1, err2, err3)
			}
		}
		if len(k.log) > 0 {
			t.Errorf("asked for %q", k.log)
		}
		if h := Detect(Options{Owner: "../x", Root: "/cg", tree: k}); h.Mode() != None {
			t.Errorf("owner ../x is accepted: %v", h.Mode())
		}
	})
}

// Without control groups nothing is limited, and nothing breaks.
func TestNoneLimitsNothing(t *testing.T) {
	k := userHost(false)
	h := detect(k)
	g, err := h.Create("box", Limits{Memory: 1 << 20, Pids: 8})
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(g.SetCPUs(1), g.Kill(), g.Remove())
	join, _ := g.JoinFiles()
	if err != nil || len(k.log) > 0 || g.Stats() != (Stats{}) || len(g.Dirs()) != 0 || len(join) != 0 {
		t.Errorf("error %v, asked for %q, stats %v, joins %v", err, k.log, g.Stats(), join)
	}
}

func TestDetectV1(t *testing.T) {
	v1 := func(uid int, names ...string) *kernel {
		k := &kernel{uid: uid, pid: 100, dirs: map[string]*kdir{"/cg": {}}}
		for _, n := range names {
			k.dirs["/cg/"+n] = &kdir{files: map[string]string{"tasks": ""}}
		}
		return k
	}
	for _, c := range []struct {
		name    string
		kernel  *kernel
		mode    Mode
		reason  string
		missing []string
		bases   string
	}{
		{name: "one each", kernel: v1(0, "memory", "cpu", "cpuacct", "pids", "freezer"), mode: V1,
			bases: "/cg/cpu /cg/cpuacct /cg/memory /cg/pids"},
		{name: "joined", kernel: v1(0, "memory", "cpu,cpuacct", "pids"), mode: V1,
			bases: "/cg/cpu,cpuacct /cg/cpu,cpuacct /cg/memory /cg/pids"},
		{name: "no memory", kernel: v1(0, "cpu", "pids"), mode: V1, missing: []string{"memory"}, bases: "/cg/cpu /cg/pids"},
		{name: "ordinary user", kernel: v1(1000, "memory", "cpu", "pids"), mode: None, reason: "only be used by root",
			missing: []string{"memory", "cpus", "pids"}},
		{name: "nothing mounted", kernel: v1(0), mode: None, reason: "no control groups", missing: []string{"memory", "cpus", "pids"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := detect(c.kernel)
			var bases []string
			for _, b := range h.base {
				bases = append(bases, b)
			}
			slices.Sort(bases)
			if h.Mode() != c.mode || !strings.Contains(h.Reason(), c.reason) || !slices.Equal(h.NotEnforced(), c.missing) || strings.Join(bases, " ") != c.bases {
				t.Errorf("%v, %q, not enforced %v, bases %v", h.Mode(), h.Reason(), h.NotEnforced(), bases)
			}
		})
	}
}

func TestStatsOfTornAndStrangeFiles(t *testing.T) {
	for _, c := range []struct {
		name, file, content string
		want                Stats
	}{
		{"good", "memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 1\n", Stats{OOMKills: 2}},
		{"cut in the word", "memory.events", "oom 3\noom_ki", Stats{}},
		{"cut before the number", "memory.events", "oom 3\noom_kill ", Stats{}},
		{"no newline", "memory.events", "oom_kill 7", Stats{OOMKills: 7}},
		{"negative", "memory.events", "oom_kill -7\n", Stats{}},
		{"too many words", "memory.events", "oom_kill 7 8\n", Stats{}},
		{"not a number", "memory.current", "max\n", Stats{}},
		{"overflow", "memory.current", "99999999999999999999\n", Stats{}},
		{"nul", "memory.current", "12\x00", Stats{}},
		{"empty", "memory.current", "", Stats{}},
		{"now", "memory.current", "4096\n", Stats{Memory: 4096}},
		{"peak", "memory.peak", "8192\n", Stats{PeakMemory: 8192}},
		{"cpu", "cpu.stat", "usage_usec 1500\nuser_usec 1000\n", Stats{CPUTime: 1500 * time.Microsecond}},
		{"pids", "pids.current", "3\n", Stats{Pids: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := layoutV2{}.stats(func(_, file string) string {
				if file == c.file {
					return c.content
				}
				return ""
			})
			if got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	v1 := layoutV1{}.stats(func(controller, file string) string {
		return map[string]string{
			"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", "memory/memory.usage_in_bytes": "1\n",
			"memory/memory.max_usage_in_bytes": "2\n", "cpuacct/cpuacct.usage": "3\n", "pids/pids.current": "5\n",
		}[controller+"/"+file]
	})
	if want := (Stats{Memory: 1, PeakMemory: 2, CPUTime: 3, OOMKills: 4, Pids: 5}); v1 != want {
		t.Errorf("v1: %+v, want %+v", v1, want)
	}
}

func TestPidList(t *testing.T) {
	if got := pidList("12\n0\n-3\nx\n\n99999999999999999999\n7"); !slices.Equal(got, []int{12, 7}) {
		t.Errorf("%v, want [12 7]", got)
	}
}

func TestQuota(t *testing.T) {
	for n, want := range map[float64]string{1: "100000", 0.01: "1000", 0.0001: "1000", 1.5: "150000", 2.333: "233300"} {
		if got := quota(n); got != want {
			t.Errorf("quota(%v) = %s, want %s", n, got, want)
		}
	}
}

// A group that nobody leaves is an error after a while, not a hang.
func TestRemoveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its time passes at once
		k := newKernel(0, "/")
		g, err := detect(k).Create("box", Limits{Memory: 1 << 20, Pids: 8})
		if err != nil {
			t.Fatal(err)
		}
		k.dirs["/cg/agentbox/own/box"].files[procs] = "5000001"
		if err := g.Remove(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Remove of a busy group: %v", err)
		}
	})
}

// TestSetLimitsV1: the kernel wants the limit of memory alone at or below that of
// memory and swap together, whichever way both move.
func TestSetLimitsV1(t *testing.T) {
	k := &kernel{pid: 100, dirs: map[string]*kdir{"/cg": {}, "/cg/memory": {files: map[string]string{"tasks": ""}}, "/cg/pids": {files: map[string]string{"tasks": ""}}}}
	h := Detect(Options{Owner: "own", Root: "/cg", tree: k})
	g, err := h.Create("box", Limits{Memory: 64 << 20, Pids: 10})
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return k.dirs["/cg/memory/agentbox/own/box"].files[name] }
	for _, m := range []string{"134217728", "33554432"} {
		n, _ := strconv.ParseInt(m, 10, 64)
		if err := g.SetLimits(Limits{Memory: n, Pids: 10}); err != nil || file("memory.limit_in_bytes") != m || file("memory.memsw.limit_in_bytes") != m {
			t.Errorf("%s: %v, %v", m, err, k.dirs)
		}
	}
	k.dirs["/cg/memory/agentbox/own/box"].files["memory.usage_in_bytes"] = "20000000"
	if err := g.SetLimits(Limits{Memory: 1 << 20, Pids: 10}); !errors.Is(err, ErrInUse) || file("memory.limit_in_bytes") != "33554432" {
		t.Errorf("below what is in use: %v", err)
	}
}

// TestSetLimitsV2: this version kills for a limit below what is in use.
func TestSetLimitsV2(t *testing.T) {
	k := newKernel(0, "/")
	h := Detect(Options{Owner: "own", Root: "/cg", tree: k})
	g, err := h.Create("box", Limits{Memory: 64 << 20, Pids: 10})
	if err != nil {
		t.Fatal(err)
	}
	files := k.dirs["/cg/agentbox/own/box"].files
	files["memory.stat"] = "anon 1000000\nfile 90000000\nshmem 20000000\n"
	if err := g.SetLimits(Limits{Memory: 32 << 20, Pids: 300}); err != nil || files["memory.max"] != "33554432" || files["pids.max"] != "4800" {
		t.Errorf("%v: %v", err, files)
	}
	for _, n := range []float64{1, 0.5, 2} {
		want := strconv.Itoa(int(n * period))
		if err := g.SetCPUs(n); err != nil || files["cpu.max"] != want+" 100000" || files["cpu.max.burst"] != want {
			t.Errorf("%v processors: %v, %v", n, err, files)
		}
	}
	if err := g.SetLimits(Limits{Memory: 20 << 20, Pids: 300}); !errors.Is(err, ErrInUse) || files["memory.max"] != "33554432" {
		t.Errorf("below what is in use: %v, %v", err, files)
	}
}
