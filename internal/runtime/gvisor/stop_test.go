package gvisor_test

import (
	"testing"
	"time"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// stop and start, and how long they took.
func (b *box) stop() time.Duration {
	b.t.Helper()
	start := time.Now()
	b.ok(b.rt.Stop(b.ctx, b.spec.ID))
	return time.Since(start)
}

func (b *box) start() time.Duration {
	b.t.Helper()
	start := time.Now()
	b.ok(b.rt.Start(b.ctx, b.spec.ID))
	took := time.Since(start)
	b.connect()
	return took
}

// A small tree and a large one come back whole. What that takes is for the log.
func TestStopOfManyFiles(t *testing.T) {
	for _, c := range []struct{ name, fill string }{
		{"idle", "true"},
		{"100 MB and 10,000 files", `mkdir /root/t && cd /root/t && python3 -c '
import os
for d in range(100):
    os.mkdir("d%d" % d)
    for f in range(100):
        with open("d%d/f%d" % (d, f), "wb") as o: o.write(os.urandom(10000))
'`},
	} {
		b := newBox(t, func(s *runtime.Spec) { s.Limits.Memory, s.Limits.Disk = 512*sandbox.MiB, sandbox.GiB })
		b.sh(c.fill + "; cd /root; find . -type f -exec sha256sum {} + >/var/sum")
		for range 3 {
			stop := b.stop()
			start := b.start()
			stats, err := b.rt.(runtime.StatsReader).Stats(b.ctx, b.spec.ID)
			b.ok(err)
			t.Logf("%s: stop %v, start %v; then %d MiB of memory and %.1f MiB on the disk", c.name,
				stop.Round(time.Millisecond), start.Round(time.Millisecond), stats.Memory/sandbox.MiB, float64(stats.DiskUsed)/float64(sandbox.MiB))
		}
		b.sh("cd /root; test $(find . -type f | wc -l) = $(wc -l </var/sum); sha256sum -c --quiet /var/sum")
	}
}
