package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// pump passes input on to a command, in requests that end when the input pauses.
// Each is answered: so it is known what has arrived, and no proxy on the way holds
// back what was typed.
type pump struct {
	r    *remote
	path string // of the command's input
	in   io.Reader
	fail func(error) // is told when nobody knows what has arrived
}

const (
	// pumpPause ends a request.
	pumpPause = 50 * time.Millisecond
	// pumpGather is how long the first bytes wait for others, or for the end, that
	// can be sent with them.
	pumpGather = 2 * time.Millisecond
	pumpChunk  = 64 << 10
)

// run passes on all input. It ends when the command takes no more, too: its end
// is told elsewhere.
func (p *pump) run(ctx context.Context) {
	b := &burst{ctx: ctx, chunks: make(chan []byte)}
	go readChunks(ctx, p.in, b.chunks)
	for {
		if !b.ended {
			b.wait(nil)
		}
		gathered := time.After(pumpGather)
		for !b.ended && len(b.rest) < pumpChunk && b.wait(gathered) {
		}
		last, body := b.ended, b.parts()
		if last {
			body = func() (io.Reader, bool) { return bytes.NewReader(b.rest), true }
		}
		if ctx.Err() != nil || !p.send(ctx, body, last) || last {
			return
		}
	}
}

// send sends a part of the input and reports whether it was taken. A server that
// is away, or counts requests, has taken nothing of it; then it is sent again.
// body gives it anew, unless it is not there any more.
func (p *pump) send(ctx context.Context, body func() (io.Reader, bool), eof bool) bool {
	path := p.path
	if eof {
		path += "?eof=1"
	}
	var err error
	for end := time.Now().Add(backWithin); ; {
		part, whole := body()
		if !whole {
			return p.give(err)
		}
		q := request{method: http.MethodPost, path: path, body: part, header: http.Header{"Content-Type": {"application/octet-stream"}}}
		err = p.r.callWith(ctx, q, nil)
		if c, ok := part.(io.Closer); ok {
			_ = c.Close() // the connection reads no more of it
		}
		wait := backEvery
		var refused *apiError
		switch {
		case err == nil:
			return true
		case errors.As(err, &refused) && refused.takesNoMore():
			return false // its end is told elsewhere
		case refused != nil && refused.tookNothing():
			wait = max(wait, refused.retryAfter)
		case refused != nil && refused.Code != "unavailable":
			return p.give(err)
		case !nobodyThere(err):
			p.fail(errInputLost)
			return false
		}
		if time.Now().Add(wait).After(end) || wait > maxRetryWait {
			return p.give(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return false
		}
	}
}

// give gives up on the input, because of what the server said.
func (p *pump) give(err error) (taken bool) {
	p.fail(fmt.Errorf("the command did not get all of its input, and may go on without it: %w", err))
	return false
}

// takesNoMore reports whether a command has ended, or its input.
func (e *apiError) takesNoMore() bool {
	switch e.Code {
	case "conflict", "not_found", "not_running":
		return true
	}
	return strings.HasPrefix(e.Code, "sandbox_")
}

// tookNothing reports whether a server refused input before it took any: it counts
// requests, or did not find its place in the output of a busy command.
func (e *apiError) tookNothing() bool { return e.Code == "rate_limited" || e.Code == "out_of_range" }

var errInputLost = errors.New("the server went away while input was on its way to the command, which may go on without it")

func readChunks(ctx context.Context, in io.Reader, chunks chan<- []byte) {
	defer close(chunks)
	for {
		b := make([]byte, pumpChunk)
		n, err := in.Read(b)
		if n > 0 {
			select {
			case chunks <- b[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// burst is input until it pauses.
type burst struct {
	ctx    context.Context
	chunks chan []byte
	rest   []byte
	ended  bool // there is no more; set by Read and wait
}

// wait adds what comes next to the rest, and reports whether something came in time.
func (b *burst) wait(late <-chan time.Time) bool {
	select {
	case c, ok := <-b.chunks:
		b.rest, b.ended = append(b.rest, c...), !ok
		return ok
	case <-late:
	case <-b.ctx.Done():
		b.ended = true
	}
	return false
}

// Read implements io.Reader; a pause is its end.
func (b *burst) Read(p []byte) (int, error) {
	if len(b.rest) == 0 && (b.ended || !b.wait(time.After(pumpPause))) {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// pumpKeep is how much of a burst is kept to be sent again, in bytes.
const pumpKeep = 1 << 20

// parts gives the burst as often as it is to be sent, as long as what was read of
// it is kept. The part before must be closed.
func (b *burst) parts() func() (io.Reader, bool) {
	var p *part
	return func() (io.Reader, bool) {
		switch {
		case p == nil:
			p = &part{from: b}
		case p.lost:
			return nil, false
		default:
			p = &part{from: io.MultiReader(bytes.NewReader(p.sent), b)}
		}
		return p, true
	}
}

// part is what one request sends of a burst. A connection may go on reading after
// its answer came, until it is closed.
type part struct {
	mu     sync.Mutex
	from   io.Reader
	sent   []byte // what was read, unless it is lost
	lost   bool
	closed bool
}

// Read implements io.Reader.
func (p *part) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := p.from.Read(b)
	if p.lost = p.lost || len(p.sent)+n > pumpKeep; p.lost {
		p.sent = nil
	} else {
		p.sent = append(p.sent, b[:n]...)
	}
	return n, err
}

// Close implements io.Closer. It waits for a Read.
func (p *part) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}
