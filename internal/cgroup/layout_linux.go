package cgroup

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// layout is where the two versions differ in the names and forms of files.
type layout interface {
	limits(Limits) []setting
	cpus(float64) []setting
	// pinned is the memory that can't be had back while its processes live, 0
	// where the kernel itself refuses a limit below it.
	pinned(read func(controller, file string) string) int64
	// stats reads through read, which returns "" for what is not there.
	stats(read func(controller, file string) string) Stats
	ooms(read func(controller, file string) string) int64
}

// setting is one value for one file of one controller's directory.
type setting struct {
	controller, file, value string
	optional                bool // the kernel may have been built without the file
}

// Stats of a group. What the host can't tell is 0.
type Stats struct {
	Memory, PeakMemory int64 // bytes, page cache included
	CPUTime            time.Duration
	OOMKills           int64 // processes that the kernel killed at the limit
	Pids               int64 // tasks
}

// period is the kernel's default bandwidth period, in microseconds
// (kernel/sched/fair.c: default_cfs_period); minQuota is the least quota it
// takes (min_cfs_quota_period).
const (
	period   = 100_000
	minQuota = 1_000
)

// quota is the time that a group gets in a period. It is also its burst: what it
// may save up while it is idle. A short command runs on several processors at
// once (the program, the engine, the agent), uses up a period's quota in a part
// of it and would then stand still to its end.
func quota(cpus float64) string {
	return strconv.FormatInt(max(minQuota, int64(math.Round(cpus*period))), 10)
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

type layoutV1 struct{}

func (layoutV1) limits(l Limits) []setting {
	m := decimal(l.Memory)
	return []setting{
		{controller: memory, file: "memory.limit_in_bytes", value: m},
		// Memory and swap together; it may not be lower than the limit, so it
		// comes second.
		{controller: memory, file: "memory.memsw.limit_in_bytes", value: m, optional: true},
		{controller: pids, file: "pids.max", value: decimal(PidsBackstop(l.Pids))},
	}
}

func (layoutV1) cpus(n float64) []setting {
	return []setting{
		{controller: cpu, file: "cpu.cfs_period_us", value: decimal(period)},
		{controller: cpu, file: "cpu.cfs_quota_us", value: quota(n)},
		{controller: cpu, file: "cpu.cfs_burst_us", value: quota(n), optional: true},
	}
}

func (layoutV1) pinned(func(controller, file string) string) int64 { return 0 }

func (layoutV1) ooms(read func(controller, file string) string) int64 {
	return field(read(memory, "memory.oom_control"), "oom_kill")
}

func (l layoutV1) stats(read func(controller, file string) string) Stats {
	return Stats{
		Memory:     number(read(memory, "memory.usage_in_bytes")),
		PeakMemory: number(read(memory, "memory.max_usage_in_bytes")),
		CPUTime:    time.Duration(number(read(cpuacct, "cpuacct.usage"))),
		OOMKills:   l.ooms(read),
		Pids:       number(read(pids, "pids.current")),
	}
}

type layoutV2 struct{}

func (layoutV2) limits(l Limits) []setting {
	return []setting{
		{controller: memory, file: "memory.max", value: decimal(l.Memory)},
		{controller: memory, file: "memory.swap.max", value: "0", optional: true},
		// Without it the kernel takes one process and leaves a sandbox that
		// neither lives nor ends.
		{controller: memory, file: "memory.oom.group", value: "1", optional: true},
		{controller: pids, file: "pids.max", value: decimal(PidsBackstop(l.Pids))},
	}
}

func (layoutV2) cpus(n float64) []setting {
	return []setting{
		{controller: cpu, file: "cpu.max", value: fmt.Sprintf("%s %d", quota(n), period)},
		{controller: cpu, file: "cpu.max.burst", value: quota(n), optional: true},
	}
}

func (layoutV2) pinned(read func(controller, file string) string) int64 {
	s := read(memory, "memory.stat")
	return field(s, "anon") + field(s, "shmem") + field(s, "unevictable") + field(s, "slab_unreclaimable")
}

func (layoutV2) ooms(read func(controller, file string) string) int64 {
	return field(read(memory, "memory.events"), "oom_kill")
}

func (l layoutV2) stats(read func(controller, file string) string) Stats {
	return Stats{
		Memory:     number(read(memory, "memory.current")),
		PeakMemory: number(read(memory, "memory.peak")),
		CPUTime:    time.Duration(field(read(cpu, "cpu.stat"), "usage_usec")) * time.Microsecond,
		OOMKills:   l.ooms(read),
		Pids:       number(read(pids, "pids.current")),
	}
}

// number parses a file that holds one number; anything else, such as a torn
// read, is 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// field finds the number behind name in a file of "name number" lines.
func field(s, name string) int64 {
	for line := range strings.Lines(s) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return number(f[1])
		}
	}
	return 0
}
