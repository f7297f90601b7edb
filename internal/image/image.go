// Package image makes and keeps the root file systems of sandboxes.
//
// An image is a tar of a root file system, kept compressed, and made into one
// EROFS file when it is used: the tar, the guest agent and the mount points that
// every sandbox needs. All sandboxes of an image share the file. A new agent
// makes a new EROFS file out of the same tar; sandboxes that run keep the old.
//
// A [Store] lives in one directory and may be opened by any number of processes
// at once.
package image

import (
	"fmt"
	"regexp"
	"sync"
	"time"

	"agentbox/internal/image/oci"
	"agentbox/internal/sandbox"

	"github.com/containerd/errdefs"
)

// Image is a root file system that is ready for use.
type Image struct {
	// Name it was asked for by.
	Name string
	// Digest of the manifest, or of the tar when it was made of one, "sha256:…".
	Digest string
	// Source is where it came from: FromRecipe, FromTar, FromArchive or
	// FromRegistry. Empty in records of the first versions.
	Source string
	// Path of the EROFS file. List leaves it empty when there is none for the
	// current agent yet.
	Path string
	// Size of the EROFS file in bytes, or of the compressed tar when there is
	// none yet.
	Size int64
	// Created is when the tar was made or imported.
	Created time.Time
	Config  Config
	// ConfigDigest is the image id that container tools show, Platform what it
	// was made for, Layers what it was made of. Empty when it was one tar.
	ConfigDigest string
	Platform     string
	Layers       []oci.Layer
}

// Config is how commands run in an image unless they ask for something else.
type Config struct {
	// User is a name or uid, optionally ":group". Empty: uid 1000.
	User string `json:"user"`
	// Workdir is an absolute path. Empty: "/".
	Workdir string `json:"workdir"`
	// Env holds "NAME=value" entries.
	Env []string `json:"env,omitempty"`
	// Entrypoint and Cmd together are what runs when nobody says what.
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
	// ExposedPorts are "80/tcp" and the like: a hint, nothing is opened.
	ExposedPorts []string `json:"exposed_ports,omitempty"`
	// StopSignal asks the image's program to end, by name or number. Empty:
	// SIGTERM.
	StopSignal string `json:"stop_signal,omitempty"`
}

// Agent is the guest agent that images are furnished with.
type Agent struct {
	// Path of the program on the host.
	Path string
	// Build identifies it: another program has another Build.
	Build string
}

// AgentPath is where an image has the guest agent.
const AgentPath = "/.agentbox/guest"

// UserID is the owner of the directories that commands may write to, and the id
// of the user "user" in the images that agentbox makes.
const UserID = 1000

// validName is what an image may be called: it is a file name, too. It is compiled
// when it is needed: its many repetitions take a millisecond of a program's start.
var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`) })

func checkName(name string) error {
	if !validName().MatchString(name) {
		return fmt.Errorf("invalid image name %.150q: letters, digits, '.', '_' and '-' are allowed: %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}

// CheckReference reports what neither an image made here nor one of a registry can be
// called, as a [*sandbox.InvalidError] of the field image.
func CheckReference(name string) error {
	if validName().MatchString(name) {
		return nil
	}
	if _, err := oci.ParseRef(name); err != nil {
		return &sandbox.InvalidError{Field: "image", Value: sandbox.Clip(name, 128), Allowed: "a name that agentbox images ls lists, or [REGISTRY/]REPOSITORY[:TAG][@sha256:DIGEST] of at most 200 bytes, the repository in lower case"}
	}
	return nil
}

// Layer is one layer of an image.
type Layer = oci.Layer
