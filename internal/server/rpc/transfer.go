package rpc

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect/v2"

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
	from := &uploaded{stream: stream, part: first, rest: first.GetData()}
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

// uploaded is the data of a stream's messages.
type uploaded struct {
	stream sandboxv1connect.SandboxServiceUploadFileServerStream
	part   *sandboxv1.UploadFileRequest
	rest   []byte // of its data
	n      int64
	err    error // why there are no more
}

// Read implements io.Reader.
func (u *uploaded) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		release(u.part)
		m, err := u.stream.Receive()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			u.err = err
			return 0, err
		}
		u.part, u.rest = m, m.GetData()
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	u.n += int64(n)
	return n, nil
}

// DownloadFile reads a file of any size.
func (s *service) DownloadFile(ctx context.Context, q *sandboxv1.DownloadFileRequest, stream sandboxv1connect.SandboxServiceDownloadFileServerStream) error {
	path := wording.Absolute(q.GetPath())
	err := s.inFiles(ctx, q.GetSessionId(), fileOp{audit.FileRead, "download", path}, func(in *client.Session) error {
		f, err := in.ReadFile(ctx, path, client.ReadOptions{Within: wording.Readable})
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.CopyBuffer(downloading{stream}, struct{ io.Reader }{f}, make([]byte, downloadChunk))
		return err
	})
	if err != nil {
		return fileStatus(ctx, err, path)
	}
	return nil
}

// downloadChunk is how much of a file one message has, in bytes.
const downloadChunk = 256 << 10

type downloading struct {
	stream sandboxv1connect.SandboxServiceDownloadFileServerStream
}

// Write implements io.Writer.
func (d downloading) Write(p []byte) (int, error) {
	if err := d.stream.Send(&sandboxv1.DownloadFileResponse{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
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
