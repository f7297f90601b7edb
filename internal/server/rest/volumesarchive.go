package rest

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/transfer"
	"agentbox/internal/volume"
)

// maxVolumeEntries is how many files and directories an archive of a volume may
// have: what fits into the largest one, at a usual size of files.
const maxVolumeEntries = 4 << 20

func (a *API) addVolumeArchive(tags []string) {
	content := server.Route{Stream: true, Coded: true}
	routeReply(a, huma.Operation{
		OperationID: "read-volume", Method: http.MethodGet, Path: "/volumes/{name}/archive", Summary: "Read a volume as an archive", Tags: tags,
		Description: "A tar; with Accept: application/gzip a tar.gz, with Accept-Encoding: gzip a tar that is compressed on its way. Sandboxes may use the volume meanwhile; what they change may be in it or not. Two archives of one owner are read or written at once; more wait. The trailer X-Skipped tells how many entries were left out: special files, what lies too deep, what is longer than the volume's size.",
		Responses:   answers("200", "The archive.", typeTar, typeGzip),
	}, content, a.readVolume)
	route(a, huma.Operation{
		OperationID: "write-volume", Method: http.MethodPut, Path: "/volumes/{name}/archive", Summary: "Unpack an archive into a volume", Tags: tags,
		Description: "A tar, or a tar.gz with the content type application/gzip or the encoding gzip. No sandbox may have the volume meanwhile: conflict. What is there stays unless the archive has the same name; what came before an error stays. Entries that would lead out of the volume and special files are left out, and X-Skipped tells how many.",
		RequestBody: takes("The archive.", typeTar, typeGzip), DefaultStatus: http.StatusNoContent,
	}, content, a.writeVolume)
}

type readVolumeInput struct {
	VolumeName
	Accept   string `header:"Accept"`
	Encoding string `header:"Accept-Encoding"`
}

func (a *API) readVolume(ctx context.Context, c sandbox.Caller, in *readVolumeInput) (reply, error) {
	info, err := a.Volumes.Inspect(ctx, c.Owner, in.Name)
	err = noVolume(err)
	a.record(ctx, c, audit.Volume, err, map[string]string{"read": in.Name})
	if err != nil {
		return nil, err
	}
	packed, contentType, encoding := archiveForm(in.Accept, in.Encoding)
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Add("Vary", "Accept, Accept-Encoding")
		if encoding != "" {
			h.Set("Content-Encoding", encoding)
		}
		h.Set("Trailer", "X-Skipped")
		skipped, err := a.sendVolume(r.Context(), c, &info, w, packed)
		if err != nil {
			server.LogError(r.Context(), fmt.Errorf("send a volume: %w", err))
			cut()
		}
		h.Set("X-Skipped", itoa(int64(len(skipped))))
	}, nil
}

func (a *API) sendVolume(ctx context.Context, c sandbox.Caller, info *volume.Info, w io.Writer, packed bool) ([]string, error) {
	if !packed {
		return a.Volumes.Backup(ctx, c.Owner, info.Name, w, volumeBounds(info))
	}
	z := gzip.NewWriter(w)
	skipped, err := a.Volumes.Backup(ctx, c.Owner, info.Name, z, volumeBounds(info))
	if err == nil {
		err = z.Close()
	}
	return skipped, err
}

// volumeBounds of an archive: a file may say that it is longer than the volume.
func volumeBounds(info *volume.Info) volume.Bounds {
	return volume.Bounds{Bytes: info.Size, Entries: maxVolumeEntries}
}

type writeVolumeInput struct {
	VolumeName
	Content
	Type     string `header:"Content-Type"`
	Encoding string `header:"Content-Encoding"`
}

type writeVolumeOutput struct {
	Skipped int `header:"X-Skipped" doc:"Entries that were left out."`
}

func (a *API) writeVolume(ctx context.Context, c sandbox.Caller, in *writeVolumeInput) (*writeVolumeOutput, error) {
	packed, err := isPacked(in.Type, in.Encoding)
	if err != nil {
		return nil, err
	}
	info, err := a.Volumes.Inspect(ctx, c.Owner, in.Name)
	var skipped []string
	if err == nil {
		skipped, err = a.unpackVolume(ctx, c, &info, in.request.Body, packed)
	}
	err = noVolume(server.WhyOfBody(ctx, err))
	a.record(ctx, c, audit.Volume, err, map[string]string{"write": in.Name})
	if err != nil {
		return nil, err
	}
	return &writeVolumeOutput{Skipped: len(skipped)}, nil
}

func (a *API) unpackVolume(ctx context.Context, c sandbox.Caller, info *volume.Info, body io.Reader, packed bool) (skipped []string, err error) {
	if packed {
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, notArchive(err)
		}
		body = z // it has nothing to close
	}
	skipped, err = a.Volumes.Restore(ctx, c.Owner, info.Name, body, volumeBounds(info))
	return skipped, notArchive(err)
}

// notArchive tells the faults of an archive from others.
func notArchive(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, transfer.ErrBounds), errdefs.IsResourceExhausted(err):
		return server.NewProblem(server.CodeTooLarge, "the volume is too small for the archive")
	case errors.Is(err, volume.ErrArchive), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.Is(err, io.ErrUnexpectedEOF):
		return sandbox.Refuse(errdefs.ErrInvalidArgument, "the body is not a whole archive")
	}
	return err
}
