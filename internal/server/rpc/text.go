package rpc

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
)

// gRPC-Web's text form is its binary one in base64, for clients that can read nothing
// else of an answer that goes on. connect has the binary one only.

// Types of gRPC and gRPC-Web, which a codec may follow: "+proto", "+json".
const (
	grpcKind = "application/grpc"
	webKind  = "application/grpc-web"
	textKind = "application/grpc-web-text"
)

// codecOf is what follows one of those types; false if a body's kind is another.
func codecOf(kind, of string) (codec string, ok bool) {
	codec, ok = strings.CutPrefix(kind, of)
	return codec, ok && (codec == "" || codec[0] == '+')
}

// inText hands requests in the text form on in the binary one, and sends answers in the text
// form to who asks for it. Other requests pass.
func inText(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := kindOf(r.Header)
		codec, text := codecOf(kind, textKind)
		if _, binary := codecOf(kind, webKind); !text && !binary {
			next.ServeHTTP(w, r)
			return
		}
		answer := wantsText(r.Header, text)
		if text {
			if codec == "" {
				codec = "+proto"
			}
			r = r.WithContext(r.Context()) // a copy
			r.Header = r.Header.Clone()
			r.Header.Set("Content-Type", webKind+codec)
			r.Header.Del("Content-Length")
			r.Body, r.ContentLength = &textBody{ReadCloser: r.Body}, -1
		}
		if !answer {
			next.ServeHTTP(w, r)
			return
		}
		a := &textAnswer{ResponseWriter: w, out: bufio.NewWriter(w)}
		next.ServeHTTP(a, r)
		_ = a.finish() // fails on a broken connection, which the handler was told or does not care for
	})
}

// wantsText reports whether an answer is to have the text form: the first type of
// gRPC-Web in Accept says so, without one the request's.
func wantsText(h http.Header, request bool) bool {
	for _, line := range h["Accept"] {
		for one := range strings.SplitSeq(line, ",") {
			kind, _, err := mime.ParseMediaType(one)
			if err != nil {
				continue
			}
			if _, ok := codecOf(kind, textKind); ok {
				return true
			}
			if _, ok := codecOf(kind, webKind); ok {
				return false
			}
		}
	}
	return request
}

// textSize is how long a body of n bytes is in base64.
func textSize(n int) int64 { return int64(base64.StdEncoding.EncodedLen(n)) }

const (
	// group is what base64 makes of three bytes.
	group = 4
	// maxText is how much of a body is decoded at once, in bytes.
	maxText = 4 << 10
)

// textBody is a body in base64, as the bytes that it stands for. It is any number of pieces,
// each padded on its own.
type textBody struct {
	io.ReadCloser
	raw   [maxText]byte
	have  int // bytes of raw, less than a group between reads
	plain [maxText / group * 3]byte
	rest  []byte // of plain, not read yet
	err   error  // why there is no more; it stays
}

// Read implements io.Reader.
func (b *textBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		b.fill()
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

const badText = "the body of application/grpc-web-text must be base64 with padding, without line breaks"

// fill reads what there is, and decodes it as far as groups are whole.
func (b *textBody) fill() {
	n, err := b.ReadCloser.Read(b.raw[b.have:])
	b.have += n
	whole := b.have - b.have%group
	size, ok := decodePieces(b.plain[:], b.raw[:whole])
	b.rest = b.plain[:size]
	b.have = copy(b.raw[:], b.raw[whole:b.have])
	if !ok || errors.Is(err, io.EOF) && b.have > 0 {
		err = connect.NewError(connect.CodeInvalidArgument, badText)
	}
	b.err = err
}

// decodePieces decodes whole groups; false: what comes after n bytes is wrong.
func decodePieces(to, from []byte) (n int, ok bool) {
	line := bytes.IndexAny(from, "\r\n") // which the decoder passes over
	if line >= 0 {
		from = from[:line-line%group]
	}
	for len(from) > 0 {
		end := len(from)
		if pad := bytes.IndexByte(from, '='); pad >= 0 {
			end = pad - pad%group + group // of the piece
		}
		size, err := base64.StdEncoding.Decode(to[n:], from[:end])
		n += size
		if err != nil {
			return n, false
		}
		from = from[end:]
	}
	return n, line < 0
}

// textAnswer is an answer in base64: a padded piece for all between two flushes, so that
// what was flushed can be decoded.
type textAnswer struct {
	http.ResponseWriter
	out    *bufio.Writer  // in base64, to ResponseWriter
	piece  io.WriteCloser // to out; nil: the next has not begun
	headed bool
}

// WriteHeader implements http.ResponseWriter.
func (a *textAnswer) WriteHeader(status int) {
	if !a.headed && status >= http.StatusOK {
		a.headed = true
		h := a.Header()
		h.Del("Content-Length")
		if codec, ok := codecOf(h.Get("Content-Type"), webKind); ok {
			h.Set("Content-Type", textKind+codec)
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *textAnswer) head() {
	if !a.headed {
		a.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer.
func (a *textAnswer) Write(p []byte) (int, error) {
	a.head()
	if a.piece == nil {
		a.piece = base64.NewEncoder(base64.StdEncoding, a.out)
	}
	return a.piece.Write(p)
}

// finish ends a piece.
func (a *textAnswer) finish() error {
	if a.piece == nil {
		return nil
	}
	err := a.piece.Close()
	a.piece = nil
	return errors.Join(err, a.out.Flush())
}

// FlushError sends what is buffered.
func (a *textAnswer) FlushError() error {
	a.head()
	if err := a.finish(); err != nil {
		return err
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush sends what is buffered.
func (a *textAnswer) Flush() { _ = a.FlushError() }

// Unwrap is for http.ResponseController.
func (a *textAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
