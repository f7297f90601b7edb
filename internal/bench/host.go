package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what the figures were taken on.
type machine struct {
	CPU      string  `json:"cpu"`
	Cores    int     `json:"cores"`
	MemoryMB float64 `json:"memory_mb"`
	Kernel   string  `json:"kernel"`
	Load     string  `json:"load"` // of the last 1, 5 and 15 minutes, before the run
	Go       string  `json:"go"`
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %.0f MB, Linux %s, load %s, %s", m.CPU, m.Cores, m.MemoryMB, m.Kernel, m.Load, m.Go)
}

func describe() machine {
	m := machine{CPU: "unknown", Cores: runtime.NumCPU(), MemoryMB: meminfo("MemTotal"), Go: runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if f := strings.Fields(slurp("/proc/loadavg")); len(f) > 2 {
		m.Load = strings.Join(f[:3], " ")
	}
	for line := range strings.Lines(slurp("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(name, "model name") {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// slurp reads a file of the kernel's; what can't be read is empty.
func slurp(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// meminfo is a value of /proc/meminfo in MB (10^6 bytes).
func meminfo(name string) float64 { return kilobytes(slurp("/proc/meminfo"), name) }

func kilobytes(text, name string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb * 1024 / 1e6
		}
	}
	return 0
}

// pss is the proportional memory of the processes in roots and of all that
// descend from them, in MB.
func pss(roots ...int) float64 {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, dir := range dirs {
		name := filepath.Base(dir)
		pid, _ := strconv.Atoi(name) // the pattern sees to it
		up := parent(name)
		children[up] = append(children[up], pid)
	}
	total, seen := 0.0, map[int]bool{}
	for len(roots) > 0 {
		pid := roots[0]
		roots = append(roots[1:], children[pid]...)
		if !seen[pid] {
			seen[pid] = true
			total += kilobytes(slurp(fmt.Sprintf("/proc/%d/smaps_rollup", pid)), "Pss")
		}
	}
	return total
}

// stat returns the fields of /proc/PID/stat from the state on.
func stat(pid string) []string {
	text := slurp("/proc/" + pid + "/stat")
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

// state of a process as one letter; "" when there is none.
func state(pid int) string {
	if f := stat(strconv.Itoa(pid)); len(f) > 0 {
		return f[0]
	}
	return ""
}

// parent of a process; 0 when there is none.
func parent(pid string) int {
	if f := stat(pid); len(f) > 1 {
		n, _ := strconv.Atoi(f[1]) // the kernel writes numbers
		return n
	}
	return 0
}
