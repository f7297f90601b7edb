package e2e

import (
	"strconv"
	"testing"

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
