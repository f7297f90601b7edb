package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

func (f *fileRoutes) registerChanges(tags []string) {
	op := func(name, summary string, status int) huma.Operation {
		return huma.Operation{
			OperationID: name + "-file", Method: http.MethodPost, Path: "/sandboxes/{id}/files/" + name, Summary: summary, Tags: tags, DefaultStatus: status,
		}
	}
	mkdir := op("mkdir", "Make a directory", http.StatusNoContent)
	mkdir.OperationID = "make-directory"
	route(f.API, mkdir, server.Route{}, f.mkdir)
	route(f.API, op("move", "Move a file or directory", http.StatusNoContent), server.Route{}, f.move)
	route(f.API, op("copy", "Copy a file or directory", 0), server.Route{}, f.copy)
	route(f.API, op("chmod", "Change permissions", 0), server.Route{}, f.chmod)
	route(f.API, op("chown", "Change the owner", 0), server.Route{}, f.chown)
	route(f.API, op("symlink", "Make a symbolic link", http.StatusNoContent), server.Route{}, f.symlink)
}

type mkdirInput struct {
	SandboxID
	Body struct {
		Path    string `json:"path" maxLength:"4095"`
		Mode    string `json:"mode,omitempty" maxLength:"5" doc:"Permissions, octal; default: 755."`
		Parents *Bool  `json:"parents,omitempty" doc:"Make those above, too, and accept a directory that is there; default: true."`
		Owner   string `json:"owner,omitempty" maxLength:"256" doc:"user, user:group or :group."`
		User    string `json:"user,omitempty" maxLength:"128" doc:"Whose rights hold; default: the sandbox's user."`
	}
}

func (f *fileRoutes) mkdir(ctx context.Context, c sandbox.Caller, in *mkdirInput) (*struct{}, error) {
	b := &in.Body
	mode, err := parseMode("mode", b.Mode)
	if err != nil {
		return nil, err
	}
	o := client.MkdirOptions{User: owning(b.User, b.Owner), Mode: mode, Parents: b.Parents == nil || b.Parents.Value, Owner: b.Owner}
	return nil, f.use(ctx, c, in.ID, writes("mkdir", b.Path), func(s *client.Session) error { return s.Mkdir(ctx, b.Path, o) })
}

type moveInput struct {
	SandboxID
	Body struct {
		From      string `json:"from" maxLength:"4095"`
		To        string `json:"to" maxLength:"4095" doc:"Its new name, not the directory that it goes to."`
		Overwrite Bool   `json:"overwrite,omitempty" doc:"Replace what is there."`
		User      string `json:"user,omitempty" maxLength:"128" doc:"Whose rights hold; default: the sandbox's user."`
	}
}

func (f *fileRoutes) move(ctx context.Context, c sandbox.Caller, in *moveInput) (*struct{}, error) {
	b := &in.Body
	return nil, f.use(ctx, c, in.ID, writes("move", b.From, b.To), func(s *client.Session) error {
		return s.Move(ctx, b.From, b.To, client.MoveOptions{User: b.User, Overwrite: b.Overwrite.Value})
	})
}

type copyInput struct {
	SandboxID
	Body struct {
		From      string `json:"from" maxLength:"4095"`
		To        string `json:"to" maxLength:"4095" doc:"The copy's own name."`
		Recursive Bool   `json:"recursive,omitempty" doc:"A directory with what is in it."`
		Overwrite Bool   `json:"overwrite,omitempty" doc:"Replace files and add to directories."`
		User      string `json:"user,omitempty" maxLength:"128" doc:"Whose rights hold; default: the sandbox's user."`
	}
}

// Copied is what a copy did.
type Copied struct {
	Entries int     `json:"entries" doc:"How many files, directories and links were copied."`
	Skipped LeftOut `json:"skipped"`
}

// LeftOut is what was left out of a tree.
type LeftOut struct {
	Total int           `json:"total"`
	First []LeftOutFile `json:"first" nullable:"false" doc:"The first hundred."`
}

