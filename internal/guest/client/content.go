package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// ReadOptions govern ReadFile. They are in bytes.
type ReadOptions struct {
	User           string
	Offset, Length int64 // Length 0: to the end; an Offset behind the end gives nothing
	// Suffix is how many bytes at the end; then Offset and Length are 0. It is at
	// most 4 MiB for a file whose size is not known, such as those of /proc.
	Suffix int64
	// Within are directories, absolute and without links and a slash at the end.
	// The path is absolute, then, and one that leads out of them is OutOfRange. An
	// agent that was built before there was that is NotImplemented.
	Within []string
}

// Content is a file on its way from the guest.
type Content struct {
	io.ReadCloser
	// Info describes the file as it was opened. Files of /proc have the size 0
	// and content all the same. Path and Name are those that were asked for.
	Info FileInfo
}

// ReadFile streams a regular file; what is none is InvalidArgument and never
// blocks. The guest may send without end: the caller bounds what it takes.
// Reading ends with the context or Close.
func (s *Session) ReadFile(ctx context.Context, name string, o ReadOptions) (*Content, error) {
	q := url.Values{"path": {name}, "user": {o.User}}
	setNumber(q, "offset", o.Offset, 10)
	setNumber(q, "length", o.Length, 10)
	setNumber(q, "suffix", o.Suffix, 10)
	b, err := s.get(ctx, filesPath(q, o.Within), q)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", name, err)
	}
	m := new(guestv1.FileInfo)
	guest.DecodeHeader(b.a.Header.Get(guest.FileHeader), m)
	return &Content{b, fileInfo(m, name)}, nil
}

// WriteOptions govern WriteFile.
type WriteOptions struct {
	User    string
	Mode    fs.FileMode // permissions; 0: those of the file, else 0644
	Append  bool        // write at the end
	Atomic  bool        // the file changes when all was written, or not at all
	Parents bool        // make missing directories
	Owner   string      // of the file and of directories that are made, as in Chown; "": that of the file, else the user
	Within  []string    // as in ReadOptions
}

// WriteFile writes a file from r to its end. A disk that is full is an error
// that is syscall.ENOSPC and of the class ResourceExhausted; what is there but no
// regular file is InvalidArgument. Without Atomic what was written before an
// error stays.
func (s *Session) WriteFile(ctx context.Context, name string, r io.Reader, o WriteOptions) error {
	q := url.Values{"path": {name}, "user": {o.User}}
	setNumber(q, "mode", int64(o.Mode.Perm()), 8)
	setText(q, "owner", o.Owner)
	setFlag(q, "append", o.Append)
	setFlag(q, "atomic", o.Atomic)
	setFlag(q, "parents", o.Parents)
	if err := s.put(ctx, filesPath(q, o.Within), q, r); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	return nil
}

// filesPath is where files are, those below some directories only.
func filesPath(q url.Values, within []string) string {
	if len(within) == 0 {
		return guest.PathFiles
	}
	q["within"] = within
	return guest.PathFilesWithin
}

func setNumber(q url.Values, name string, n int64, base int) {
	if n != 0 {
		q.Set(name, strconv.FormatInt(n, base))
	}
}

func setText(q url.Values, name, s string) {
	if s != "" {
		q.Set(name, s)
	}
}

func setFlag(q url.Values, name string, on bool) {
	if on {
		q.Set(name, "1")
	}
}

func (s *Session) get(ctx context.Context, path string, q url.Values) (*body, error) {
	a, err := s.do(ctx, http.MethodGet, path, q, nil, nil)
	if err != nil {
		return nil, err
	}
	return &body{ctx: ctx, a: a}, nil
}

func (s *Session) put(ctx context.Context, path string, q url.Values, r io.Reader) error {
	a, err := s.do(ctx, http.MethodPut, path, q, nil, r)
	if err != nil {
		return err
	}
	a.close()
	return nil
}

// body is a file's content on its way from the guest.
type body struct {
	ctx context.Context
	a   *answer
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.a.Body.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		if told := guest.DecodeTrailer(b.a.Trailer.Get(guest.ErrorTrailer)); told != nil {
			return n, told
		}
		return n, io.EOF
	case b.ctx.Err() != nil:
		return n, context.Cause(b.ctx)
	}
	return n, err
}

func (b *body) Close() error {
	b.a.close()
	return nil
}
