package agentbox

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Secrets are what sandboxes use and never see: a sandbox has a placeholder, in whose place
// the server's proxy puts the value on the way to the named hosts, over TLS.
type Secrets struct{ c *Client }

// Secret is one of them, without its value.
type Secret struct {
	Name      string    `json:"name"`
	Hosts     []string  `json:"hosts"`
	Header    string    `json:"header"`
	Format    string    `json:"format"` // empty: the value takes the place of the placeholder
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"` // when it got its value
}

// NewSecret is a secret that is to be kept.
type NewSecret struct {
	Name   string   `json:"name"` // also of the variable that sandboxes have
	Value  string   `json:"value"`
	Hosts  []string `json:"hosts"`            // that may have it
	Header string   `json:"header,omitempty"` // empty: Authorization
	Format string   `json:"format,omitempty"` // such as Bearer {}
}

// Set keeps a secret, or gives it another value.
func (s *Secrets) Set(ctx context.Context, n NewSecret) (Secret, error) {
	return ask[Secret](ctx, s.c, call{method: http.MethodPost, path: "/secrets", in: n, repeatable: true})
}

// List goes through your secrets, by name.
func (s *Secrets) List(ctx context.Context) iter.Seq2[Secret, error] {
	return pages[Secret](ctx, s.c, "/secrets", nil)
}

// Remove removes a secret. From the next request on it is put in nowhere.
func (s *Secrets) Remove(ctx context.Context, name string) error {
	return s.c.tell(ctx, call{method: http.MethodDelete, path: "/secrets/" + url.PathEscape(name)})
}

// Images are what sandboxes are made of.
type Images struct{ c *Client }

// Image is one of them.
type Image struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size"` // bytes
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source"`  // recipe, tar, archive or registry
	User      string    `json:"user"`    // who commands run as; empty: 1000
	Workdir   string    `json:"workdir"` // where commands run; empty: /
}

// imagePath: names have slashes.
func imagePath(ref string) string {
	return "/images/" + strings.ReplaceAll(url.PathEscape(ref), "%2F", "/")
}

// List goes through the images, by name.
func (i *Images) List(ctx context.Context) iter.Seq2[Image, error] {
	return pages[Image](ctx, i.c, "/images", nil)
}

// Get looks at an image.
func (i *Images) Get(ctx context.Context, ref string) (Image, error) {
	return ask[Image](ctx, i.c, call{method: http.MethodGet, path: imagePath(ref)})
}

// Pull fetches an image from its registry, as an admin. A download that was cut goes on with
// the next call. platform is empty for the server's.
func (i *Images) Pull(ctx context.Context, ref, platform string) (Image, error) {
	in := struct {
		Reference string `json:"reference"`
		Platform  string `json:"platform,omitempty"`
	}{ref, platform}
	return ask[Image](ctx, i.c, call{method: http.MethodPost, path: "/images/pull", in: in}.once(""))
}

// Remove removes an image that no sandbox uses, as an admin.
func (i *Images) Remove(ctx context.Context, ref string) error {
	return i.c.tell(ctx, call{method: http.MethodDelete, path: imagePath(ref)})
}

// Keys are the server's API keys, for admins.
type Keys struct{ c *Client }

// Key is one of them.
type Key struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner"` // whose things it reaches
	Name      string    `json:"name"`
	Admin     bool      `json:"admin"`
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at"` // zero: it is good
	// Secret is the key itself, which only Create shows.
	Secret string `json:"key"`
}

// NewKey is a key that is to be made.
type NewKey struct {
	Owner string `json:"owner,omitempty"` // empty: default
	Name  string `json:"name,omitempty"`
	Admin bool   `json:"admin,omitempty"`
}

// Create makes a key. It is sent once: a key whose answer was lost is to be revoked.
func (k *Keys) Create(ctx context.Context, n NewKey) (Key, error) {
	return ask[Key](ctx, k.c, call{method: http.MethodPost, path: "/keys", in: n})
}

// List goes through the keys, oldest first.
func (k *Keys) List(ctx context.Context) iter.Seq2[Key, error] {
	return pages[Key](ctx, k.c, "/keys", nil)
}

// Revoke ends a key and all that is open by it.
func (k *Keys) Revoke(ctx context.Context, id string) error {
	return k.c.tell(ctx, call{method: http.MethodDelete, path: "/keys/" + url.PathEscape(id)})
}

// AuditOptions choose records. What is empty chooses nothing.
type AuditOptions struct {
	Sandbox string // by its id
	Action  string // such as create, exec, file_read
	Since   time.Time
	// AllOwners, for admins: the records of all owners, and those of nobody.
	AllOwners bool
}

// AuditRecord is one action that was done or refused.
type AuditRecord struct {
	Time      time.Time         `json:"time"`
	Action    string            `json:"action"`
	Owner     string            `json:"owner"`
	KeyID     string            `json:"key_id"`
	Sandbox   string            `json:"sandbox"`
	Details   map[string]string `json:"details"`
	RequestID string            `json:"request_id"`
	Result    string            `json:"result"` // ok, or the code of the error
}

// Audit goes through who did what, the newest first.
func (c *Client) Audit(ctx context.Context, o AuditOptions) iter.Seq2[AuditRecord, error] {
	q := url.Values{}
	for name, value := range map[string]string{"sandbox": o.Sandbox, "action": o.Action} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !o.Since.IsZero() {
		q.Set("since", o.Since.UTC().Format(time.RFC3339Nano))
	}
	if o.AllOwners {
		q.Set("all", "true")
	}
	return pages[AuditRecord](ctx, c, "/audit", q)
}
