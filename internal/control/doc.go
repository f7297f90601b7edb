// Package control lets one agentbox process of a user reach the sandboxes of
// another: a socket in the owner directory of the process that runs a sandbox,
// which serves HTTP/1.1 to the same user and to root.
//
//	GET /info             Info as JSON
//	GET /stat?path=P      Stat as JSON
//	GET /tree?path=P      a tar stream of a file or tree in the sandbox
//	PUT /tree?path=P      unpacks a tar stream into a directory of the sandbox
//
// Errors are those of the guest protocol: an Error message, in the trailer where
// a body broke off.
package control

import (
	"context"
	"io"
	"time"
)

// Info describes a sandbox.
type Info struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	Image   string    `json:"image"`
	Pid     int       `json:"pid"` // of the process that runs it
	Created time.Time `json:"created"`
	Ports   []string  `json:"ports"` // as [HOST_IP]:HOST:GUEST
}

// Stat is what there is at a path of the sandbox.
type Stat struct {
	Exists bool `json:"exists"`
	Dir    bool `json:"dir"` // or a link to one
}

// Box is a sandbox that can be reached. Paths are those of the sandbox, with the
// rights of its default user; a relative one begins at its working directory.
type Box interface {
	Info() Info
	Stat(ctx context.Context, path string) (Stat, error)
	// GetTree reads a file or a tree as a tar stream.
	GetTree(ctx context.Context, path string) (io.ReadCloser, error)
	// PutTree unpacks a tar stream into a directory, which is made if needed.
	PutTree(ctx context.Context, dir string, r io.Reader) error
}

// socketName is the socket in an owner's directory.
const socketName = "control"
