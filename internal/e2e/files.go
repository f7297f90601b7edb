package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"agentbox/internal/guest/client"
)

// Files are the calls about files that tests make at both doors.
type Files interface {
	ReadFile(ctx context.Context, name string, o client.ReadOptions) (*client.Content, error)
	WriteFile(ctx context.Context, name string, r io.Reader, o client.WriteOptions) error
	Stat(ctx context.Context, name string, o client.StatOptions) (client.FileInfo, error)
	List(ctx context.Context, name string, o client.ListOptions) (entries []client.FileInfo, next string, err error)
	Glob(ctx context.Context, dir string, patterns []string, o client.GlobOptions) (*client.GlobResult, error)
	Search(ctx context.Context, name, pattern string, o client.SearchOptions) (*client.SearchResult, error)
	Copy(ctx context.Context, from, to string, o client.CopyOptions) (entries int, left client.Skipped, err error)
	PutArchive(ctx context.Context, name string, r io.Reader, o client.UnpackOptions) error
	// Archive is a tree as an archive. skipped counts what was left out, when all
	// has been read.
	Archive(ctx context.Context, name string, format client.ArchiveFormat) (r io.ReadCloser, skipped func() int, err error)
}

// Files of the sandbox.
func (b *Box) Files() Files {
	if b.remote != nil {
		return b.remote
	}
	return engineFiles{b.Session()}
}

type engineFiles struct{ *client.Session }

func (f engineFiles) Archive(ctx context.Context, name string, format client.ArchiveFormat) (io.ReadCloser, func() int, error) {
	a, err := f.GetArchive(ctx, name, client.ArchiveOptions{Format: format})
	if err != nil {
		return nil, nil, err
	}
	return a, func() int { return a.Skipped().Total }, nil
}

// query is a path of a file call.
func (r *restBox) query(call, name, user string, more ...string) string {
	q := url.Values{"path": {name}}
	if user != "" {
		q.Set("user", user)
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			q.Add(more[i], more[i+1])
		}
	}
	return r.at("/files" + call + "?" + q.Encode())
}

func (r *restBox) ReadFile(ctx context.Context, name string, o client.ReadOptions) (*client.Content, error) {
	var headers []string
	switch {
	case o.Suffix > 0:
		headers = []string{"Range", fmt.Sprintf("bytes=-%d", o.Suffix)}
	case o.Length > 0:
		headers = []string{"Range", fmt.Sprintf("bytes=%d-%d", o.Offset, o.Offset+o.Length-1)}
	case o.Offset > 0:
		headers = []string{"Range", fmt.Sprintf("bytes=%d-", o.Offset)}
	}
	resp, err := r.d.Admin().Request(ctx, "GET", r.query("", name, o.User), nil, headers...) //nolint:bodyclose // the caller closes the content
	if err != nil {
		return nil, err
	}
	return &client.Content{ReadCloser: resp.Body}, nil
}

// WriteFile is atomic unless it appends, and makes parents.
func (r *restBox) WriteFile(ctx context.Context, name string, body io.Reader, o client.WriteOptions) error {
	mode, add := "", ""
	if o.Mode != 0 {
		mode = strconv.FormatUint(uint64(o.Mode.Perm()), 8)
	}
	if o.Append {
		add = "1"
	}
	return r.send(ctx, "PUT", r.query("", name, o.User, "mode", mode, "append", add, "owner", o.Owner), body, "application/octet-stream")
}

func (r *restBox) send(ctx context.Context, method, path string, body io.Reader, contentType string) error {
	resp, err := r.d.Admin().Request(ctx, method, path, body, "Content-Type", contentType)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("%s %s: %d", method, path, resp.StatusCode)
	}
	return nil
}

// shownFile is a file in the form of the REST API.
type shownFile struct {
	Path, Name, Type, Target, Mode, User, Group string
	Exact                                       []byte `json:"path_base64"`
	Size                                        int64
	UID, GID                                    uint32
	Mtime                                       time.Time
	Nlink                                       uint32
}

