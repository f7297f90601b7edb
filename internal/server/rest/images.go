package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/image"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// Images are what the routes about images need.
type Images interface {
	List() ([]image.Image, error)
	Inspect(name string) (image.Image, error)
	Remove(name string) error
	// Pull fetches an image with the operator's settings for registries.
	Pull(ctx context.Context, reference, platform string) (image.Image, error)
}

// Image is what sandboxes are made of.
type Image struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size" doc:"Bytes."`
	CreatedAt time.Time `json:"created_at" doc:"When the server got or made it."`
	Source    string    `json:"source" doc:"Where it came from: recipe, tar, archive or registry."`
	User      string    `json:"user" doc:"Who commands run as; empty: 1000."`
	Workdir   string    `json:"workdir" doc:"Where commands run; empty: /."`
}

type (
	imagesInput struct{ Page }
	imageInput  struct {
		Ref string `path:"ref" maxLength:"512" doc:"The image's name."`
	}
	pullInput struct {
		Repeatable
		Body struct {
			Reference string `json:"reference" minLength:"1" maxLength:"512" doc:"[REGISTRY/]REPOSITORY[:TAG][@DIGEST]"`
			Platform  string `json:"platform,omitempty" maxLength:"64" doc:"OS/ARCHITECTURE, where there are several. Default: the server's."`
		}
	}
	imagesOutput struct{ Body List[Image] }
	imageOutput  struct{ Body Image }
)

func (a *API) addImages() {
	tags := []string{"Images"}
	// Names have slashes.
	one := func(method string) string { return method + " " + Prefix + "/images/{ref...}" }
	route(a, huma.Operation{
		OperationID: "list-images", Method: http.MethodGet, Path: "/images", Summary: "List the images, by name", Tags: tags,
	}, server.Route{}, a.listImages)
	route(a, huma.Operation{
		OperationID: "get-image", Method: http.MethodGet, Path: "/images/{ref}", Summary: "Look at an image", Tags: tags,
	}, server.Route{Pattern: one(http.MethodGet)}, a.getImage)
	route(a, huma.Operation{
		OperationID: "remove-image", Method: http.MethodDelete, Path: "/images/{ref}", Summary: "Remove an image that no sandbox uses", Tags: tags,
		DefaultStatus: http.StatusNoContent,
	}, server.Route{Pattern: one(http.MethodDelete), Access: auth.NeedAdmin}, a.removeImage)
	route(a, huma.Operation{
		OperationID: "pull-image", Method: http.MethodPost, Path: "/images/pull", Summary: "Fetch an image from its registry", Tags: tags,
		Description: "The answer comes when it is there. A download that was cut goes on with the next call.",
	}, server.Route{Access: auth.NeedAdmin}, a.pullImage)
}

func (a *API) listImages(_ context.Context, _ sandbox.Caller, in *imagesInput) (*imagesOutput, error) {
	all, err := a.Images.List() // sorted by name
	if err != nil {
		return nil, err
	}
	page, next := pageByName(all, in.Page, func(i *image.Image) string { return i.Name })
	var items []Image
	for i := range page {
		items = append(items, imageOf(&page[i]))
	}
	return &imagesOutput{list(items, next)}, nil
}

func (a *API) getImage(_ context.Context, _ sandbox.Caller, in *imageInput) (*imageOutput, error) {
	img, err := a.Images.Inspect(in.Ref)
	if err != nil {
		return nil, noImage(err)
	}
	return &imageOutput{imageOf(&img)}, nil
}

func (a *API) removeImage(ctx context.Context, c sandbox.Caller, in *imageInput) (*struct{}, error) {
	err := noImage(a.Images.Remove(in.Ref))
	a.record(ctx, c, audit.Image, err, map[string]string{"remove": in.Ref})
	return nil, err
}

func (a *API) pullImage(ctx context.Context, c sandbox.Caller, in *pullInput) (*imageOutput, error) {
	return repeat(ctx, a, c, in.Key, "pull-image", in.Body, func(ctx context.Context, _ string) (*imageOutput, error) { return a.pull(ctx, c, in) })
}

func (a *API) pull(ctx context.Context, c sandbox.Caller, in *pullInput) (*imageOutput, error) {
	img, err := a.Images.Pull(ctx, in.Body.Reference, in.Body.Platform)
	if err != nil {
		err = notPulled(ctx, err)
	}
	a.record(ctx, c, audit.Image, err, map[string]string{"pull": in.Body.Reference})
	if err != nil {
		return nil, err
	}
	return &imageOutput{imageOf(&img)}, nil
}

func noImage(err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return sandbox.Refuse(errdefs.ErrNotFound, "Image not found")
	case errdefs.IsFailedPrecondition(err):
		return sandbox.Refuse(errdefs.ErrFailedPrecondition, "the image is used by a sandbox; the list of sandboxes names the image of each")
	}
	return err
}

// notPulled keeps a registry's refusal of us apart from ours of the caller.
func notPulled(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil, errdefs.IsInvalidArgument(err):
		return err
	case errdefs.IsNotFound(err):
		return sandbox.Refuse(errdefs.ErrNotFound, "the registry has no such image")
	case errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err):
		return sandbox.Refuse(errdefs.ErrFailedPrecondition, "the registry refused it: the server's user needs a login there")
	}
	server.LogError(ctx, err)
	return sandbox.Refuse(errdefs.ErrUnavailable, "the image could not be fetched; the server's log says why")
}

func imageOf(i *image.Image) Image {
	return Image{Name: i.Name, Digest: i.Digest, Size: i.Size, CreatedAt: i.Created, Source: i.Source, User: i.Config.User, Workdir: i.Config.Workdir}
}
