package rpc

import (
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"agentbox/internal/audit"
	sandboxv1 "agentbox/internal/gen/sandbox/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/guest/wording"
	"agentbox/internal/server"
	"agentbox/internal/server/doors"
)

// fileOp is what is done with a file, for the audit log.
type fileOp struct {
	action   audit.Action
	op, path string
}

// inFiles runs do with the sandbox's agent, and records it.
func (s *service) inFiles(ctx context.Context, id string, f fileOp, do func(*client.Session) error) error {
	c := caller(ctx)
	l, err := s.Sandboxes.Acquire(ctx, c, id)
	uid := ""
	if err == nil {
		defer l.Release()
		uid = l.Sandbox().UID
		defer server.EndBody(ctx, l.Session().Done())()
		err = doors.Ended(ctx, s.Sandboxes, c, id, do(l.Session()))
	} else {
		uid = s.uid(ctx, c, id)
	}
	doors.Record(ctx, s.Audit, c, f.action, uid, doors.GuestError(err), map[string]string{"op": f.op, "path": f.path})
	return err
}

// fileText is the text for an error that the calls about texts tell in their
// answers; false: it is a status.
func fileText(ctx context.Context, err error, path string) (string, bool) {
	if ctx.Err() == nil && errors.Is(err, errNoText) {
		return wording.NoText, true
	}
	if text, ok := wording.FileError(err, path); ok && ctx.Err() == nil {
		return text, true
	}
	return inAnswer(ctx, err)
}

func writeOptions(appending bool) client.WriteOptions {
	return client.WriteOptions{Append: appending, Atomic: !appending, Parents: true, Within: wording.Writable}
}

// written is the text of a request, which is free when all of it was read.
type written struct {
	q    *sandboxv1.WriteFileRequest
	rest string
	call *call
}

// Read implements io.Reader.
func (w *written) Read(p []byte) (n int, err error) {
	if w.rest == "" {
		return 0, io.EOF
	}
	n = copy(p, w.rest)
	if n < len(w.rest) {
		w.rest = w.rest[n:]
		return n, nil
	}
	w.rest = "" // an empty slice would keep it
	w.call.free(w.q)
	return n, nil
}

// WriteFile writes a text.
func (s *service) WriteFile(ctx context.Context, q *sandboxv1.WriteFileRequest) (*sandboxv1.WriteFileResponse, error) {
	appending, ok := wording.Appends(q.GetMode())
	if !ok {
		return &sandboxv1.WriteFileResponse{Error: new(wording.InvalidMode)}, nil
	}
	path := wording.Absolute(q.GetPath())
	err := s.inFiles(ctx, q.GetSessionId(), fileOp{audit.FileWrite, "write", path}, func(in *client.Session) error {
		return in.WriteFile(ctx, path, &written{q: q, rest: q.GetContent(), call: callOf(ctx)}, writeOptions(appending))
	})
	if err == nil {
		return &sandboxv1.WriteFileResponse{Success: true}, nil
	}
	text, ok := fileText(ctx, err, path)
	if !ok {
		return nil, status(ctx, err)
	}
	return &sandboxv1.WriteFileResponse{Error: &text}, nil
}

// errNoText is of a file that a text can't hold.
var errNoText = errors.New("the file is no text")

// ReadFile reads a text.
func (s *service) ReadFile(ctx context.Context, q *sandboxv1.ReadFileRequest) (*sandboxv1.ReadFileResponse, error) {
	path := wording.Absolute(q.GetPath())
	var content string
	err := s.inFiles(ctx, q.GetSessionId(), fileOp{audit.FileRead, "read", path}, func(in *client.Session) (err error) {
		content, err = readText(ctx, in, path)
		return err
	})
	if err == nil {
		return &sandboxv1.ReadFileResponse{Success: true, Content: &content}, nil
	}
	text, ok := fileText(ctx, err, path)
	if !ok {
		return nil, status(ctx, err)
	}
	if wording.IsMissing(err) {
		text = wording.FileNotFound
	}
	return &sandboxv1.ReadFileResponse{Error: &text}, nil
}

// readText reads a file that one message can hold.
func readText(ctx context.Context, in *client.Session, path string) (string, error) {
	f, err := in.ReadFile(ctx, path, client.ReadOptions{Within: wording.Readable})
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b strings.Builder
	b.Grow(int(min(max(f.Info.Size, 0), wording.MaxText+1))) // as the sandbox says
	_, err = io.Copy(&b, io.LimitReader(f, wording.MaxText+1))
	switch {
	case err != nil:
		return "", err
	case b.Len() > wording.MaxText:
		return "", wording.ErrTooLarge
	case !utf8.ValidString(b.String()):
		return "", errNoText
	}
	return b.String(), nil
}
