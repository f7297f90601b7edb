package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/failpoint"
	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

func (f *fileRoutes) registerTransfer(tags []string, content server.Route) {
	form := takes("The form, with the file in its field file.", "multipart/form-data")
	route(f.API, huma.Operation{
		OperationID: "upload-file", Method: http.MethodPost, Path: "/sandboxes/{id}/files/upload", Summary: "Upload a file to the workspace", Tags: tags,
		RequestBody: form, DefaultStatus: http.StatusNoContent,
	}, content, f.upload)
	// Only now: huma would read and check a body whose fields it knows.
	form.Content["multipart/form-data"].Schema = &huma.Schema{
		Type: huma.TypeObject, Required: []string{"file"}, Properties: map[string]*huma.Schema{"file": {Type: huma.TypeString, Format: "binary"}},
	}
	routeReply(f.API, huma.Operation{
		OperationID: "download-file", Method: http.MethodGet, Path: "/sandboxes/{id}/files/download", Summary: "Download a file of the workspace", Tags: tags,
		Responses: answers("200", "The file.", typeBytes),
	}, content, f.download)
}

// workspace is where uploads go and downloads come from.
const workspace = "/workspace"

type uploadInput struct {
	SandboxID
	Content
	Path string `query:"path" maxLength:"4095" doc:"A directory of the workspace; missing ones are made."`
}

func (f *fileRoutes) upload(ctx context.Context, c sandbox.Caller, in *uploadInput) (*struct{}, error) {
	l, err := f.open(ctx, c, in.ID, writes("upload", inside(in.Path)))
	if err != nil {
		return nil, err
	}
	defer l.Release()
	defer server.EndBody(ctx, l.Session().Done())()
	part, err := filePart(in.request)
	if err != nil {
		return nil, server.WhyOfBody(ctx, err)
	}
	defer part.Close() //nolint:errcheck // it was read
	name, err := uploadName(part)
	if err != nil {
		return nil, err
	}
	to := path.Join(inside(in.Path), name)
	if err = f.inWorkspace(ctx, l.Session(), in.Path, name); err == nil {
		err = onPath(server.WhyOfBody(ctx, receive(ctx, l.Session(), to, part)))
	}
	f.note(ctx, c, l, writes("upload", to), err)
	return nil, err
}

func receive(ctx context.Context, s *client.Session, to string, r io.Reader) error {
	if err := failpoint.UploadBegin.Hit(); err != nil {
		return err
	}
	if err := s.WriteFile(ctx, to, failpoint.UploadPart.Reader(r), client.WriteOptions{Atomic: true, Parents: true}); err != nil {
		return err
	}
	return failpoint.UploadSent.Hit()
}

// filePart finds the field file without keeping anything of the form.
func filePart(r *http.Request) (*multipart.Part, error) {
	missing := &FormProblem{Detail: []*FieldError{{Type: "missing", Loc: []any{"body", "file"}, Msg: "file is missing"}}}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, missing
	}
	const most = 100 // parts before it
	for range most {
		p, err := parts.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return nil, missing
		case err != nil:
			return nil, server.NewProblem(server.CodeInvalidRequest, "the form is not valid")
		case p.FormName() == "file":
			return p, nil
		}
	}
	return nil, missing
}

// uploadName is the file name that the form gives. A multipart.Part would cut a
// path off; here it is refused.
func uploadName(p *multipart.Part) (string, error) {
	_, params, err := mime.ParseMediaType(p.Header.Get("Content-Disposition"))
	name := params["filename"]
	switch {
	case err == nil && name == "":
		return "uploaded_file", nil
	case err != nil || name == "." || name == ".." || strings.ContainsAny(name, "/\x00"):
		return "", &sandbox.InvalidError{Field: "file", Value: name, Allowed: "a file name without directories"}
	}
	return name, nil
}

type downloadInput struct {
	SandboxID
	Path string `query:"path" required:"true" maxLength:"4095" doc:"A file of the workspace."`
}

func (f *fileRoutes) download(ctx context.Context, c sandbox.Caller, in *downloadInput) (reply, error) {
	access := reads("download", in.Path)
	l, err := f.open(ctx, c, in.ID, access)
	if err != nil {
		return nil, err
	}
	var content *client.Content
	if err = f.inWorkspace(ctx, l.Session(), in.Path, ""); err == nil {
		content, err = l.Session().ReadFile(ctx, inside(in.Path), client.ReadOptions{})
	}
	if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) {
		err = sandbox.Refuse(errdefs.ErrNotFound, "File not found in sandbox")
	}
	err = guestError(err)
	f.note(ctx, c, l, access, err)
	if err != nil {
		l.Release()
		return nil, err
	}
	base := path.Base(in.Path)
	send := sendFile(l, content, "", content.Info.Size)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Disposition", disposition(base))
		if t := mime.TypeByExtension(path.Ext(base)); t != "" {
			w.Header().Set("Content-Type", t)
		}
		send(w, r)
	}, nil
}

// disposition names the file for clients, also those that know no UTF-8. Some
// decode % in the plain form, so there is none in it.
func disposition(name string) string {
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`"\%`, r) {
			return '_'
		}
		return r
	}, name)
	header := `attachment; filename="` + plain + `"`
	if plain != name {
		header += "; filename*=UTF-8''" + extended(name)
	}
	return header
}

// attrChars stand for themselves in the extended form of a parameter: of those
// that RFC 8187 allows the ones that no client reads otherwise.
const attrChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"

func extended(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if strings.IndexByte(attrChars, s[i]) >= 0 {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// inside is the path that a client means: relative ones and absolute ones of the
// workspace.
func inside(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(workspace, p)
}

var errOutside = &sandbox.InvalidError{Field: "path", Allowed: "a path in the workspace"}

// inWorkspace refuses paths that leave the workspace, by their names or by links.
// It guards no border, a command may do the same: it keeps clients from what they
// did not mean.
func (f *fileRoutes) inWorkspace(ctx context.Context, s *client.Session, dir, name string) error {
	for part := range strings.SplitSeq(dir, "/") {
		if part == ".." {
			return errOutside
		}
	}
	at := path.Join(inside(dir), name)
	for links := 0; ; {
		if at != workspace && !strings.HasPrefix(at, workspace+"/") {
			return errOutside
		}
		link, rest, err := firstLink(ctx, s, at)
		if err != nil || link.Path == "" {
			return err
		}
		if links++; links > maxLinks {
			return errOutside
		}
		target := link.Target
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(link.Path), target)
		}
		at = path.Join(target, rest)
	}
}

// maxLinks is Linux' bound of links in a path.
const maxLinks = 40

// firstLink finds the first link on the way to a file, and the rest of the path
// behind it. What is not there yet is none.
func firstLink(ctx context.Context, s *client.Session, p string) (link client.FileInfo, rest string, err error) {
	rel := strings.TrimPrefix(strings.TrimPrefix(p, workspace), "/")
	at := workspace
	for rel != "" {
		var part string
		part, rest, _ = strings.Cut(rel, "/")
		at, rel = path.Join(at, part), rest
		info, err := s.Stat(ctx, at, client.StatOptions{})
		switch {
		case errdefs.IsNotFound(err):
			return client.FileInfo{}, "", nil
		case err != nil:
			return client.FileInfo{}, "", fmt.Errorf("look for links: %w", err)
		case info.Mode&fs.ModeSymlink != 0:
			info.Path = at
			return info, rest, nil
		}
	}
	return client.FileInfo{}, "", nil
}
