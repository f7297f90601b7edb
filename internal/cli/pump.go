package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// pump passes input on to a command, in requests that end when the input pauses.
// Each is answered: so it is known what has arrived, and no proxy on the way holds
// back what was typed.
type pump struct {
	r      *remote
	path   string // of the command's input
	in     io.Reader
	unsure atomic.Bool // a request was sent and not answered
}

const (
	// pumpPause ends a request.
	pumpPause = 50 * time.Millisecond
	// pumpGather is how long the first bytes wait for others, or for the end, that
	// can be sent with them.
	pumpGather = 2 * time.Millisecond
	pumpChunk  = 64 << 10
)

// lost reports whether nobody knows how much of the input has arrived.
func (p *pump) lost() bool { return p != nil && p.unsure.Load() }

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
		var body io.Reader = b
		last := b.ended
		if last {
			body = bytes.NewReader(b.rest)
		}
		if ctx.Err() != nil || !p.send(body, last) || last {
			return
		}
	}
}

// send sends a part of the input and reports whether it was taken.
func (p *pump) send(body io.Reader, eof bool) bool {
	path := p.path
	if eof {
		path += "?eof=1"
	}
	p.unsure.Store(true)
	q := request{method: http.MethodPost, path: path, body: body, header: http.Header{"Content-Type": {"application/octet-stream"}}}
	err := p.r.callWith(context.Background(), q, nil) // it ends with the command
	var refused *apiError
	p.unsure.Store(err != nil && !errors.As(err, &refused))
	return err == nil
}

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
