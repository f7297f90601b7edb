package agentbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// ArchiveOptions are for archives in both directions.
type ArchiveOptions struct {
	// Gzip: the archive is a tar.gz, not a tar.
	Gzip bool
	// Exclude leaves out what matches, with what is in it; a pattern without / is for names.
	// For reading directories only.
	Exclude []string
	// Size is how much there is to write, if it is known.
	Size     int64
	Progress Progress
}

func (o *ArchiveOptions) mediaType() string {
	if o.Gzip {
		return "application/gzip"
	}
	return "application/x-tar"
}

// ReadArchive writes a directory to w as a tar. skipped are the entries that were left
// out: special files, and what the user may not read. An archive that does not come whole is
// ErrUnavailable.
func (f *Files) ReadArchive(ctx context.Context, path string, w io.Writer, o ArchiveOptions) (skipped int, err error) {
	q := f.query(path)
	q["exclude"] = o.Exclude
	return f.b.c.readArchive(ctx, f.b.in("files", "archive"), q, w, &o)
}

// WriteArchive unpacks a tar into a directory, which is made if it is missing. Entries that
// would lead out of it are refused; what came before an error stays.
func (f *Files) WriteArchive(ctx context.Context, path string, r io.Reader, o ArchiveOptions) error {
	return f.b.c.writeArchive(ctx, f.b.in("files", "archive"), f.query(path), r, &o)
}

func (c *Client) readArchive(ctx context.Context, path string, query url.Values, w io.Writer, o *ArchiveOptions) (int, error) {
	header := http.Header{"Accept": {o.mediaType()}}
	resp, err := c.do(ctx, call{method: http.MethodGet, path: path, query: query, header: header})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	to := &sink{w: w}
	if _, err := io.Copy(to, o.Progress.reader(resp.Body, -1)); err != nil {
		if to.err == nil { // not w's fault
			err = c.cut(err)
		}
		return 0, err
	}
	skipped, err := strconv.Atoi(resp.Trailer.Get("X-Skipped"))
	if err != nil { // what is between may end an answer that broke off as if it were whole
		return 0, c.cut(fmt.Errorf("the end of the archive is missing: %w", io.ErrUnexpectedEOF))
	}
	return skipped, nil
}

// sink remembers whether writing failed.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (n int, err error) {
	n, err = s.w.Write(p)
	s.err = errors.Join(s.err, err)
	return n, err
}

func (c *Client) writeArchive(ctx context.Context, path string, query url.Values, r io.Reader, o *ArchiveOptions) error {
	body := o.Progress.reader(r, sizeOr(o.Size))
	header := http.Header{"Content-Type": {o.mediaType()}}
	return c.tell(ctx, call{method: http.MethodPut, path: path, query: query, body: body, length: o.Size, header: header})
}
