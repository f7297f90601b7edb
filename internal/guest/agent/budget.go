package agent

// All rings of a sandbox together hold at most execs.budget bytes. Over that,
// the output of commands that ended goes first, oldest first, then the oldest
// bytes of the running command with the largest ring. Bytes that a lossless
// reader has not read stay: its command waits instead (exec.room).

func (m *execs) overBudget() bool { return m.held.Load() > m.budget.Load() }

// charge accounts for memory that a ring took and makes room.
func (m *execs) charge(grown int64) {
	if grown == 0 || m.held.Add(grown) <= m.budget.Load() {
		return
	}
	m.evict()
}

func (m *execs) evict() {
	goal := m.budget.Load() / 8 * 7 // some slack, so that not every write evicts
	m.mu.Lock()
	old := append([]*exec(nil), m.old...)
	m.mu.Unlock()
	for _, e := range old {
		if m.held.Load() <= goal {
			return
		}
		e.mu.Lock()
		for i := range e.out {
			m.held.Add(-e.out[i].drop(e.out[i].first + e.droppable(i)))
		}
		e.mu.Unlock()
	}
	all := m.list()
	for m.held.Load() > goal {
		if !m.evictLargest(all, goal) {
			return
		}
	}
}

// evictLargest drops the oldest bytes of the largest ring that may lose some.
func (m *execs) evictLargest(all []*exec, goal int64) bool {
	var largest *exec
	var stream int
	var most int64
	for _, e := range all {
		e.mu.Lock()
		for i := range e.out {
			if n := e.droppable(i); n > most {
				largest, stream, most = e, i, n
			}
		}
		e.mu.Unlock()
	}
	if largest == nil {
		return false
	}
	largest.mu.Lock()
	defer largest.mu.Unlock()
	r := &largest.out[stream]
	n := min(largest.droppable(stream), max(m.held.Load()-goal, maxChunk))
	freed := r.drop(r.first + n)
	m.held.Add(-freed)
	return n > 0 && freed > 0
}

// droppable is how many of a ring's oldest bytes no lossless reader waits for.
func (e *exec) droppable(stream int) int64 {
	r := &e.out[stream]
	to := r.end
	for rd := range e.readers {
		if rd.lossless && !rd.gone {
			to = min(to, rd.at[stream])
		}
	}
	return to - r.first
}
