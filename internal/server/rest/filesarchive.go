package rest

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Types of archives.
const (
	typeTar  = "application/x-tar"
	typeGzip = "application/gzip"
)

func (f *fileRoutes) registerArchive(tags []string, content server.Route) {
	content.Coded = true
	routeReply(f.API, huma.Operation{
		OperationID: "read-archive", Method: http.MethodGet, Path: "/sandboxes/{id}/files/archive", Summary: "Read a directory as an archive", Tags: tags,
		Description: "A tar; with Accept: application/gzip a tar.gz, with Accept-Encoding: gzip a tar that is compressed on its way. The trailer X-Skipped tells how many entries were left out: special files and what the user may not read.",
		Responses:   answers("200", "The archive.", typeTar, typeGzip),
	}, content, f.readArchive)
	route(f.API, huma.Operation{
		OperationID: "write-archive", Method: http.MethodPut, Path: "/sandboxes/{id}/files/archive", Summary: "Unpack an archive into a directory", Tags: tags,
		Description: "A tar, or a tar.gz with the content type application/gzip or the encoding gzip. Entries that would lead out of the directory are refused; what came before an error stays.",
		RequestBody: takes("The archive.", typeTar, typeGzip), DefaultStatus: http.StatusNoContent,
	}, content, f.writeArchive)
}

type readArchiveInput struct {
	DirPath
	Exclude  []string `query:"exclude,explode" maxItems:"100" doc:"Leave out what matches, with what is in it; a pattern without / is for names."`
	Accept   string   `header:"Accept"`
	Encoding string   `header:"Accept-Encoding"`
}

// archiveForm is how an archive is sent, by what the client takes, and what
// headers say of it.
func archiveForm(accept, encodings string) (packed bool, contentType, encoding string) {
	switch {
	case strings.Contains(accept, typeGzip):
		return true, typeGzip, ""
	case accepts(encodings, "gzip"):
		return true, typeTar, "gzip"
	default:
		return false, typeTar, ""
	}
}

// formatOf is the same for the agent.
func formatOf(packed bool) client.ArchiveFormat {
	if packed {
		return client.TarGz
	}
	return client.Tar
}

// accepts reports whether a list of encodings has one, and not with q=0.
func accepts(list, want string) bool {
	for part := range strings.SplitSeq(list, ",") {
		name, q, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), want) {
			q = strings.ReplaceAll(q, " ", "")
			return strings.Trim(strings.TrimPrefix(q, "q="), "0.") != "" || q == ""
		}
	}
	return false
}

func (f *fileRoutes) readArchive(ctx context.Context, c sandbox.Caller, in *readArchiveInput) (reply, error) {
	packed, contentType, encoding := archiveForm(in.Accept, in.Encoding)
	l, err := f.open(ctx, c, in.ID, reads("archive", in.Path))
	if err != nil {
		return nil, err
	}
	a, err := l.Session().GetArchive(ctx, in.Path, client.ArchiveOptions{User: in.User, Format: formatOf(packed), Exclude: in.Exclude})
	err = onPath(err)
	f.note(ctx, c, l, reads("archive", in.Path), err)
	if err != nil {
		l.Release()
		return nil, err
	}
	return func(w http.ResponseWriter, r *http.Request) {
		defer l.Release()
		defer a.Close()
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Add("Vary", "Accept, Accept-Encoding")
		if encoding != "" {
			h.Set("Content-Encoding", encoding)
		}
		h.Set("Trailer", "X-Skipped")
		if _, err := copyBody(w, a); err != nil {
			server.LogError(r.Context(), fmt.Errorf("send an archive: %w", err))
			cut()
		}
		h.Set("X-Skipped", itoa(int64(a.Skipped().Total)))
	}, nil
}

type writeArchiveInput struct {
	DirPath
	Content
	Type     string `header:"Content-Type"`
	Encoding string `header:"Content-Encoding"`
}

// isPacked reports whether an archive that is sent is compressed.
func isPacked(contentType, encoding string) (bool, error) {
	media, _, _ := mime.ParseMediaType(contentType) // what is none is not supported
	encoded := strings.EqualFold(encoding, "gzip")
	switch {
	case encoding != "" && !encoded && !strings.EqualFold(encoding, "identity"):
	case media == typeGzip || media == "application/x-gzip" || media == "application/x-gtar-compressed":
		if !encoded {
			return true, nil
		}
	case media == typeTar || media == "application/tar" || media == typeBytes || contentType == "":
		return encoded, nil
	}
	return false, server.NewProblem(server.CodeUnsupportedMedia, "the body must be application/x-tar or application/gzip")
}

func (f *fileRoutes) writeArchive(ctx context.Context, c sandbox.Caller, in *writeArchiveInput) (*struct{}, error) {
	packed, err := isPacked(in.Type, in.Encoding)
	if err != nil {
		return nil, err
	}
	return nil, f.use(ctx, c, in.ID, writes("unpack", in.Path), func(s *client.Session) error {
		err := s.PutArchive(ctx, in.Path, in.request.Body, client.UnpackOptions{User: in.User, Format: formatOf(packed), Parents: true})
		if told := guestError(err); errdefs.IsResourceExhausted(told) { // no limit that goes by: trying again does not help
			return server.NewProblem(server.CodeTooLarge, told.Error())
		}
		return err
	})
}
