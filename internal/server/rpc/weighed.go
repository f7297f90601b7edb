package rpc

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"

	"agentbox/internal/server"
)

// weigh lets a call's messages be read as far as the budget has room for them. It is
// behind the gate: of who has no key nothing is read.
func (b *budget) weigh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &held{of: b, owner: server.Caller(r.Context()).Owner}
		defer h.end()
		ctx := context.WithValue(r.Context(), heldKey{}, h)
		s := scale{held: h, ctx: ctx, answer: w, packed: r.Header.Get("Content-Encoding") != "", grpc: r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")}
		r = r.WithContext(ctx)
		if isPlain(r.Header) {
			r.Body = &plain{ReadCloser: r.Body, scale: s, length: r.ContentLength}
		} else {
			r.Body = &enveloped{ReadCloser: r.Body, scale: s}
		}
		next.ServeHTTP(w, r)
	})
}

// isPlain reports whether a body is one message and nothing else, as Connect's unary calls
// have it.
func isPlain(h http.Header) bool {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return !strings.HasPrefix(kind, "application/grpc") && !strings.HasPrefix(kind, "application/connect+")
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
	io.ReadCloser
	scale
	head [5]byte
	have int   // bytes of head
	left int64 // bytes of the message
}

const flagPacked = 1

// Read implements io.Reader.
func (e *enveloped) Read(p []byte) (n int, err error) {
	switch {
	case e.err != nil:
		return 0, e.err
	case e.left > 0:
		n, err = e.ReadCloser.Read(p[:min(int64(len(p)), e.left)])
		e.left -= int64(n)
		return n, err
	}
	n, err = e.ReadCloser.Read(p[:min(len(p), len(e.head)-e.have)])
	e.have += copy(e.head[e.have:], p[:n])
	if e.have == len(e.head) {
		e.have, e.left = 0, int64(binary.BigEndian.Uint32(e.head[1:]))
		if e.left <= maxMessage { // else it is refused
			e.weigh(e.left, e.head[0]&flagPacked != 0)
		}
	}
	return n, err
}

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
