package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/gen/sandbox/v1/sandboxv1connect"
	"agentbox/internal/guest/client"
	"agentbox/internal/guest/wording"
	"agentbox/internal/sandbox"
)

// UploadFile writes a file of any size.
func (s *service) UploadFile(ctx context.Context, stream sandboxv1connect.SandboxServiceUploadFileServerStream) (*sandboxv1.UploadFileResponse, error) {
	first, err := stream.Receive()
	if errors.Is(err, io.EOF) {
		return nil, connect.NewError(connect.CodeInvalidArgument, "the first message is missing")
	}
	if err != nil {
		return nil, status(ctx, err)
	}
	appending, ok := wording.Appends(first.GetMode())
	if !ok {
		return nil, connect.NewError(connect.CodeInvalidArgument, wording.InvalidMode)
	}
	path := wording.Absolute(first.GetPath())
	c := callOf(ctx)
	from := &uploaded{stream: stream, call: c, body: c.body, part: first, rest: first.GetData()}
	err = s.inFiles(ctx, first.GetSessionId(), fileOp{audit.FileWrite, "upload", path}, func(in *client.Session) error {
		return in.WriteFile(ctx, path, from, writeOptions(appending))
	})
	var gone *sandbox.GoneError
	var state *sandbox.StateError
	switch {
	case from.err != nil && !errors.As(err, &gone) && !errors.As(err, &state): // that is why, whatever the guest says of it
		return nil, status(ctx, from.err)
	case err != nil:
		return nil, fileStatus(ctx, err, path)
	}
	return &sandboxv1.UploadFileResponse{Size: from.n}, nil
}

// uploaded is the data of a stream's messages: of the first one, and of those that can't be
// read directly, as connect gives it, of others as it comes.
type uploaded struct {
	stream sandboxv1connect.SandboxServiceUploadFileServerStream
	call   *call
	body   *enveloped // nil: nothing can
	part   *sandboxv1.UploadFileRequest
	rest   []byte // of its data
	direct int64  // bytes of a message's data that come from body
	n      int64
	err    error // why there are no more
}

// Read implements io.Reader.
func (u *uploaded) Read(p []byte) (n int, err error) {
	for len(u.rest) == 0 && u.direct == 0 {
		if err := u.next(); errors.Is(err, io.EOF) {
			return 0, io.EOF
		} else if err != nil {
			u.err = err
			return 0, err
		}
	}
	if u.direct == 0 {
		n = copy(p, u.rest)
		u.rest = u.rest[n:]
	} else {
		n, err = u.body.r.Read(p[:min(int64(len(p)), u.direct)])
		u.direct -= int64(n)
	}
	u.n += int64(n)
	if u.direct > 0 && errors.Is(err, io.EOF) {
		err = connect.NewError(connect.CodeInvalidArgument, "the message did not come whole")
	}
	if err == nil || u.direct == 0 && errors.Is(err, io.EOF) {
		return n, nil // an end is found again
	}
	u.err = err
	return n, err
}

// next begins the next message.
func (u *uploaded) next() error {
	release(u.part)
	u.rest = nil
	u.call.settle(0)
	if u.body != nil {
		if size, ok := u.body.part(); ok {
			u.direct = size
			return nil
		}
	}
	m, err := u.stream.Receive()
	if err == nil {
		u.part, u.rest = m, m.GetData()
	}
	return err
}

// DownloadFile reads a file of any size.
func (s *service) DownloadFile(ctx context.Context, q *sandboxv1.DownloadFileRequest, stream sandboxv1connect.SandboxServiceDownloadFileServerStream) error {
	path := wording.Absolute(q.GetPath())
	err := s.inFiles(ctx, q.GetSessionId(), fileOp{audit.FileRead, "download", path}, func(in *client.Session) error {
		f, err := in.ReadFile(ctx, path, client.ReadOptions{Within: wording.Readable})
		if err != nil {
			return err
		}
		chunk, done := s.downloads.enter()
		defer done()
		return download(stream, callOf(ctx), f, chunk)
	})
	if err != nil {
		return fileStatus(ctx, err, path)
	}
	return nil
}

