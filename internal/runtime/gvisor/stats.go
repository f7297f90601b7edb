package gvisor

import (
	"context"
	"fmt"
	"os"

	"agentbox/internal/ids"
	"agentbox/internal/runtime"
)

// layerFD is the number of the writable layer's file in the sandbox process;
// see cmd/agentbox-engine.
const layerFD = 901

// OOMKills implements runtime.OOMReader.
func (r *Runtime) OOMKills(_ context.Context, id string) (int64, error) {
	b, err := r.find(id)
	if err != nil {
		return 0, fmt.Errorf("count out-of-memory kills of sandbox %s: %w", ids.Short(id), err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.group == nil {
		return 0, nil
	}
	return b.group.OOMKills(), nil
}

// Stats implements runtime.StatsReader.
func (r *Runtime) Stats(ctx context.Context, id string) (runtime.Stats, error) {
	b, err := r.find(id)
	if err != nil {
		return runtime.Stats{}, fmt.Errorf("measure sandbox %s: %w", ids.Short(id), err)
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	var s runtime.Stats
	if b.group != nil {
		g := b.group.Stats()
		s = runtime.Stats{CPUTime: g.CPUTime, Memory: g.Memory, PeakMemory: g.PeakMemory, OOMKills: g.OOMKills, Pids: g.Pids}
	}
	s.DiskUsed = b.savedBytes()
	if b.proc != nil {
		// Not there without the right to look into the process (rootless).
		if fi, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", b.proc.id.Pid, layerFD)); err == nil {
			s.DiskUsed += blocks(fi)
		}
	}
	return s, nil
}
