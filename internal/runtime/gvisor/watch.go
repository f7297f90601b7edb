package gvisor

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// watcher waits for the end of one sandbox's process.
type watcher struct {
	sock *unet.Socket // asks the sandbox for the exit status of its first process; nil when it can't be asked
	exit chan int     // gets that status
	done chan struct{}

	mu      sync.Mutex
	stopped bool
}

// startWatch begins to wait for the end of the sandbox.
func (b *box) startWatch() {
	w := &watcher{exit: make(chan int, 1), done: make(chan struct{})}
	b.watch = w
	if sock, err := unet.Connect(b.c.Sandbox.GetControlSocketPath(), false); err == nil {
		w.sock = sock
		go w.ask(b.rec.engineID())
	} else {
		close(w.exit)
	}
	go w.run(b, b.proc)
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

// ask waits for the sandbox's own answer, which tells more than the kernel
// does of a process that is not our child.
func (w *watcher) ask(engineID string) {
	defer close(w.exit)
	call := urpc.NewClient(w.sock)
	defer call.Close()
	var ws unix.WaitStatus
	if err := call.Call(boot.ContMgrWait, &engineID, &ws); err != nil {
		return
	}
	switch {
	case ws.Exited():
		w.exit <- ws.ExitStatus()
	case ws.Signaled():
		w.exit <- 128 + int(ws.Signal())
	}
}

func (w *watcher) run(b *box, p *process) {
	defer close(w.done)
	err := p.wait()
	if w.sock != nil && err != nil {
		_ = w.sock.Shutdown() // ends the question; nothing can be done about an error
	}
	code, answered := <-w.exit
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || w.stopped {
		return
	}
	// Destroy waits for us before it touches what is read here.
	e := runtime.Event{ID: b.rec.ID, Reason: sandbox.ReasonExited, ExitCode: code, Time: time.Now()}
	if !answered {
		e.Reason, e.ExitCode = sandbox.ReasonCrashed, -1
		e.Detail = logEnds(panicLog(b.dir), maxCrashLog)
	}
	if b.group.OOMKills() > 0 {
		e.Reason, e.ExitCode = sandbox.ReasonOOM, -1
	}
	go b.ended(w, e)
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
