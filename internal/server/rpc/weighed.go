package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"agentbox/internal/server"
)

// call is what handlers and codecs know of the request that they serve.
type call struct {
	*held
	// body and answer are the bytes below the messages; nil: messages are no binary ones
	// in frames.
	body   *enveloped
	answer http.ResponseWriter
}

// free is called when nothing of a message is needed any more: what it took is given
// back, though the call goes on.
func (c *call) free(m proto.Message) {
	proto.Reset(m)
	c.settle(0)
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{held: &held{}} // of nobody's request
}

// weigh lets a call's messages be read as far as the budget has room for them. It is
// behind the gate: of who has no key nothing is read.
func (b *budget) weigh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{held: &held{of: b, owner: server.Caller(r.Context()).Owner}}
		defer c.end()
		ctx := context.WithValue(r.Context(), callKey{}, c)
		kind := kindOf(r.Header)
		s := scale{held: c.held, ctx: ctx, answer: w, packed: r.Header.Get("Content-Encoding") != "", grpc: isGRPC(r)}
		r = r.WithContext(ctx)
		if isPlain(kind) {
			r.Body = &plain{ReadCloser: r.Body, scale: s, length: r.ContentLength}
		} else {
			e := &enveloped{ReadCloser: r.Body, r: bufio.NewReaderSize(r.Body, ahead), scale: s}
			r.Body = e
			if !strings.HasSuffix(kind, "json") {
				c.body, c.answer = e, w
			}
		}
		next.ServeHTTP(w, r)
	})
}

// kindOf is the type of a body as connect reads it, whose handlers are chosen by it: in
// small letters, without spaces and parameters.
func kindOf(h http.Header) string {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return h.Get("Content-Type")
	}
	return kind
}

// isPlain reports whether a body is one message and nothing else, as Connect's unary calls
// have it.
func isPlain(kind string) bool {
	return !strings.HasPrefix(kind, grpcKind) && !strings.HasPrefix(kind, "application/connect+")
}

// scale weighs the messages of one call.
type scale struct {
	held   *held
	ctx    context.Context
	answer http.ResponseWriter
	packed bool // messages may be, by the header
	grpc   bool
	err    error // why nothing more is read
}

// maxPacking is how often a packed message's size, at most, is its real one: deflate's
// longest match, of 258 bytes, takes two bits.
const maxPacking = 1032

// weigh makes sure that there is room for a message, which is known by its size as it is
// sent.
func (s *scale) weigh(size int64, packed bool) {
	if packed {
		size *= maxPacking
	}
	err := s.held.need(s.ctx, size)
	if err == nil {
		return
	}
	p := server.ProblemOf(err)
	maps.Copy(s.answer.Header(), p.GetHeaders())
	if after := p.GetHeaders().Get("Retry-After"); after != "" && s.grpc {
		s.answer.Header().Set(http.TrailerPrefix+"Retry-After", after)
	}
	s.err = connect.NewError(codes[p.Code], p.Detail).WithCause(err)
}

// enveloped is a body in which a byte of flags and the size, 4 bytes, stand before each
// message.
type enveloped struct {
	io.ReadCloser // to be closed
	r             *bufio.Reader
	scale
	head [envelope]byte
	have int   // bytes of head
	left int64 // bytes of the message
}

const (
	envelope   = 5
	flagPacked = 1
	// ahead is what may be looked at before it is read: envelopes and small fields.
	ahead = 4 << 10
)

// Read implements io.Reader.
func (e *enveloped) Read(p []byte) (n int, err error) {
	switch {
	case e.err != nil:
		return 0, e.err
	case e.left > 0:
		n, err = e.r.Read(p[:min(int64(len(p)), e.left)])
		e.left -= int64(n)
		return n, err
	}
	n, err = e.r.Read(p[:min(len(p), envelope-e.have)])
	e.have += copy(e.head[e.have:], p[:n])
	if e.have == envelope {
		e.have, e.left = 0, int64(binary.BigEndian.Uint32(e.head[1:]))
		if e.left <= maxMessage { // else it is refused
			e.weigh(e.left, e.head[0]&flagPacked != 0)
		}
	}
	return n, err
}

// part looks at the next message. If it is a part of a file, not packed, and its data the
// last thing in it, the data is left to be read from r: nothing needs to hold it. Else the
// message is not touched.
func (e *enveloped) part() (size int64, ok bool) {
	if e.left > 0 || e.have > 0 || e.err != nil {
		return 0, false
	}
	head, err := e.r.Peek(envelope)
	if err != nil || head[0] != 0 {
		return 0, false
	}
	end := envelope + int64(binary.BigEndian.Uint32(head[1:]))
	b, err := e.r.Peek(int(min(end, maxFields)))
	if err != nil || end > envelope+maxMessage {
		return 0, false
	}
	for at := envelope; at < len(b); {
		number, kind, tag := protowire.ConsumeTag(b[at:])
		if tag < 0 || kind != protowire.BytesType {
			return 0, false
		}
		length, n := protowire.ConsumeVarint(b[at+tag:])
		if n < 0 || length > maxMessage {
			return 0, false
		}
		at += tag + n
		if number == dataField && int64(at)+int64(length) == end {
			_, err := e.r.Discard(at)
			return int64(length), err == nil
		}
		at += int(length)
	}
	return 0, false
}

// maxFields is how far into a message the data is looked for, in bytes.
const maxFields = 512

// plain is a body that is one message.
type plain struct {
	io.ReadCloser
	scale
	length int64 // negative: not known
	n      int64
}

// Read implements io.Reader.
func (b *plain) Read(p []byte) (int, error) {
	if b.n == 0 && b.length >= 0 {
		b.weigh(b.length, b.packed)
	}
	if b.length < 0 && b.n < smallMessage && !b.packed {
		p = p[:min(int64(len(p)), smallMessage-b.n)]
	} else if b.length < 0 {
		b.weigh(maxMessage, false) // which holds for what follows, too
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}
