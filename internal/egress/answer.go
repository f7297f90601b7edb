package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentbox/internal/egress/hide"
)

// answer passes the answer on. It reports whether the client may send another
// request.
func (x *exchange) answer(ctx context.Context, resp *http.Response) bool {
	x.gone.answered()
	if x.hinted && x.target == nil && x.body.atEnd() && x.asksNext() {
		return x.cutOff(ctx, errTaken)
	}
	x.hide.Answer(resp)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return x.upgraded(ctx, resp)
	}
	keep := !x.req.Close && !x.old && x.body.atEnd()
	bodiless := x.req.Method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
	if x.hide != nil && !bodiless && hide.Encoded(resp.Header) {
		return x.refuseEncoded()
	}
	chunked := !bodiless && resp.ContentLength < 0 && !x.old
	x.writeHead(resp, bodiless, chunked, keep)
	if err := x.passOn(resp, bodiless, chunked); err != nil {
		return x.cutOff(ctx, err)
	}
	x.gone.stop()
	clean := x.body.stop()
	x.linger = x.linger || !clean
	return keep && clean
}

// errTaken is told to operators as it is.
var errTaken = errors.New("the client took an answer before the answer for it, and asked for more")

// nextTime is how long the next request of a client may be on its way to us, also on a
// busy machine. Answers before the answer are rare where requests are for many hosts.
const nextTime = 100 * time.Millisecond

// asksNext reports whether the client has sent its next request. Some take the first
// answer before the answer for it, and this one for that of the next host.
func (x *exchange) asksNext() bool {
	x.gone.stop()
	setReadDeadline(x.conn, nextTime)
	defer setReadDeadline(x.conn, 0)
	_, err := x.r.Peek(1)
	return err == nil
}

// refuseEncoded answers in place of a server that encodes what it was asked not
// to.
func (x *exchange) refuseEncoded() bool {
	x.gone.stop()
	clean := x.body.stop()
	return x.refuse(x.f, x.req, &refusal{
		status: http.StatusBadGateway, code: CodeSecret,
		text: "Proxy error: the server's answer is encoded, although it was asked not to, and can't be searched for the secret that was put into the request",
	}) && clean
}

// cutOff ends the connection in the middle of an answer.
func (x *exchange) cutOff(ctx context.Context, err error) bool {
	x.f.fail(ctx, err)
	x.broken = true
	x.gone.stop()
	x.body.stop()
	return false
}

// writeHead begins the answer. Errors stay in the writer.
func (x *exchange) writeHead(resp *http.Response, bodiless, chunked, keep bool) {
	h := resp.Header
	cleanAnswer(h)
	cleanAside(resp.Trailer)
	switch {
	case resp.StatusCode == http.StatusNoContent || chunked || !bodiless && resp.ContentLength < 0:
		h.Del("Content-Length")
	case !bodiless:
		h.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	if chunked {
		h.Set("Transfer-Encoding", "chunked")
		var names []string
		for name := range resp.Trailer {
			names = append(names, name)
		}
		if slices.Sort(names); len(names) > 0 {
			h.Set("Trailer", strings.Join(names, ", "))
		}
	}
	if !keep {
		h.Set("Connection", "close")
	}
	_, phrase, _ := strings.Cut(resp.Status, " ")
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answered = true
	fmt.Fprintf(x.w, "HTTP/1.1 %03d %s\r\n", resp.StatusCode, oneLine(phrase))
	_ = h.Write(x.w)
	_, _ = x.w.WriteString("\r\n")
}

// passOn sends what follows the head. Nothing that has come waits for what has not:
// what is written goes out before the server is read again, so that events come
// at once and a small answer, with its head and end, is one write.
func (x *exchange) passOn(resp *http.Response, bodiless, chunked bool) error {
	if bodiless {
		return x.w.Flush()
	}
	done := false // under x.mu
	flush := func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		if done { // the transport reads for the next answer
			return nil
		}
		return x.w.Flush()
	}
	x.up.waits.Store(&flush)
	err := x.copyBody(resp, chunked)
	x.up.waits.Store(nil)
	x.mu.Lock()
	defer x.mu.Unlock()
	done = true
	if err != nil {
		return err
	}
	return x.w.Flush()
}

// copyBody writes the body, each part as it comes.
func (x *exchange) copyBody(resp *http.Response, chunked bool) error {
	var to io.Writer = x.w
	if chunked {
		to = httputil.NewChunkedWriter(x.w)
	}
	piece := x.s.meter.pumps.Piece()
	defer piece.Release()
	for {
		b, err := piece.Read(resp.Body)
		if err := x.pass(to, x.hide.Next(b)); err != nil {
			return err
		}
		switch {
		case err == io.EOF: //nolint:errorlint // a wrapped one is no end
			return x.endBody(resp, to, chunked)
		case err != nil:
			return fmt.Errorf("%w: %w", errNoHTTP, err)
		}
	}
}

func (x *exchange) pass(to io.Writer, part []byte) error {
	if len(part) == 0 {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	_, err := to.Write(part)
	return err
}

func (x *exchange) endBody(resp *http.Response, to io.Writer, chunked bool) error {
	if err := x.pass(to, x.hide.Rest()); err != nil || !chunked {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := to.(io.Closer).Close(); err != nil {
		return err
	}
	cleanAside(resp.Trailer) // it may have more than was said before
	x.hide.Header(resp.Trailer)
	_ = resp.Trailer.Write(x.w) // errors stay in the writer
	_, err := x.w.WriteString("\r\n")
	return err
}
