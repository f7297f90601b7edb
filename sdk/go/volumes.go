package agentbox

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Volumes are files that outlive sandboxes.
type Volumes struct{ c *Client }

// Volume is one of them.
type Volume struct {
	Name        string    `json:"name"`
	Size        int64     `json:"size"`         // bytes that it may take
	Kind        string    `json:"kind"`         // image, quota or directory
	NotEnforced []string  `json:"not_enforced"` // disk, if the server can't hold it to its size
	UsedBy      []string  `json:"used_by"`      // ids of sandboxes that have it
	Used        int64     `json:"used"`         // bytes on the server's disk; lists leave it out
	CreatedAt   time.Time `json:"created_at"`
}

func volumePath(name string) string { return "/volumes/" + url.PathEscape(name) }

// Create makes a volume of a size in bytes, 0: the server's default.
func (v *Volumes) Create(ctx context.Context, name string, size int64) (Volume, error) {
	in := struct {
		Name string `json:"name"`
		Size int64  `json:"size,omitempty"`
	}{name, size}
	return ask[Volume](ctx, v.c, call{method: http.MethodPost, path: "/volumes", in: in}.once(""))
}

// Get looks at a volume.
func (v *Volumes) Get(ctx context.Context, name string) (Volume, error) {
	return ask[Volume](ctx, v.c, call{method: http.MethodGet, path: volumePath(name)})
}

// List goes through your volumes, by name.
func (v *Volumes) List(ctx context.Context) iter.Seq2[Volume, error] {
	return pages[Volume](ctx, v.c, "/volumes", nil)
}

// Remove removes a volume with all that is in it. One that a sandbox has is ErrConflict.
func (v *Volumes) Remove(ctx context.Context, name string) error {
	return v.c.tell(ctx, call{method: http.MethodDelete, path: volumePath(name)})
}

// ReadArchive writes a volume to w as a tar; sandboxes may use it meanwhile. skipped are the
// entries that were left out.
func (v *Volumes) ReadArchive(ctx context.Context, name string, w io.Writer, o ArchiveOptions) (skipped int, err error) {
	return v.c.readArchive(ctx, volumePath(name)+"/archive", nil, w, &o)
}

// WriteArchive unpacks a tar into a volume that no sandbox has meanwhile. What came before an
// error stays.
func (v *Volumes) WriteArchive(ctx context.Context, name string, r io.Reader, o ArchiveOptions) error {
	return v.c.writeArchive(ctx, volumePath(name)+"/archive", nil, r, &o)
}
