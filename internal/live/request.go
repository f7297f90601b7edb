package live

import (
	"cmp"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/image"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
)

// Request is what a new sandbox should be.
type Request struct {
	Image  string
	Limits sandbox.Limits // with defaults filled in
	// Require names the limits that must be enforced (sandbox.Limit…).
	Require []string
	// User and Workdir replace the image's; Env is added to it.
	User, Workdir string
	Env           []string
	// Own names directories that are to belong to User. Those that the image
	// does not have are left out.
	Own []string
	// Tunnel and Resolver are those of Config.
	Tunnel   client.Tunnel
	Resolver bool
	// Trust are certificates, DER, that programs trust besides the image's.
	Trust [][]byte
	// ProcessAPI is that of Config.
	ProcessAPI *ProcessAPI
}

// ApplyAlias makes the request what an alias stands for. What the request says
// already counts more. Other names of images change nothing.
func (r *Request) ApplyAlias() {
	a, ok := image.FindAlias(r.Image)
	if !ok {
		return
	}
	r.Image = a.Image
	r.Env = append(a.Env, r.Env...)
	if r.Workdir == "" {
		r.Workdir = a.Workdir
	}
	if r.User == "" {
		r.User, r.Own = a.User, image.OwnedDirs
	}
}

// Spec is a request with the image that it is made of.
func (r *Request) Spec(id string, img image.Image) Spec {
	s := Spec{
		ID: id, Require: r.Require, Image: runtime.Image{Path: img.Path, Digest: img.Digest}, ImageName: r.Image, Own: r.Own,
		Config: Config{
			Limits: r.Limits, User: img.Config.User, Workdir: img.Config.Workdir, Tunnel: r.Tunnel, Resolver: r.Resolver, Trust: r.Trust, ProcessAPI: r.ProcessAPI,
		},
	}
	if r.User != "" {
		s.User = r.User
	}
	if r.Workdir != "" {
		s.Workdir = r.Workdir
	}
	s.Env = append(append(s.Env, img.Config.Env...), r.Env...)
	return s
}

// Config is what the agent in a sandbox must know.
type Config struct {
	Limits        sandbox.Limits
	User, Workdir string
	Env           []string // the whole environment
	// Execs run at once; more wait. 0: sandbox.MaxExecs.
	Execs int
	// Tunnel is the way to the outside; nil: there is none. Resolver: programs
	// that take no proxy have it, too.
	Tunnel   client.Tunnel
	Resolver bool
	// Trust are certificates, DER, that programs trust besides the image's.
	Trust [][]byte
	// ProcessAPI is by which programs in the sandbox run commands; nil: there is none.
	ProcessAPI *ProcessAPI
}

// ProcessAPI bounds what commands of the process API may take: time (0: no limit),
// and bytes of each stream in an answer (0: no limit).
type ProcessAPI struct {
	MaxTimeout time.Duration
	MaxOutput  int64
}

func (c *Config) guest() *guestv1.GuestConfig {
	g := &guestv1.GuestConfig{
		MemoryLimit: c.Limits.Memory, MaxPids: c.Limits.Pids, OpenFiles: c.Limits.OpenFiles,
		User: c.User, Workdir: c.Workdir,
		MaxExecs: uint32(cmp.Or(c.Execs, sandbox.MaxExecs)), MaxQueued: sandbox.MaxQueuedExecs, RingSize: sandbox.DefaultRing,
		Trust: c.Trust,
	}
	for _, e := range c.Env {
		g.Env = append(g.Env, []byte(e))
	}
	if c.Tunnel != nil {
		g.Network = &guestv1.Network{Resolver: c.Resolver}
	}
	if a := c.ProcessAPI; a != nil {
		g.ProcessApi = &guestv1.ProcessAPI{MaxTimeoutNs: int64(a.MaxTimeout), MaxOutput: a.MaxOutput}
	}
	return g
}

// Spec describes one sandbox to be made.
type Spec struct {
	ID string // ids.UID
	Config
	Require   []string
	Image     runtime.Image
	ImageName string // for messages
	Own       []string
	Labels    map[string]string // kept by the back end
	Mounts    []runtime.Mount
}
