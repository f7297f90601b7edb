package agentbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"
)

// Files are the files of a sandbox. A relative path begins at the sandbox's directory.
type Files struct {
	b    *Box
	user string
}

// As are the same files with the rights of another user of the sandbox, such as root.
func (f *Files) As(user string) *Files { return &Files{f.b, user} }

// FileInfo describes a file.
type FileInfo struct {
	Path       string    `json:"path"`
	PathBase64 []byte    `json:"path_base64"` // the path exactly, if it is no UTF-8
	Name       string    `json:"name"`
	Type       string    `json:"type"`   // file, dir, symlink, fifo, socket or device
	Target     string    `json:"target"` // where a symlink leads
	Mode       string    `json:"mode"`   // octal, with setuid, setgid and sticky
	Size       int64     `json:"size"`
	UID        uint32    `json:"uid"`
	GID        uint32    `json:"gid"`
	User       string    `json:"user"` // empty: the sandbox has no name for it
	Group      string    `json:"group"`
	Mtime      time.Time `json:"mtime"`
	Atime      time.Time `json:"atime"`
	Ctime      time.Time `json:"ctime"`
	Nlink      uint32    `json:"nlink"`
}

// IsDir reports a directory.
func (i *FileInfo) IsDir() bool { return i.Type == "dir" }

// query names a file and whose rights hold.
func (f *Files) query(path string) url.Values {
	q := url.Values{"path": {path}}
	if f.user != "" {
		q.Set("user", f.user)
	}
	return q
}

// maxRead bounds what Read keeps in memory, in bytes.
const maxRead = 256 << 20

// Read reads a whole file, of at most 256 MiB; a larger one is ErrTooLarge and is for
// ReadStream or Download.
func (f *Files) Read(ctx context.Context, path string) ([]byte, error) {
	file, err := f.ReadStream(ctx, path, ReadOptions{})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.Size > maxRead {
		return nil, &Error{Code: "too_large", Detail: fmt.Sprintf("%s has %d bytes: use ReadStream", path, file.Size)}
	}
	var b bytes.Buffer
	_, err = io.Copy(&b, file)
	return b.Bytes(), err
}

// ReadText is Read for a text: what is not UTF-8 is ErrInvalidArgument.
func (f *Files) ReadText(ctx context.Context, path string) (string, error) {
	b, err := f.Read(ctx, path)
	if err == nil && !utf8.Valid(b) {
		err = &Error{Code: "invalid_value", Field: "path", Allowed: "a text", Detail: path + " is not UTF-8: use Read"}
	}
	return string(b), err
}

// ReadOptions choose a part of a file.
type ReadOptions struct {
	Offset   int64 // where it begins
	Length   int64 // 0: to the end
	Progress Progress
}

// File is a file that is being read. It must be closed.
type File struct {
	Size int64 // of what comes, in bytes
	c    *Client
	body io.Closer
	from io.Reader
}

// ReadStream begins to read a file. An Offset at or behind its end is ErrOutOfRange.
func (f *Files) ReadStream(ctx context.Context, path string, o ReadOptions) (*File, error) {
	q := call{method: http.MethodGet, path: f.b.in("files"), query: f.query(path)}
	if o.Offset > 0 || o.Length > 0 {
		end := ""
		if o.Length > 0 {
			end = strconv.FormatInt(o.Offset+o.Length-1, 10)
		}
		q.header = http.Header{"Range": {fmt.Sprintf("bytes=%d-%s", o.Offset, end)}}
	}
	resp, err := f.b.c.do(ctx, q) //nolint:bodyclose // File.Close does
	if err != nil {
		return nil, err
	}
	size := resp.ContentLength
	return &File{size, f.b.c, resp.Body, o.Progress.reader(resp.Body, size)}, nil
}

// Read implements io.Reader. A file that was cut on its way is an error, never a shorter
// file.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) { // net/http knows how much there is to be
		err = f.c.cut(err)
	}
	return n, err
}

// Close lets go of the file.
func (f *File) Close() error { return f.body.Close() }

// Progress is told how much of a transfer is done, in bytes; total is -1 where it is not
// known.
type Progress func(done, total int64)

