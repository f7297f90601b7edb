package gvisor

import (
	"sync"
	"time"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// watcher waits for the end of one sandbox's process.
type watcher struct {
	done chan struct{}

	mu      sync.Mutex
	stopped bool
}

// startWatch begins to wait for the end of the sandbox.
func (b *box) startWatch() {
	b.watch = &watcher{done: make(chan struct{})}
	go b.watch.run(b, b.proc)
}

// stopWatch ends the waiting; no event comes any more.
func (b *box) stopWatch() {
	w := b.watch
	if w == nil {
		return
	}
	b.watch = nil
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	b.proc.interrupt()
	<-w.done
}

func (w *watcher) run(b *box, p *process) {
	defer close(w.done)
	err := p.wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.stopped {
		return
	}
	// Destroy waits for us before it touches what is read here.
	e := runtime.Event{ID: b.rec.ID, Time: time.Now()}
	e.Reason, e.ExitCode = b.causeOfDeath()
	if e.Reason == sandbox.ReasonCrashed {
		e.Detail = logEnds(panicLog(b.dir), maxCrashLog)
	}
	go b.ended(w, e)
}

// causeOfDeath is why a sandbox whose process is dead ended, and the exit code of
// its first process, -1 when that is unknown. It is the same for whoever asks,
// whenever: control group and panic log know.
func (b *box) causeOfDeath() (sandbox.Reason, int) {
	if b.group != nil && b.group.OOMKills() > 0 {
		return sandbox.ReasonOOM, -1
	}
	if code, ended := exitNote(panicLog(b.dir)); ended {
		return sandbox.ReasonExited, code
	}
	return sandbox.ReasonCrashed, -1
}

// ended notes the end of the sandbox and reports it.
func (b *box) ended(w *watcher, e runtime.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watch != w || b.gone {
		return // destroyed in the meantime: nobody is surprised
	}
	b.watch = nil
	reap(b.rec.Process)
	if err := b.endGofer(); err != nil {
		b.r.log.Warn("a file server of a sandbox that ended was left", "sandbox", b.rec.ID, "error", err)
	}
	b.proc.close()
	b.proc = nil
	if b.conn != nil {
		b.conn.Close()
		b.conn = nil
	}
	b.rec.State, b.rec.Reason = sandbox.Failed, e.Reason
	if err := b.rec.save(b.dir); err != nil {
		b.r.log.Warn("the end of a sandbox could not be recorded", "sandbox", b.rec.ID, "error", err)
	}
	b.r.events.Publish(e)
}
