package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest"
	"agentbox/internal/ids"
	"agentbox/internal/owner"
)

// Remote is a sandbox of another process.
type Remote struct {
	Info Info
	http *http.Client
}

// infoTimeout is how long another process may take to say what it runs. One that
// is stopped does not answer.
const infoTimeout = 3 * time.Second

// maxAnswer bounds an answer that is no tree.
const maxAnswer = 1 << 20

// List finds the running sandboxes of a data directory, oldest first.
func List(ctx context.Context, dataDir string) ([]*Remote, error) {
	live, err := owner.Live(dataDir)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var all []*Remote
	for _, id := range live {
		r := newRemote(owner.Dir(dataDir, id))
		// A process without a socket has no sandbox, not yet or no more.
		if err := r.describe(ctx); err == nil {
			all = append(all, r)
		} else {
			r.Close()
		}
	}
	slices.SortFunc(all, func(a, b *Remote) int { return a.Info.Created.Compare(b.Info.Created) })
	return all, ctx.Err()
}

// Find finds the running sandbox that has the name, the id, or the only id that
// begins with ref. NotFound and InvalidArgument say what there is.
func Find(ctx context.Context, dataDir, ref string) (*Remote, error) {
	all, err := List(ctx, dataDir)
	if err != nil {
		return nil, err
	}
	found := pick(all, ref)
	for _, r := range all {
		if len(found) != 1 || r != found[0] {
			r.Close()
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%q is %d sandboxes: %s; give more of the id: %w", ref, len(found), names(found), errdefs.ErrInvalidArgument)
	case len(all) == 0:
		return nil, fmt.Errorf("no sandbox %q: none is running; start one with agentbox run --name NAME: %w", ref, errdefs.ErrNotFound)
	}
	return nil, fmt.Errorf("no sandbox %q is running; there are %s: %w", ref, names(all), errdefs.ErrNotFound)
}

// pick prefers a whole name or id to the beginning of an id.
func pick(all []*Remote, ref string) (found []*Remote) {
	for _, match := range []func(Info) bool{
		func(i Info) bool { return i.Name == ref || i.ID == ref },
		func(i Info) bool { return ref != "" && strings.HasPrefix(i.ID, ref) },
	} {
		for _, r := range all {
			if match(r.Info) {
				found = append(found, r)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

func names(all []*Remote) string {
	var list []string
	for _, r := range all {
		list = append(list, cmp.Or(r.Info.Name, ids.Short(r.Info.ID)))
	}
	return strings.Join(list, ", ")
}

func newRemote(dir string) *Remote {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return inDir(dir, func(path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		})
	}
	return &Remote{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true}}}
}

func (r *Remote) describe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	return r.get(ctx, "/info", nil, &r.Info)
}

// Close lets go of the connection.
func (r *Remote) Close() { r.http.CloseIdleConnections() }

// Stat tells what there is at a path of the sandbox.
func (r *Remote) Stat(ctx context.Context, path string) (Stat, error) {
	var s Stat
	err := r.get(ctx, "/stat", url.Values{"path": {path}}, &s)
	return s, err
}

// GetTree reads a file or a tree as a tar stream.
func (r *Remote) GetTree(ctx context.Context, path string) (io.ReadCloser, error) {
	a, err := r.do(ctx, http.MethodGet, "/tree", url.Values{"path": {path}}, nil) //nolint:bodyclose // tree.Close does
	if err != nil {
		return nil, err
	}
	return &tree{a}, nil
}

// PutTree unpacks a tar stream into a directory of the sandbox.
func (r *Remote) PutTree(ctx context.Context, dir string, body io.Reader) error {
	a, err := r.do(ctx, http.MethodPut, "/tree", url.Values{"path": {dir}}, body)
	if err != nil {
		return err
	}
	return a.Body.Close()
}

// tree is a body whose trailer tells how it ended.
type tree struct{ a *http.Response }

func (t *tree) Read(p []byte) (int, error) {
	n, err := t.a.Body.Read(p)
	if errors.Is(err, io.EOF) {
		if told := guest.DecodeTrailer(t.a.Trailer.Get(guest.ErrorTrailer)); told != nil {
			err = told
		}
	}
	return n, err
}

func (t *tree) Close() error { return t.a.Body.Close() }

func (r *Remote) get(ctx context.Context, path string, q url.Values, v any) error {
	a, err := r.do(ctx, http.MethodGet, path, q, nil)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	if err := json.NewDecoder(io.LimitReader(a.Body, maxAnswer)).Decode(v); err != nil {
		return fmt.Errorf("read the answer of the other agentbox: %w", err)
	}
	return nil
}

func (r *Remote) do(ctx context.Context, method, path string, q url.Values, body io.Reader) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "agentbox", Path: path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("ask the other agentbox: %w", err)
	}
	a, err := r.http.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // the URL says nothing to anybody
		}
		return nil, fmt.Errorf("ask the agentbox that runs the sandbox: %w", err)
	}
	if a.StatusCode/100 == 2 {
		return a, nil
	}
	defer a.Body.Close()
	m := new(guestv1.Error)
	b, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil || proto.Unmarshal(b, m) != nil || m.GetCode() == "" {
		return nil, fmt.Errorf("the other agentbox answered with status %d: %w", a.StatusCode, errdefs.ErrInternal)
	}
	return nil, guest.DecodeError(m)
}
