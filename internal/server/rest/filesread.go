package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

type readInput struct {
	FilePath
	Content
	Range   string `header:"Range" doc:"bytes=FIRST-LAST, bytes=FIRST- or bytes=-LENGTH."`
	IfRange string `header:"If-Range" doc:"The ETag for which Range holds."`
}

// byteRange is a part of a file; the zero value is all of it.
type byteRange struct {
	set, none              bool
	offset, length, suffix int64
}

// parseRange reads a Range of one part. What is not understood is ignored, as
// RFC 9110 allows.
func parseRange(s string) (r byteRange) {
	spec, ok := strings.CutPrefix(s, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash {
		return byteRange{}
	}
	if first == "" {
		n, err := strconv.ParseUint(last, 10, 63)
		return byteRange{set: err == nil, none: n == 0, suffix: int64(n)}
	}
	a, err := strconv.ParseUint(first, 10, 62)
	if err != nil {
		return byteRange{}
	}
	if last == "" {
		return byteRange{set: true, offset: int64(a)}
	}
	b, err := strconv.ParseUint(last, 10, 62)
	if err != nil || b < a {
		return byteRange{}
	}
	return byteRange{set: true, offset: int64(a), length: int64(b-a) + 1}
}

// within is the part that there is of a file of a size; false: none.
func (r byteRange) within(size int64) (offset, length int64, ok bool) {
	offset, length = r.offset, r.length
	if r.suffix > 0 {
		offset, length = max(size-r.suffix, 0), r.suffix
	}
	if length == 0 || length > size-offset {
		length = size - offset
	}
	return offset, length, !r.none && offset < size
}

func (f *fileRoutes) read(ctx context.Context, c sandbox.Caller, in *readInput) (reply, error) {
	l, err := f.open(ctx, c, in.ID, reads("read", in.Path))
	if err != nil {
		return nil, err
	}
	answer, err := f.readHeld(ctx, l, in)
	err = onPath(err)
	f.note(ctx, c, l, reads("read", in.Path), err)
	if err != nil {
		l.Release()
		return nil, err
	}
	return answer, nil
}

// readHeld answers with a lease that the answer releases.
func (f *fileRoutes) readHeld(ctx context.Context, l *manager.Lease, in *readInput) (reply, error) {
	r := parseRange(in.Range)
	content, err := l.Session().ReadFile(ctx, in.Path, client.ReadOptions{User: in.User, Offset: r.offset, Length: r.length, Suffix: r.suffix})
	if err != nil {
		return nil, err
	}
	size := content.Info.Size
	if !r.set {
		return sendFile(l, content, "", size), nil
	}
	if size == 0 || in.IfRange != "" && in.IfRange != etag(&content.Info) { // all of it after all
		content.Close()
		if content, err = l.Session().ReadFile(ctx, in.Path, client.ReadOptions{User: in.User}); err != nil {
			return nil, err
		}
		return sendFile(l, content, "", content.Info.Size), nil
	}
	offset, length, ok := r.within(size)
	if !ok {
		content.Close()
		l.Release()
		return unsatisfiable(size), nil
	}
	return sendFile(l, content, fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, size), length), nil
}

func unsatisfiable(size int64) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Range", "bytes */"+itoa(size))
		server.WriteError(w, r, server.NewProblem(server.CodeOutOfRange, ""))
	}
}

// etag changes when the file does.
func etag(i *client.FileInfo) string {
	return fmt.Sprintf(`"%x-%x-%x"`, i.Ino, i.Mtime.UnixNano(), i.Size)
}

// sendFile answers with a file. Size 0 is not known: files of /proc have it.
func sendFile(l *manager.Lease, content *client.Content, part string, size int64) reply {
	return func(w http.ResponseWriter, r *http.Request) {
		defer l.Release()
		defer content.Close()
		h := w.Header()
		if h.Get("Content-Type") == "" {
			h.Set("Content-Type", typeBytes)
		}
		h.Set("Accept-Ranges", "bytes")
		h.Set("ETag", etag(&content.Info))
		h.Set("Last-Modified", content.Info.Mtime.UTC().Format(http.TimeFormat))
		body := io.Reader(content)
		if size > 0 {
			h.Set("Content-Length", itoa(size))
			body = io.LimitReader(content, size)
		}
		if part != "" {
			h.Set("Content-Range", part)
			w.WriteHeader(http.StatusPartialContent)
		}
		if r.Method == http.MethodHead {
			return
		}
		n, err := copyBody(w, body)
		if err == nil && size > 0 && n < size {
			err = io.ErrUnexpectedEOF // it shrank meanwhile
		}
		if err != nil {
			server.LogError(r.Context(), fmt.Errorf("send a file: %w", err))
			cut()
		}
	}
}
