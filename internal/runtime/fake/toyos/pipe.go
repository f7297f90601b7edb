package toyos

import (
	"context"
	"io"
	"sync"
	"syscall"
)

// pipeSize is what pipe(7) says a pipe holds.
const pipeSize = 64 << 10

// file is an open file of a process. Each holder closes it once; ref is dup(2).
type file interface {
	read(ctx context.Context, b []byte) (int, error)
	write(ctx context.Context, b []byte) (int, error)
	ref() file
	close()
}

// pipe is a bounded byte stream between processes, as pipe(2) makes it.
type pipe struct {
	mu               sync.Mutex
	buf              []byte
	readers, writers int
	written          int64         // bytes, ever
	changed          chan struct{} // closed and replaced at every change
}

func newPipe() (*pipeReader, *pipeWriter) {
	p := &pipe{readers: 1, writers: 1, changed: make(chan struct{})}
	return &pipeReader{p}, &pipeWriter{p}
}

// notify wakes all that wait; p.mu is held.
func (p *pipe) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait releases p.mu until something changed, and takes it again.
func (p *pipe) wait(ctx context.Context) error {
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *pipe) total() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}

type pipeReader struct{ p *pipe }

func (r *pipeReader) read(ctx context.Context, b []byte) (int, error) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf) == 0 {
		if p.writers == 0 {
			return 0, io.EOF
		}
		if err := p.wait(ctx); err != nil {
			return 0, err
		}
	}
	n := copy(b, p.buf)
	p.buf = p.buf[n:]
	p.notify()
	return n, nil
}

func (r *pipeReader) write(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (r *pipeReader) ref() file {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.readers++
	return r
}

func (r *pipeReader) close() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.p.readers--
	r.p.notify()
}

type pipeWriter struct{ p *pipe }

func (w *pipeWriter) read(context.Context, []byte) (int, error) { return 0, syscall.EBADF }

func (w *pipeWriter) write(ctx context.Context, b []byte) (int, error) {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for done < len(b) {
		if p.readers == 0 {
			return done, syscall.EPIPE
		}
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		n := min(len(b)-done, pipeSize-len(p.buf))
		if n == 0 {
			if err := p.wait(ctx); err != nil {
				return done, err
			}
			continue
		}
		p.buf = append(p.buf, b[done:done+n]...)
		p.written += int64(n)
		done += n
		p.notify()
	}
	return done, nil
}

func (w *pipeWriter) ref() file {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.writers++
	return w
}

func (w *pipeWriter) close() {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.writers--
	w.p.notify()
}

// null is /dev/null.
type null struct{}

func (null) read(context.Context, []byte) (int, error)      { return 0, io.EOF }
func (null) write(_ context.Context, b []byte) (int, error) { return len(b), nil }
func (null) ref() file                                      { return null{} }
func (null) close()                                         {}

// pump passes what is written to a pipe on to a writer outside.
type pump struct {
	from   *pipeReader
	to     io.Writer
	mu     sync.Mutex
	cond   *sync.Cond
	passed int64
	ended  bool
}

func newPump(from *pipeReader, to io.Writer) *pump {
	p := &pump{from: from, to: to}
	p.cond = sync.NewCond(&p.mu)
	return p
}

// run ends when the last process has closed the pipe, or to refuses more.
func (p *pump) run() {
	b := make([]byte, 32<<10)
	for {
		n, err := p.from.read(context.Background(), b)
		if err == nil {
			_, err = p.to.Write(b[:n])
		}
		p.mu.Lock()
		p.passed += int64(n)
		p.ended = err != nil
		p.cond.Broadcast()
		p.mu.Unlock()
		if err != nil {
			p.from.close()
			return
		}
	}
}

// drain returns when the first n bytes have been passed on.
func (p *pump) drain(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.passed < n && !p.ended {
		p.cond.Wait()
	}
}
