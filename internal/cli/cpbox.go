package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"agentbox/internal/control"
)

// boxFiles are the files of a running sandbox, as cp needs them.
type boxFiles interface {
	Stat(ctx context.Context, path string) (control.Stat, error)
	GetTree(ctx context.Context, path string) (io.ReadCloser, error)
	PutTree(ctx context.Context, dir string, r io.Reader) error
	Close()
}

// findBox finds a sandbox of a running agentbox run or, if the command says which
// server or there is none, of the server.
func (a *App) findBox(ctx context.Context, cmd *cobra.Command, name string) (boxFiles, error) {
	var notLocal error
	if a.Local != nil && !namesServer(cmd) {
		_, dataDir, err := a.local(cmd)
		if err != nil {
			return nil, err
		}
		box, err := control.Find(ctx, dataDir, name)
		if err == nil {
			if err := a.onlyHere(ctx, cmd, name, box.Info); err != nil {
				box.Close()
				return nil, err
			}
			return box, nil
		}
		if !errdefs.IsNotFound(err) {
			return nil, err
		}
		notLocal = err
	}
	r, err := a.remote(cmd)
	if err != nil {
		return nil, err
	}
	err = r.call(ctx, http.MethodGet, inSandbox(name), nil, nil)
	var away *unreachableError
	switch {
	case err == nil:
		return &servedBox{r, name}, nil
	case notLocal != nil && errors.As(err, &away):
		return nil, fmt.Errorf("%w; nor is there a server at %s", notLocal, r.where)
	default:
		return nil, err
	}
}

// askTime is how long cp asks the server whether it has a name, too.
const askTime = 3 * time.Second

// onlyHere refuses a name of a sandbox of agentbox run that is also one's of the
// server. A server that does not answer has none.
func (a *App) onlyHere(ctx context.Context, cmd *cobra.Command, name string, local control.Info) error {
	if name != local.Name {
		return nil // an id
	}
	r, err := a.remote(cmd)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var served struct {
		ID string `json:"id"`
	}
	if r.call(ctx, http.MethodGet, inSandbox(name), nil, &served) != nil {
		return nil
	}
	return fmt.Errorf("%q is a sandbox of agentbox run (%s) and one of the server (%s): give the id instead of the name", name, local.ID, served.ID)
}

// namesServer reports whether the command's flags or the variable name a server.
func namesServer(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("url") || cmd.Flags().Changed("profile") || os.Getenv(urlVariable) != ""
}

// servedBox is a sandbox of a server.
type servedBox struct {
	r  *remote
	id string
}

func (b *servedBox) path(p string, route ...string) string {
	return inSandbox(b.id, append([]string{"files"}, route...)...) + "?" + url.Values{"path": {p}}.Encode()
}

// Stat tells what there is at a path, behind links.
func (b *servedBox) Stat(ctx context.Context, path string) (control.Stat, error) {
	var f fileRow
	err := b.r.call(ctx, http.MethodGet, b.path(path, "stat")+"&follow=1", nil, &f)
	var refused *apiError
	if errors.As(err, &refused) && refused.Code == "not_found" {
		return control.Stat{}, nil
	}
	return control.Stat{Exists: err == nil, Dir: f.Type == "dir"}, err
}

// GetTree reads a file or a tree as a tar stream.
func (b *servedBox) GetTree(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := b.r.do(ctx, request{method: http.MethodGet, path: b.path(path, "archive"), header: http.Header{"Accept": {tarType}}}) //nolint:bodyclose // servedTree.Close does
	if err != nil {
		return nil, err
	}
	return &servedTree{resp}, nil
}

// PutTree unpacks a tar stream into a directory.
func (b *servedBox) PutTree(ctx context.Context, dir string, r io.Reader) error {
	q := request{method: http.MethodPut, path: b.path(dir, "archive"), body: r, header: http.Header{"Content-Type": {tarType}}}
	return b.r.callWith(ctx, q, nil)
}

const tarType = "application/x-tar"

// Close does nothing: connections end with the program.
func (*servedBox) Close() {}

// servedTree is an archive, and the number of what was left out of it behind it.
type servedTree struct{ resp *http.Response }

func (t *servedTree) Read(p []byte) (int, error) { return t.resp.Body.Read(p) }

func (t *servedTree) Close() error { return t.resp.Body.Close() }

// leftOut is how many entries the server left out, when all was read.
func (t *servedTree) leftOut() string { return t.resp.Trailer.Get("X-Skipped") }
