package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
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
		var body io.Reader = b
		last := b.ended
		if last {
			body = bytes.NewReader(b.rest)
		}
		if ctx.Err() != nil || !p.send(ctx, body, last) || last {
			return
		}
	}
}

// send sends a part of the input and reports whether it was taken. A server that
// is away has taken nothing of it.
func (p *pump) send(ctx context.Context, body io.Reader, eof bool) bool {
	path := p.path
	if eof {
		path += "?eof=1"
	}
	q := request{method: http.MethodPost, path: path, body: body, header: http.Header{"Content-Type": {"application/octet-stream"}}}
	for end := time.Now().Add(backWithin); ; {
		err := p.r.callWith(ctx, q, nil)
		var refused *apiError
		switch {
		case err == nil:
			return true
		case errors.As(err, &refused) && refused.Code != "unavailable":
			return false // the command takes no more, or has ended
		case !nobodyThere(err) || time.Now().After(end):
			p.fail(errInputLost)
			return false
		}
		select {
		case <-time.After(backEvery):
		case <-ctx.Done():
			return false
		}
	}
}

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
