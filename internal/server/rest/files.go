package rest

import (
	"context"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/guest/client"
	"agentbox/internal/manager"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Files are what the routes about files need; manager.Manager has it.
type Files interface {
	Acquire(ctx context.Context, c sandbox.Caller, id string) (*manager.Lease, error)
}

// fileRoutes are the routes about files. Paths mean what they mean in the
// sandbox: the agent there follows them, nothing here does.
type fileRoutes struct {
	*API
	m Files
}

// registerFiles adds the routes about files.
func registerFiles(a *API, m Files) {
	f := &fileRoutes{a, m}
	tags := []string{"Files"}
	content := server.Route{Stream: true}
	f.registerContent(tags, content)
	f.registerTree(tags)
	f.registerChanges(tags)
	f.registerFind(tags)
	f.registerArchive(tags, content)
	f.registerTransfer(tags, content)
}

// FilePath is the part of a query that names a file.
type FilePath struct {
	SandboxID
	Path string `query:"path" required:"true" maxLength:"4095" doc:"In the sandbox; a relative one begins at the sandbox's directory."`
	AsUser
}

// DirPath is the part of a query that names a directory.
type DirPath struct {
	SandboxID
	Path string `query:"path" maxLength:"4095" default:"." doc:"In the sandbox; a relative one begins at the sandbox's directory."`
	AsUser
}

// AsUser is whose rights hold.
type AsUser struct {
	User string `query:"user" maxLength:"128" doc:"Whose rights hold; default: the sandbox's user."`
}

// use runs do with the sandbox's agent and records what was done.
func (f *fileRoutes) use(ctx context.Context, c sandbox.Caller, id string, a access, do func(s *client.Session) error) error {
	l, err := f.open(ctx, c, id, a)
	if err != nil {
		return err
	}
	defer l.Release()
	defer server.EndBody(ctx, l.Session().Done())()
	err = onPath(server.WhyOfBody(ctx, do(l.Session())))
	f.note(ctx, c, l, a, err)
	return err
}

// access is what is done with which file, for the audit log.
type access struct {
	action audit.Action
	op     string
	paths  []string
}

func reads(op string, paths ...string) access  { return access{audit.FileRead, op, paths} }
func writes(op string, paths ...string) access { return access{audit.FileWrite, op, paths} }

// open begins to use the sandbox; a refusal is recorded.
func (f *fileRoutes) open(ctx context.Context, c sandbox.Caller, id string, a access) (*manager.Lease, error) {
	for _, p := range a.paths {
		if p == "" || strings.Contains(p, "\x00") {
			return nil, &sandbox.InvalidError{Field: "path", Value: p, Allowed: "a path without NUL"}
		}
	}
	l, err := f.m.Acquire(ctx, c, id)
	if err != nil {
		f.recordOn(ctx, c, a.action, f.uid(ctx, c, id, sandbox.Sandbox{}), err, a.details())
		return nil, err
	}
	return l, nil
}

func (f *fileRoutes) note(ctx context.Context, c sandbox.Caller, l *manager.Lease, a access, err error) {
	f.recordOn(ctx, c, a.action, l.Sandbox().UID, err, a.details())
}

func (a access) details() map[string]string {
	d := map[string]string{"op": a.op}
	for i, p := range a.paths {
		d[[]string{"path", "to"}[i]] = p
	}
	return d
}

// parseMode reads permissions in octal digits; "" is 0.
func parseMode(field, s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o7777 {
		return 0, &sandbox.InvalidError{Field: field, Value: s, Allowed: "octal digits such as 644 or 0755"}
	}
	mode := fs.FileMode(n & 0o777)
	for bit, flag := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			mode |= flag
		}
	}
	return mode, nil
}

// owning is the user that may give files away: only root may.
func owning(user, owner string) string {
	if user == "" && owner != "" {
		return "root"
	}
	return user
}

func (f *fileRoutes) registerContent(tags []string, content server.Route) {
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		op := huma.Operation{
			OperationID: "read-file", Method: method, Path: "/sandboxes/{id}/files", Summary: "Read a file", Tags: tags,
			Description: "A Range of one part gives that part.",
			Responses:   answers("200", "The file.", typeBytes),
		}
		if method == http.MethodHead {
			op.OperationID, op.Summary = "head-file", "Look at a file that could be read"
		} else {
			op.Responses["206"] = answers("206", "The part.", typeBytes)["206"]
		}
		routeReply(f.API, op, content, f.read)
	}
	route(f.API, huma.Operation{
		OperationID: "write-file", Method: http.MethodPut, Path: "/sandboxes/{id}/files", Summary: "Write a file", Tags: tags,
		Description: "Missing directories are made. The file changes when all has come, or not at all, but for append.",
		RequestBody: takes("The content.", typeBytes), DefaultStatus: http.StatusNoContent,
	}, content, f.write)
	route(f.API, huma.Operation{
		OperationID: "remove-file", Method: http.MethodDelete, Path: "/sandboxes/{id}/files", Summary: "Remove a file or directory", Tags: tags,
		DefaultStatus: http.StatusNoContent,
	}, server.Route{}, f.remove)
}

type writeInput struct {
	FilePath
	Content
	Mode   string `query:"mode" maxLength:"5" doc:"Permissions, octal; default: those of the file, 644 for a new one."`
	Append Bool   `query:"append" doc:"Write at the end."`
	Owner  string `query:"owner" maxLength:"256" doc:"user, user:group or :group, for the file and directories that are made."`
}

func (f *fileRoutes) write(ctx context.Context, c sandbox.Caller, in *writeInput) (*struct{}, error) {
	mode, err := parseMode("mode", in.Mode)
	if err != nil {
		return nil, err
	}
	o := client.WriteOptions{
		User: owning(in.User, in.Owner), Mode: mode, Append: in.Append.Value, Atomic: !in.Append.Value, Parents: true, Owner: in.Owner,
	}
	return nil, f.use(ctx, c, in.ID, writes("write", in.Path), func(s *client.Session) error {
		return s.WriteFile(ctx, in.Path, in.request.Body, o)
	})
}

type removeInput struct {
	FilePath
	Recursive Bool `query:"recursive" doc:"Directories with what is in them."`
}

func (f *fileRoutes) remove(ctx context.Context, c sandbox.Caller, in *removeInput) (*struct{}, error) {
	return nil, f.use(ctx, c, in.ID, writes("remove", in.Path), func(s *client.Session) error {
		return s.Remove(ctx, in.Path, client.RemoveOptions{User: in.User, Recursive: in.Recursive.Value})
	})
}
