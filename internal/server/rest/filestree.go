package rest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"agentbox/internal/guest/client"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
)

// File describes a file of a sandbox.
type File struct {
	Path       string    `json:"path"`
	PathBase64 []byte    `json:"path_base64,omitempty" doc:"The path exactly, if it is no UTF-8."`
	Name       string    `json:"name"`
	Type       string    `json:"type" enum:"file,dir,symlink,fifo,socket,device"`
	Target     string    `json:"target" doc:"Where a symlink leads."`
	Mode       string    `json:"mode" doc:"Permissions, octal, with setuid, setgid and sticky." example:"0644"`
	Size       int64     `json:"size"`
	UID        uint32    `json:"uid"`
	GID        uint32    `json:"gid"`
	User       string    `json:"user" doc:"Empty: the sandbox has no name for it."`
	Group      string    `json:"group"`
	Mtime      time.Time `json:"mtime"`
	Atime      time.Time `json:"atime"`
	Ctime      time.Time `json:"ctime"`
	Nlink      uint32    `json:"nlink"`
}

func fileOf(i *client.FileInfo) File {
	f := File{
		Path: i.Path, Name: i.Name, Type: typeOf(i.Mode), Target: i.Target, Mode: octal(i.Mode), Size: i.Size, UID: i.UID, GID: i.GID,
		User: i.User, Group: i.Group, Mtime: i.Mtime.UTC(), Atime: i.Atime.UTC(), Ctime: i.Ctime.UTC(), Nlink: i.Nlink,
	}
	if !utf8.ValidString(i.Path) {
		f.PathBase64 = []byte(i.Path)
	}
	return f
}

func filesOf(list []client.FileInfo) []File {
	var all []File
	for i := range list {
		all = append(all, fileOf(&list[i]))
	}
	return all
}

func typeOf(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "dir"
	case fs.ModeSymlink:
		return "symlink"
	case fs.ModeNamedPipe:
		return "fifo"
	case fs.ModeSocket:
		return "socket"
	default:
		return "device"
	}
}

func octal(m fs.FileMode) string {
	n := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			n |= bit
		}
	}
	return fmt.Sprintf("%04o", n)
}

func (f *fileRoutes) registerTree(tags []string) {
	route(f.API, huma.Operation{
		OperationID: "stat-file", Method: http.MethodGet, Path: "/sandboxes/{id}/files/stat", Summary: "Describe a file", Tags: tags,
	}, server.Route{}, f.stat)
	route(f.API, huma.Operation{
		OperationID: "list-files", Method: http.MethodGet, Path: "/sandboxes/{id}/files/list", Summary: "List a directory", Tags: tags,
		Description: "By name; a directory comes before what is in it. Pages stay right while the tree changes.",
	}, server.Route{}, f.list)
	routeReply(f.API, huma.Operation{
		OperationID: "watch-files", Method: http.MethodGet, Path: "/sandboxes/{id}/files/watch", Summary: "Follow the changes in a directory", Tags: tags,
		Description: "The events are ready, then create, write, remove, rename, chmod and overflow (something was missed: read the tree again), with {path, name, file}, and end when the directory is gone.",
		Responses:   answers("200", "Events.", typeEvents),
	}, server.Route{Stream: true}, f.watch)
}

type (
	statInput struct {
		FilePath
		Follow Bool `query:"follow" doc:"Describe what a symlink leads to."`
	}
	fileOutput struct{ Body File }
	listFiles  struct {
		DirPath
		Depth  int    `query:"depth" minimum:"1" maximum:"64" default:"1" doc:"Levels of directories."`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Entries of one page, at most."`
		Cursor string `query:"cursor" maxLength:"8192" doc:"next_cursor of the page before."`
	}
	filesOutput struct{ Body List[File] }
)

func (f *fileRoutes) stat(ctx context.Context, c sandbox.Caller, in *statInput) (out *fileOutput, err error) {
	err = f.use(ctx, c, in.ID, reads("stat", in.Path), func(s *client.Session) error {
		info, err := s.Stat(ctx, in.Path, client.StatOptions{User: in.User, Follow: in.Follow.Value})
		out = &fileOutput{fileOf(&info)}
		return err
	})
	return out, err
}

func (f *fileRoutes) list(ctx context.Context, c sandbox.Caller, in *listFiles) (out *filesOutput, err error) {
	cursor, err := base64.RawURLEncoding.DecodeString(in.Cursor)
	if err != nil {
		return nil, &sandbox.InvalidError{Field: "cursor", Value: in.Cursor, Allowed: "next_cursor of the page before"}
	}
	err = f.use(ctx, c, in.ID, reads("list", in.Path), func(s *client.Session) error {
		entries, next, err := s.List(ctx, in.Path, client.ListOptions{User: in.User, Depth: in.Depth, Limit: in.Limit, Cursor: string(cursor)})
		out = &filesOutput{list(filesOf(entries), base64.RawURLEncoding.EncodeToString([]byte(next)))}
		return err
	})
	return out, err
}

type watchInput struct {
	DirPath
	Recursive Bool `query:"recursive" doc:"Directories below, too, also those that come later."`
}

// Change is one change in a directory.
type Change struct {
	Path string `json:"path"`
	Name string `json:"name" doc:"Below the directory; empty: the directory itself."`
	File *File  `json:"file" doc:"What is there now; null: nothing, or not known."`
}

func (f *fileRoutes) watch(ctx context.Context, c sandbox.Caller, in *watchInput) (reply, error) {
	l, err := f.open(ctx, c, in.ID, reads("watch", in.Path))
	if err != nil {
		return nil, err
	}
	w, err := l.Session().Watch(ctx, in.Path, client.WatchOptions{User: in.User, Recursive: in.Recursive.Value, Info: true})
	err = onPath(err)
	f.note(ctx, c, l, reads("watch", in.Path), err)
	if err != nil {
		l.Release()
		return nil, err
	}
	return func(rw http.ResponseWriter, r *http.Request) {
		defer l.Release()
		defer w.Close() //nolint:errcheck // nobody listens any more
		f.sendChanges(rw, r, w)
	}, nil
}

func (f *fileRoutes) sendChanges(rw http.ResponseWriter, r *http.Request, w *client.Watch) {
	ev := openEvents(rw)
	defer ev.close()
	_ = ev.send("ready", "", struct{}{}) // pulse notices a client that is gone
	done := make(chan struct{})
	var failure error
	go func() {
		defer close(done)
		failure = changes(ev, w)
	}()
	switch ev.pulse(r.Context(), done, f.Draining) {
	case stopping:
		ev.fail(r.Context(), errStopping())
	case ended:
		if errors.Is(failure, io.EOF) {
			_ = ev.send("end", "", struct{}{}) // nobody is left to tell
		} else if r.Context().Err() == nil {
			ev.fail(r.Context(), guestError(failure))
		}
	}
	_ = w.Close() // ends changes
	<-done
}

// changes sends changes until there are no more.
func changes(ev *events, w *client.Watch) error {
	for {
		list, err := w.Next()
		if err != nil {
			return err
		}
		for i := range list {
			c := Change{Path: list[i].Path, Name: list[i].Name}
			if list[i].Info != nil {
				file := fileOf(list[i].Info)
				c.File = &file
			}
			if err := ev.send(string(list[i].Kind), "", c); err != nil {
				return err
			}
		}
	}
}
