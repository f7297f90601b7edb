package agentbox

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Packages installs packages in a sandbox, by names and versions only: options, URLs and
// paths are refused. The hosts that it needs must be allowed.
type Packages struct{ b *Box }

// Pip installs packages of Python, such as requests==2.32.3.
func (p *Packages) Pip(ctx context.Context, packages ...string) (*Result, error) {
	return p.install(ctx, "pip", packages)
}

// Npm installs packages of Node, such as left-pad@1.3.0.
func (p *Packages) Npm(ctx context.Context, packages ...string) (*Result, error) {
	return p.install(ctx, "npm", packages)
}

// Apt installs packages of Debian.
func (p *Packages) Apt(ctx context.Context, packages ...string) (*Result, error) {
	return p.install(ctx, "apt", packages)
}

func (p *Packages) install(ctx context.Context, manager string, packages []string) (*Result, error) {
	in := map[string][]string{"packages": packages}
	return ask[*Result](ctx, p.b.c, call{method: http.MethodPost, path: p.b.in("packages", manager), query: exact, in: in})
}

// Sessions are shells that stay: directory, variables and functions last from one command
// to the next. A command names one in Command.Session.
type Sessions struct{ b *Box }

// Session is one of them.
type Session struct {
	Name      string    `json:"name"`
	ExecID    string    `json:"exec_id"` // the command that its shell is
	StartedAt time.Time `json:"started_at"`
}

// Create begins a session.
func (s *Sessions) Create(ctx context.Context, name string) (Session, error) {
	q := call{method: http.MethodPost, path: s.b.in("sessions"), in: map[string]string{"name": name}}
	return ask[Session](ctx, s.b.c, q.once(""))
}

// List goes through the sessions, oldest first.
func (s *Sessions) List(ctx context.Context) iter.Seq2[Session, error] {
	return pages[Session](ctx, s.b.c, s.b.in("sessions"), nil)
}

// Remove ends a session with all that runs in it.
func (s *Sessions) Remove(ctx context.Context, name string) error {
	return s.b.c.tell(ctx, call{method: http.MethodDelete, path: s.b.in("sessions", name)})
}