func (f *shownFile) info() (i client.FileInfo, err error) {
	i = client.FileInfo{
		Path: f.Path, Name: f.Name, Target: f.Target, UID: f.UID, GID: f.GID, User: f.User, Group: f.Group, Size: f.Size, Mtime: f.Mtime, Nlink: f.Nlink,
	}
	if f.Exact != nil {
		i.Path = string(f.Exact)
	}
	bits, err := strconv.ParseUint(f.Mode, 8, 32)
	kind, ok := map[string]fs.FileMode{
		"file": 0, "dir": fs.ModeDir, "symlink": fs.ModeSymlink, "fifo": fs.ModeNamedPipe, "socket": fs.ModeSocket, "device": fs.ModeDevice,
	}[f.Type]
	if err != nil || !ok {
		return i, fmt.Errorf("mode %q, type %q", f.Mode, f.Type)
	}
	i.Mode = kind | fs.FileMode(bits&0o777)
	return i, nil
}

type shownFiles struct {
	Items []shownFile
	Next  *string `json:"next_cursor"`
}

func (l *shownFiles) infos() (all []client.FileInfo, err error) {
	if l.Items == nil {
		return nil, errors.New("items is null")
	}
	for i := range l.Items {
		info, err := l.Items[i].info()
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

func (r *restBox) Stat(ctx context.Context, name string, o client.StatOptions) (client.FileInfo, error) {
	var f shownFile
	if err := r.d.ask(ctx, "GET", r.query("/stat", name, o.User, "follow", strconv.FormatBool(o.Follow)), "", &f); err != nil {
		return client.FileInfo{}, err
	}
	return f.info()
}

func (r *restBox) List(ctx context.Context, name string, o client.ListOptions) ([]client.FileInfo, string, error) {
	var l shownFiles
	path := r.query("/list", name, o.User, "depth", strconv.Itoa(max(o.Depth, 1)), "cursor", o.Cursor)
	if err := r.d.ask(ctx, "GET", path, "", &l); err != nil {
		return nil, "", err
	}
	next := ""
	if l.Next != nil {
		next = *l.Next
	}
	all, err := l.infos()
	return all, next, err
}

func (r *restBox) Glob(ctx context.Context, dir string, patterns []string, o client.GlobOptions) (*client.GlobResult, error) {
	path := r.query("/glob", dir, o.User)
	for _, p := range patterns {
		path += "&pattern=" + url.QueryEscape(p)
	}
	var l shownFiles
	if err := r.d.ask(ctx, "GET", path, "", &l); err != nil {
		return nil, err
	}
	all, err := l.infos()
	return &client.GlobResult{Entries: all}, err
}

func (r *restBox) Search(ctx context.Context, name, pattern string, o client.SearchOptions) (*client.SearchResult, error) {
	var found struct {
		Items []struct {
			Path string
			Line int
			Text string
		}
	}
	if err := r.d.ask(ctx, "GET", r.query("/search", name, o.User, "pattern", pattern), "", &found); err != nil {
		return nil, err
	}
	res := new(client.SearchResult)
	for _, l := range found.Items {
		res.Matches = append(res.Matches, client.Match{Path: l.Path, Line: l.Line, Text: l.Text})
	}
	return res, nil
}

func (r *restBox) Copy(ctx context.Context, from, to string, o client.CopyOptions) (int, client.Skipped, error) {
	body, err := json.Marshal(map[string]any{"from": from, "to": to, "recursive": o.Recursive, "overwrite": o.Overwrite})
	if err != nil {
		return 0, client.Skipped{}, err
	}
	var done struct {
		Entries int
		Skipped struct{ Total int }
	}
	err = r.d.ask(ctx, "POST", r.at("/files/copy"), string(body), &done)
	return done.Entries, client.Skipped{Total: done.Skipped.Total}, err
}

// archiveTypes are the formats that REST has in both directions.
var archiveTypes = map[client.ArchiveFormat]string{"": "application/x-tar", client.Tar: "application/x-tar", client.TarGz: "application/gzip"}

func (r *restBox) PutArchive(ctx context.Context, name string, body io.Reader, o client.UnpackOptions) error {
	return r.send(ctx, "PUT", r.query("/archive", name, o.User), body, archiveTypes[o.Format])
}

func (r *restBox) Archive(ctx context.Context, name string, format client.ArchiveFormat) (io.ReadCloser, func() int, error) {
	resp, err := r.d.Admin().Request(ctx, "GET", r.query("/archive", name, ""), nil, "Accept", archiveTypes[format], "Accept-Encoding", "identity") //nolint:bodyclose // the caller closes the archive
	if err != nil {
		return nil, nil, err
	}
	return resp.Body, func() int {
		n, err := strconv.Atoi(resp.Trailer.Get("X-Skipped"))
		if err != nil {
			return -1
		}
		return n
	}, nil
}
