package rest

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/audit"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/volume"
)

// Volumes are what the routes about volumes need; volume.Volumes has it.
type Volumes interface {
	CreateAs(ctx context.Context, id, owner, name string, size int64) (sandbox.Volume, error)
	List(ctx context.Context, owner string) ([]sandbox.Volume, error)
	Holders(ctx context.Context, owner, name string) ([]string, error)
	Inspect(ctx context.Context, owner, name string) (volume.Info, error)
	Remove(ctx context.Context, owner, name string) error
	Backup(ctx context.Context, owner, name string, w io.Writer, b volume.Bounds) (skipped []string, err error)
	Restore(ctx context.Context, owner, name string, r io.Reader, b volume.Bounds) (skipped []string, err error)
}

// Volume is a tree of files that outlives sandboxes.
type Volume struct {
	Name        string    `json:"name"`
	Size        int64     `json:"size" doc:"Bytes that it may take, the file system's own included."`
	Kind        string    `json:"kind" enum:"image,quota,directory" doc:"How the server keeps it: as a file system in a file, as a directory under a quota, as a directory without a limit."`
	NotEnforced []string  `json:"not_enforced" nullable:"false" doc:"disk, if the server can't hold it to its size."`
	UsedBy      []string  `json:"used_by" nullable:"false" doc:"Ids of the sandboxes that have it, stopped ones included."`
	Used        *int64    `json:"used,omitempty" doc:"Bytes that it takes on the server's disk. In lists it is left out."`
	CreatedAt   time.Time `json:"created_at"`
}

type (
	// VolumeName names a volume in a path.
	VolumeName struct {
		Name string `path:"name" maxLength:"128" doc:"The volume."`
	}
	createVolumeInput struct {
		Repeatable
		Body struct {
			Name string `json:"name" minLength:"1" maxLength:"128" doc:"Your name for it, unique among your volumes."`
			Size *Size  `json:"size,omitempty"`
		}
	}
	volumesInput  struct{ Page }
	volumeOutput  struct{ Body Volume }
	volumesOutput struct{ Body List[Volume] }
)

func (a *API) addVolumes() {
	tags := []string{"Volumes"}
	route(a, huma.Operation{
		OperationID: "create-volume", Method: http.MethodPost, Path: "/volumes", Summary: "Make a volume", Tags: tags,
		Description:   "It outlives sandboxes until it is removed. One sandbox has it to write, or any number to read: see volumes of POST /sandboxes.",
		DefaultStatus: http.StatusCreated,
	}, server.Route{Creates: true}, a.createVolume)
	route(a, huma.Operation{
		OperationID: "list-volumes", Method: http.MethodGet, Path: "/volumes", Summary: "List your volumes, by name", Tags: tags,
	}, server.Route{}, a.listVolumes)
	route(a, huma.Operation{
		OperationID: "get-volume", Method: http.MethodGet, Path: "/volumes/{name}", Summary: "Look at a volume", Tags: tags,
	}, server.Route{}, a.getVolume)
	route(a, huma.Operation{
		OperationID: "remove-volume", Method: http.MethodDelete, Path: "/volumes/{name}", Summary: "Remove a volume with all that is in it", Tags: tags,
		Description: "One that a sandbox has, running or stopped, is not removed: conflict.", DefaultStatus: http.StatusNoContent,
	}, server.Route{}, a.removeVolume)
	a.addVolumeArchive(tags)
}

func (a *API) createVolume(ctx context.Context, c sandbox.Caller, in *createVolumeInput) (*volumeOutput, error) {
	var size int64
	if in.Body.Size != nil {
		if size = in.Body.Size.Bytes; size == 0 {
			return nil, tooSmall("size")
		}
	}
	return repeat(ctx, a, c, in.Key, "create-volume", in.Body, func(ctx context.Context, made string) (*volumeOutput, error) {
		vol, err := a.Volumes.CreateAs(ctx, made, c.Owner, in.Body.Name, size)
		if errdefs.IsAlreadyExists(err) {
			err = sandbox.Refuse(errdefs.ErrAlreadyExists, "there is a volume of that name already")
		}
		a.record(ctx, c, audit.Volume, err, map[string]string{"create": in.Body.Name})
		if err != nil {
			return nil, err
		}
		return &volumeOutput{volumeOf(&vol, nil)}, nil
	})
}

func (a *API) listVolumes(ctx context.Context, c sandbox.Caller, in *volumesInput) (*volumesOutput, error) {
	all, err := a.Volumes.List(ctx, c.Owner) // sorted by name
	if err != nil {
		return nil, err
	}
	page, next := pageByName(all, in.Page, func(v *sandbox.Volume) string { return v.Name })
	var items []Volume
	for i := range page {
		holders, err := a.Volumes.Holders(ctx, c.Owner, page[i].Name)
		if errdefs.IsNotFound(err) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		items = append(items, volumeOf(&page[i], holders))
	}
	return &volumesOutput{list(items, next)}, nil
}

func (a *API) getVolume(ctx context.Context, c sandbox.Caller, in *VolumeName) (*volumeOutput, error) {
	info, err := a.Volumes.Inspect(ctx, c.Owner, in.Name)
	if err != nil {
		return nil, noVolume(err)
	}
	shown := volumeOf(&info.Volume, info.Holders)
	shown.Used = &info.Used
	return &volumeOutput{shown}, nil
}

func (a *API) removeVolume(ctx context.Context, c sandbox.Caller, in *VolumeName) (*struct{}, error) {
	err := noVolume(a.Volumes.Remove(ctx, c.Owner, in.Name))
	a.record(ctx, c, audit.Volume, err, map[string]string{"remove": in.Name})
	return nil, err
}

// noVolume says so where that is all that an error says.
func noVolume(err error) error {
	if errdefs.IsNotFound(err) {
		return sandbox.Refuse(errdefs.ErrNotFound, "Volume not found")
	}
	return err
}

func volumeOf(v *sandbox.Volume, holders []string) Volume {
	shown := Volume{Name: v.Name, Size: v.Size, Kind: string(v.Kind), NotEnforced: v.NotEnforced, UsedBy: holders, CreatedAt: v.Created}
	if shown.NotEnforced == nil {
		shown.NotEnforced = []string{}
	}
	if shown.UsedBy == nil {
		shown.UsedBy = []string{}
	}
	return shown
}