// Download reads a file into one of this machine, which is there as a whole or not at all.
func (f *Files) Download(ctx context.Context, path, local string, o ReadOptions) error {
	file, err := f.ReadStream(ctx, path, o)
	if err != nil {
		return err
	}
	defer file.Close()
	part := filepath.Join(filepath.Dir(local), ".agentbox-"+rand.Text()+".part")
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // as the user's new files are
	if err != nil {
		return fmt.Errorf("download a file: %w", err)
	}
	defer os.Remove(part) //nolint:errcheck // it has its name by then
	_, err = io.Copy(to, file)
	if closed := to.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(part, local)
	}
	return err
}

// WriteOptions are for what is written.
type WriteOptions struct {
	Mode   string // octal; empty: that of the file, 644 for a new one
	Owner  string // user, user:group or :group, for the file and directories that are made
	Append bool   // write at the end
	Size   int64  // of what WriteStream reads, if it is known
	// Progress is told how much was sent.
	Progress Progress
}

// Write writes a whole file, with directories that are missing. It takes the place of one
// that is there at once.
func (f *Files) Write(ctx context.Context, path string, data []byte, o WriteOptions) error {
	o.Size = int64(len(data))
	return f.WriteStream(ctx, path, bytes.NewReader(data), o)
}

// Upload writes a file of this machine.
func (f *Files) Upload(ctx context.Context, local, path string, o WriteOptions) error {
	from, err := os.Open(local)
	if err != nil {
		return fmt.Errorf("upload a file: %w", err)
	}
	defer from.Close()
	if info, err := from.Stat(); err == nil && info.Mode().IsRegular() {
		o.Size = info.Size()
	}
	return f.WriteStream(ctx, path, from, o)
}

// WriteStream writes what r has to a file, with directories that are missing. Without Append
// the file is there as a whole or, after an error, as it was before.
func (f *Files) WriteStream(ctx context.Context, path string, r io.Reader, o WriteOptions) error {
	q := f.query(path)
	for name, value := range map[string]string{"mode": o.Mode, "owner": o.Owner} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.Append {
		q.Set("append", "true")
	}
	body := o.Progress.reader(r, sizeOr(o.Size))
	return f.b.c.tell(ctx, call{method: http.MethodPut, path: f.b.in("files"), query: q, body: body, length: o.Size, header: ofBytes()})
}

func sizeOr(n int64) int64 {
	if n > 0 {
		return n
	}
	return -1
}

// reader tells the progress of what is read from r.
func (p Progress) reader(r io.Reader, total int64) io.Reader {
	if p == nil {
		return r
	}
	return &counted{r, p, 0, total}
}

type counted struct {
	r           io.Reader
	tell        Progress
	done, total int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 {
		c.done += int64(n)
		c.tell(c.done, c.total)
	}
	return n, err
}

// Stat describes a file, itself and not what a link leads to.
func (f *Files) Stat(ctx context.Context, path string) (FileInfo, error) {
	return ask[FileInfo](ctx, f.b.c, call{method: http.MethodGet, path: f.b.in("files", "stat"), query: f.query(path)})
}

// Exists reports whether there is a file, or a link that leads somewhere or nowhere.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	_, err := f.Stat(ctx, path)
	if errors.Is(err, ErrNotFound) && f.missing(err) {
		return false, nil
	}
	return err == nil, err
}

// missing: it is the file that is not there, and not the sandbox.
func (f *Files) missing(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == "not_found" && e.Detail != "Sandbox not found"
}

// List goes through a directory by name, depth levels deep (1: what is in it). A directory
// comes before what is in it.
func (f *Files) List(ctx context.Context, path string, depth int) iter.Seq2[FileInfo, error] {
	q := f.query(path)
	q.Set("depth", strconv.Itoa(max(depth, 1)))
	return pages[FileInfo](ctx, f.b.c, f.b.in("files", "list"), q)
}

// Remove removes a file or an empty directory.
func (f *Files) Remove(ctx context.Context, path string) error { return f.remove(ctx, path, false) }

// RemoveAll removes a file, or a directory with all that is in it.
func (f *Files) RemoveAll(ctx context.Context, path string) error { return f.remove(ctx, path, true) }

func (f *Files) remove(ctx context.Context, path string, recursive bool) error {
	q := f.query(path)
	if recursive {
		q.Set("recursive", "true")
	}
	return f.b.c.tell(ctx, call{method: http.MethodDelete, path: f.b.in("files"), query: q})
}
