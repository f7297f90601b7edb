package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// quiet is how long something may take before its progress is shown.
const quiet = 2 * time.Second

// progress reports on one thing that may take long, on standard error: nothing
// in the first two seconds, then one line that is rewritten on a terminal, or a
// line every ten seconds elsewhere.
type progress struct {
	app   *App
	what  string
	began time.Time
	stop  chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	detail string
	bytes  int64
	shown  bool
}

func (a *App) progress(what string) *progress {
	p := &progress{app: a, what: what, began: time.Now(), stop: make(chan struct{})}
	p.wg.Add(1)
	go p.loop()
	return p
}

// set replaces the words behind what is going on.
func (p *progress) set(detail string) {
	p.mu.Lock()
	p.detail = detail
	p.mu.Unlock()
}

// reader counts what is read through it.
func (p *progress) reader(r io.Reader) io.Reader { return countingReader{r, p} }

type countingReader struct {
	r io.Reader
	p *progress
}

func (c countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.mu.Lock()
	c.p.bytes += int64(n)
	c.p.mu.Unlock()
	return n, err
}

func (p *progress) loop() {
	defer p.wg.Done()
	tty := p.app.stderrIsTerminal()
	every := 10 * time.Second
	if tty {
		every = 200 * time.Millisecond
	}
	wait := time.NewTimer(quiet)
	defer wait.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-wait.C:
			p.show(tty)
			wait.Reset(every)
		}
	}
}

func (p *progress) show(tty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%s (%s)", visible(p.what), time.Since(p.began).Round(time.Second))
	if p.bytes > 0 {
		line += fmt.Sprintf(", %.1f MB", float64(p.bytes)/1e6)
	}
	if p.detail != "" {
		line += ": " + clip(visible(p.detail), 100)
	}
	p.shown = true
	if tty {
		fmt.Fprintf(p.app.Stderr, "\r\033[K%s", line)
	} else {
		fmt.Fprintln(p.app.Stderr, line)
	}
}

// done ends the reporting.
func (p *progress) done() {
	close(p.stop)
	p.wg.Wait()
	if p.shown && p.app.stderrIsTerminal() {
		fmt.Fprint(p.app.Stderr, "\r\033[K")
	}
}

func (a *App) stderrIsTerminal() bool {
	f, ok := a.Stderr.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// clip shortens s to n bytes at most, for one line of a terminal.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n-3] + "..."
}