// LeftOutFile is one entry that was left out.
type LeftOutFile struct {
	Path   string `json:"path"`
	Reason string `json:"reason" doc:"fifo, socket, device, denied (the user may not read it), size or count."`
}

func leftOut(s client.Skipped) LeftOut {
	l := LeftOut{Total: s.Total, First: []LeftOutFile{}}
	for _, f := range s.First {
		l.First = append(l.First, LeftOutFile{f.Path, string(f.Reason)})
	}
	return l
}

type copyOutput struct{ Body Copied }

func (f *fileRoutes) copy(ctx context.Context, c sandbox.Caller, in *copyInput) (out *copyOutput, err error) {
	b := &in.Body
	err = f.use(ctx, c, in.ID, writes("copy", b.From, b.To), func(s *client.Session) error {
		n, left, err := s.Copy(ctx, b.From, b.To, client.CopyOptions{User: b.User, Recursive: b.Recursive.Value, Overwrite: b.Overwrite.Value})
		out = &copyOutput{Copied{n, leftOut(left)}}
		return err
	})
	return out, err
}

type chmodInput struct {
	SandboxID
	Body struct {
		Path      string `json:"path" maxLength:"4095"`
		Mode      string `json:"mode" minLength:"1" maxLength:"5" doc:"Permissions, octal, with setuid, setgid and sticky."`
		Recursive Bool   `json:"recursive,omitempty" doc:"What is below, too."`
		User      string `json:"user,omitempty" maxLength:"128" doc:"Whose rights hold; default: the sandbox's user."`
	}
}

// Changed is how many files a call changed.
type Changed struct {
	Changed int `json:"changed"`
}

type changedOutput struct{ Body Changed }

func (f *fileRoutes) chmod(ctx context.Context, c sandbox.Caller, in *chmodInput) (out *changedOutput, err error) {
	b := &in.Body
	mode, err := parseMode("mode", b.Mode)
	if err != nil {
		return nil, err
	}
	err = f.use(ctx, c, in.ID, writes("chmod", b.Path), func(s *client.Session) error {
		n, err := s.Chmod(ctx, b.Path, mode, client.ChangeOptions{User: b.User, Recursive: b.Recursive.Value})
		out = &changedOutput{Changed{n}}
		return err
	})
	return out, err
}

type chownInput struct {
	SandboxID
	Body struct {
		Path      string `json:"path" maxLength:"4095"`
		Owner     string `json:"owner" minLength:"1" maxLength:"256" doc:"user, user:group or :group, names or numbers of the sandbox."`
		Recursive Bool   `json:"recursive,omitempty" doc:"What is below, too."`
		User      string `json:"user,omitempty" maxLength:"128" doc:"Whose rights hold; default: root, who alone may give files away."`
	}
}

func (f *fileRoutes) chown(ctx context.Context, c sandbox.Caller, in *chownInput) (out *changedOutput, err error) {
	b := &in.Body
	err = f.use(ctx, c, in.ID, writes("chown", b.Path), func(s *client.Session) error {
		n, err := s.Chown(ctx, b.Path, b.Owner, client.ChangeOptions{User: owning(b.User, b.Owner), Recursive: b.Recursive.Value})
		out = &changedOutput{Changed{n}}
		return err
	})
	return out, err
}

type symlinkInput struct {
	SandboxID
	Body struct {
		Path      string `json:"path" maxLength:"4095" doc:"The link."`
		Target    string `json:"target" minLength:"1" maxLength:"4095" doc:"Where it leads; it need not be there."`
		Overwrite Bool   `json:"overwrite,omitempty" doc:"Replace a file or link that is there."`
		User      string `json:"user,omitempty" maxLength:"128" doc:"Whose rights hold; default: the sandbox's user."`
	}
}

func (f *fileRoutes) symlink(ctx context.Context, c sandbox.Caller, in *symlinkInput) (*struct{}, error) {
	b := &in.Body
	return nil, f.use(ctx, c, in.ID, writes("symlink", b.Path, b.Target), func(s *client.Session) error {
		return s.Symlink(ctx, b.Target, b.Path, client.SymlinkOptions{User: b.User, Overwrite: b.Overwrite.Value})
	})
}
