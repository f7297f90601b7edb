package e2e

import (
	"context"
	"strconv"
	"testing"
	"time"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
)

// What user code can burn beside memory, processes, disk, files and output,
// which TestRES01 to TestRES13 burn.

var listAsRoot = client.ListOptions{User: "root"}

// TestLimitsOpenFiles: descriptors end at their limit; the agent has its own.
func TestLimitsOpenFiles(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1024, sandbox.DefaultOpenFiles} {
		box := NewBox(t, sandbox.Limits{OpenFiles: limit})
		stop := box.KeepsAnswering("the agent under open files")
		check := Neighbour(t)
		second := box.Go(Probe(t, "files", "", "1"), nil)
		root := box.RunProbe("files", "root", "1")
		user := ParseFindings(t, string(second.Result().Stdout))
		user.Want("raise", "refused")
		for _, f := range []Findings{root, user} {
			f.Want("limit", strconv.FormatInt(limit, 10))
			f.Want("open", "EMFILE")
			if n, _ := strconv.ParseInt(f.Get("opened"), 10, 64); n > limit || n < limit-16 {
				t.Errorf("%d files could be opened, the limit is %d", n, limit)
			}
		}
		stop()
		check()
	}
}

// TestLimitsTmpfs: file systems in memory have a size and a number of files of
// their own, below the sandbox's memory.
func TestLimitsTmpfs(t *testing.T) {
	t.Parallel()
	limits := sandbox.Limits{Memory: 256 * sandbox.MiB}.WithDefaults()
	for _, c := range []struct {
		dir  string
		size int64
	}{{"/dev/shm", limits.Shm}, {"/run", limits.Run}} {
		box := NewBox(t, limits)
		stop := box.KeepsAnswering("the agent under a full " + c.dir)
		check := Neighbour(t)
		f := box.RunProbe("tmpfs", "root", c.dir, strconv.FormatInt(2*limits.Memory/sandbox.MiB, 10))
		stop()
		check()
		f.Want("statvfs", strconv.FormatInt(c.size, 10))
		f.Want("bytes", "ENOSPC")
		f.Want("inodes", "ENOSPC")
		if n, _ := strconv.ParseInt(f.Get("written"), 10, 64); n > c.size || n < c.size*9/10 {
			t.Errorf("%d bytes fit into %s, whose size is %d", n, c.dir, c.size)
		}
		if n, _ := strconv.Atoi(f.Get("files")); n < 100 || n > 100_000 {
			t.Errorf("%d files fit into %s", n, c.dir)
		}
		if err := box.Answers(); err != nil {
			t.Error(err)
		}
	}
}

// TestLimitsDiskIsNotMemory: what is written to disk does not count as memory
// that can't be given back.
func TestLimitsDiskIsNotMemory(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{Memory: 220 * sandbox.MiB, Disk: 600 * sandbox.MiB})
	box.Want("419430400\n", "head -c 400M /dev/zero | tr '\\0' x >/workspace/big; stat -c %s /workspace/big")
	box.Want("419430400\n", "wc -c </workspace/big")
}

// TestLimitsSeenInside: programs that look how much memory there is find the
// limit, not the host's.
func TestLimitsSeenInside(t *testing.T) {
	t.Parallel()
	const limit = 300 * sandbox.MiB
	box := NewBox(t, sandbox.Limits{Memory: limit})
	box.Want(strconv.FormatInt(limit>>10, 10)+"\n", "awk '/^MemTotal:/ {print $2}' /proc/meminfo")
	box.Want(strconv.FormatInt(limit, 10)+"\n", `python3 -c 'import os; print(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))'`)
}

// TestResultTellsUse: a result has the processor time of the command and the most
// memory that one of its processes used, however much the agent has used itself.
func TestResultTellsUse(t *testing.T) {
	t.Parallel()
	box := NewBox(t, sandbox.Limits{})
	r := box.Exec(sandbox.Command{Argv: []string{"python3", "-c", `
import time
b = bytearray(b"x") * (100 << 20)
while time.process_time() < 0.5: pass`}}, nil)
	WantExit(t, r, 0, "", "")
	if r.CPUTime < 500*time.Millisecond || r.CPUTime > r.Duration+time.Second {
		t.Errorf("%v of processor time in %v, the program used 500 ms", r.CPUTime, r.Duration)
	}
	if r.PeakMemory < 100*sandbox.MiB || r.PeakMemory > 200*sandbox.MiB {
		t.Errorf("%d MiB of memory at most, the program used 100", r.PeakMemory/sandbox.MiB)
	}
	// Output that is kept for those who come later makes the agent large.
	for range 40 {
		p, err := box.Start(context.Background(), sandbox.Command{Shell: "head -c 4M /dev/zero | tee /dev/stderr", Background: true}, client.Output{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Detach(); err != nil {
			t.Fatal(err)
		}
	}
	box.WaitCount("head -c 4M", 0, soon)
	idle := box.Sh("sleep 1")
	if idle.CPUTime > idle.Duration/2 || idle.PeakMemory > 50*sandbox.MiB {
		t.Errorf("sleep: %v of processor time in %v, %d MiB", idle.CPUTime, idle.Duration, idle.PeakMemory/sandbox.MiB)
	}
}