const (
	// largeChunk is how much of a file one message has, in bytes, smallChunk that of
	// downloads beyond the first maxLarge: each holds two for as long as its client
	// lets it wait.
	largeChunk, smallChunk = 512 << 10, 64 << 10
	maxLarge               = 32
	// downloadHead is what stands before it: the envelope, the field's tag and its length.
	downloadHead = envelope + 1 + 3
)

// downloads are those on their way whose messages are large.
type downloads chan struct{}

// enter says how large the messages of a download are. done is called at its end.
func (d downloads) enter() (chunk int, done func()) {
	select {
	case d <- struct{}{}:
		return largeChunk, func() { <-d }
	default:
		return smallChunk, func() {}
	}
}

// filePart is a part of a file behind room for what a frame has before it.
type filePart struct {
	frame []byte
	n     int
	err   error
}

// readAhead reads a file while what came before is sent: parts come until one has an
// error. What was sent is given back. It ends with the parts, or when back is closed.
func readAhead(f io.Reader, chunk int) (parts <-chan filePart, back chan<- []byte) {
	const ahead = 2
	free, read := make(chan []byte, ahead), make(chan filePart, ahead)
	for range ahead {
		free <- make([]byte, downloadHead+chunk)
	}
	go func() {
		defer close(read)
		for frame := range free {
			n, err := f.Read(frame[downloadHead:])
			read <- filePart{frame, n, err}
			if err != nil {
				return
			}
		}
	}()
	return read, free
}

// download sends a file, and closes it: the first message by connect, with all that
// belongs to an answer, the rest as frames with the file's bytes where they are.
func download(stream sandboxv1connect.SandboxServiceDownloadFileServerStream, c *call, f io.ReadCloser, chunk int) error {
	parts, back := readAhead(f, chunk)
	defer func() {
		close(back)
		f.Close()
		for range parts { // nobody reads the file any more
		}
	}()
	first := true
	for p := range parts {
		switch {
		case p.n == 0:
		case first || c.answer == nil:
			if err := stream.Send(&sandboxv1.DownloadFileResponse{Data: p.frame[downloadHead : downloadHead+p.n]}); err != nil {
				return err
			}
			first = false
		default:
			if err := sendFrame(c.answer, p.frame, p.n); err != nil {
				return err
			}
		}
		if errors.Is(p.err, io.EOF) {
			return nil
		}
		if p.err != nil {
			return p.err
		}
		back <- p.frame
	}
	return nil
}

// sendFrame sends a message with the n bytes of data that stand in frame behind room for
// what comes before them.
func sendFrame(w http.ResponseWriter, frame []byte, n int) error {
	field := protowire.AppendVarint(protowire.AppendTag(nil, partField, protowire.BytesType), uint64(n))
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(field)+n))
	head = append(head, field...)
	full := downloadHead+n == len(frame)
	frame = frame[downloadHead-len(head) : downloadHead+n]
	copy(frame, head)
	if _, err := w.Write(frame); err != nil {
		return connect.NewError(connect.CodeCanceled, "the client takes no more").WithCause(err)
	}
	if full {
		return nil // more comes at once
	}
	return http.NewResponseController(w).Flush()
}

// fileStatus is an error about a file as a status.
func fileStatus(ctx context.Context, err error, path string) error {
	e := status(ctx, err)
	text, ok := wording.FileError(err, path)
	switch {
	case !ok || ctx.Err() != nil:
		return e
	case text == wording.PathNotAllowed:
		return connect.NewError(connect.CodePermissionDenied, text).WithCause(err)
	case wording.IsMissing(err):
		text = wording.FileNotFound
	}
	return connect.NewError(e.Code(), text).WithCause(err)
}
