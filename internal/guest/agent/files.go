package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
)

// files answers the calls about files.
type files struct {
	files Files
	trees slots // for archives, which wait for their client
	work  slots // for calls that go through a tree on their own

	watchers slots
}

// slots bound how many calls of a kind run at once: each holds a thread of the
// agent. There is one element for each.
type slots chan struct{}

// maxTrees and maxWork are the sizes of slots: enough for some clients at once,
// and a small part of what a sandbox may have of threads.
const (
	maxTrees = 8
	maxWork  = 4
)

func newFiles(f Files) *files {
	return &files{f, make(slots, maxTrees), make(slots, maxWork), make(slots, maxWatchers)}
}

// do runs f when there is a place for it.
func (s slots) do(ctx context.Context, f func() error) error {
	select {
	case s <- struct{}{}:
		defer func() { <-s }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxPath is the longest path that is taken: trees may be deeper than one system
// call can name (4,096 bytes), and this bounds what a request costs.
const maxPath = 32 << 10

// checkPath refuses what is no path, before a file system sees it.
func checkPath(p string) error {
	switch {
	case p == "":
		return guest.Errorf(errdefs.ErrInvalidArgument, "the path is empty")
	case strings.IndexByte(p, 0) >= 0:
		return guest.Errorf(errdefs.ErrInvalidArgument, "the path holds NUL")
	case len(p) > maxPath:
		return guest.Errorf(errdefs.ErrInvalidArgument, "the path has more than %d bytes", maxPath)
	}
	return nil
}

// as runs f with the rights of user after it checked the paths.
func (s *files) as(user string, f func(FS) error, paths ...string) error {
	for _, p := range paths {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	return s.files.As(user, f)
}

// goThrough is as for calls that go through a tree.
func (s *files) goThrough(ctx context.Context, user string, f func(FS) error, paths ...string) error {
	return s.work.do(ctx, func() error { return s.as(user, f, paths...) })
}

func (s *files) stat(_ context.Context, q *guestv1.StatRequest) (a *guestv1.StatResponse, err error) {
	p := string(q.GetPath())
	err = s.as(q.GetUser(), func(fsys FS) error {
		i, err := fsys.Stat(p, q.GetFollow())
		a = &guestv1.StatResponse{Info: i}
		return err
	}, p)
	return a, err
}

// Types of files, as in st_mode.
const (
	typeMask  = 0o170000
	typeFile  = 0o100000
	typeDir   = 0o040000
	typeLink  = 0o120000
	typeFifo  = 0o010000
	typeSock  = 0o140000
	permsMask = 0o777 // uploads never set the setuid, setgid and sticky bits
)

func isDir(i *guestv1.FileInfo) bool  { return i.GetMode()&typeMask == typeDir }
func isFile(i *guestv1.FileInfo) bool { return i.GetMode()&typeMask == typeFile }

// isSpecial tells what has no content: FIFOs, sockets, devices.
func isSpecial(i *guestv1.FileInfo) bool { return !isFile(i) && !isDir(i) && !isLink(i) }

// specialKind is why something special is skipped: what it is.
func specialKind(i *guestv1.FileInfo) string {
	switch i.GetMode() & typeMask {
	case typeFifo:
		return "fifo"
	case typeSock:
		return "socket"
	}
	return "device"
}

func isLink(i *guestv1.FileInfo) bool { return i.GetMode()&typeMask == typeLink }

// params reads the parameters of a request about a file's body; the first
// mistake is kept.
type params struct {
	v   url.Values
	err error
}

func paramsOf(r *http.Request) *params {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		err = guest.Errorf(errdefs.ErrInvalidArgument, "parameters: %v", err)
	}
	return &params{v, err}
}

func (p *params) number(name string, limit int64, base int) int64 {
	s := p.v.Get(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, base, 64)
	if (err != nil || n < 0 || n > limit) && p.err == nil {
		p.err = guest.Errorf(errdefs.ErrInvalidArgument, "parameter %s: %q is not a number from 0 to %d", name, s, limit)
	}
	return n
}

func (p *params) flag(name string) bool { return p.v.Get(name) == "1" }

// get sends a file's bytes from an offset on.
func (s *files) get(w http.ResponseWriter, r *http.Request) {
	q := paramsOf(r)
	name := q.v.Get("path")
	rg := byteRange{q.number("offset", math.MaxInt64, 10), q.number("length", math.MaxInt64, 10), q.number("suffix", math.MaxInt64, 10)}
	if q.err == nil && rg.suffix > 0 && (rg.offset > 0 || rg.length > 0) {
		q.err = guest.Errorf(errdefs.ErrInvalidArgument, "a suffix has neither offset nor length")
	}
	if q.err != nil {
		guest.WriteError(w, q.err)
		return
	}
	f, i, err := s.open(q.v["within"], q.v.Get("user"), name)
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	defer f.Close()
	src, err := rg.of(f, i.GetSize())
	if err != nil {
		guest.WriteError(w, err)
		return
	}
	w.Header().Set(guest.FileHeader, guest.EncodeHeader(i))
	sendBody(w, r, func(w io.Writer) error { return copyBody(w, src) })
}

// open opens a file that must lie below one of some directories; see within.
func (s *files) open(dirs []string, user, name string) (f File, i *guestv1.FileInfo, err error) {
	err = s.within(dirs, user, name, func(fsys FS, name string) (err error) {
		f, err = fsys.Open(name, nil)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if i, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, i, nil
}

// byteRange is a part of a file. length 0 is to the end; suffix is how many
// bytes at the end, and stands alone.
type byteRange struct{ offset, length, suffix int64 }

// maxTail bounds the suffix of a file whose size is not known.
const maxTail = 4 << 20

// of positions f and returns what to read of it. A size of 0 says nothing: files
// of /proc have it.
func (g byteRange) of(f File, size int64) (io.Reader, error) {
	if g.suffix > 0 && size == 0 {
		return tail(f, g.suffix)
	}
	if g.suffix > 0 {
		g.offset = max(size-g.suffix, 0)
		g.length = g.suffix
	}
	if g.offset > 0 {
		if _, err := f.Seek(g.offset, io.SeekStart); err != nil {
			return nil, err
		}
	}
	if g.length > 0 {
		return io.LimitReader(f, g.length), nil
	}
	return f, nil
}

// tail reads a file to its end for the last n bytes of it.
func tail(f File, n int64) (io.Reader, error) {
	if n > maxTail {
		return nil, guest.Errorf(errdefs.ErrInvalidArgument, "a suffix of a file without a size has at most %d bytes", maxTail)
	}
	var last []byte
	buf := make([]byte, 64<<10)
	for range maxTail {
		m, err := f.Read(buf)
		last = append(last, buf[:m]...)
		if int64(len(last)) > 2*n {
			last = append(last[:0], last[int64(len(last))-n:]...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return bytes.NewReader(last[max(int64(len(last))-n, 0):]), nil
		case err != nil:
			return nil, err
		}
	}
	return nil, guest.Errorf(errdefs.ErrResourceExhausted, "the file has no end")
}

// sendBody answers with what send writes. An error on the way ends in the
// trailer, so that the host can tell a short body from a whole one.
func sendBody(w http.ResponseWriter, r *http.Request, send func(io.Writer) error) {
	ctl := http.NewResponseController(w)
	stop := context.AfterFunc(r.Context(), func() { _ = ctl.SetWriteDeadline(past) })
	defer stop()
	w.Header().Add("Trailer", guest.ErrorTrailer)
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := send(writerOnly{w}); err != nil {
		w.Header().Set(guest.ErrorTrailer, guest.EncodeTrailer(err))
	}
}

// writerOnly hides ReadFrom, which would copy in small pieces.
type writerOnly struct{ io.Writer }
