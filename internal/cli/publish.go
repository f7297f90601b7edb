package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"agentbox/internal/control"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/local"
	"agentbox/internal/ports"
	"agentbox/internal/sandbox"
)

// publishing is what a run opens to others on the host: ports, and the socket
// for agentbox cp and ps.
type publishing struct {
	forwards []*ports.Forward
	control  *control.Server
}

// publishPorts takes the ports of the host, before a sandbox is made for nothing.
func (f *runFlags) publishPorts(ctx context.Context, dataDir string) (_ *publishing, err error) {
	allowed := ports.DefaultRange
	if f.portRange != "" {
		if allowed, err = ports.ParseRange(f.portRange); err != nil {
			return nil, err
		}
	}
	var mappings []ports.Mapping
	for _, s := range f.publish {
		m, err := ports.Parse(s)
		if err != nil {
			return nil, err
		}
		mappings = append(mappings, m)
	}
	p := new(publishing)
	for _, m := range mappings {
		fw, err := ports.Open(m, allowed)
		if err != nil {
			if by := portHolder(ctx, dataDir, m.Host.Port()); by != "" && errdefs.IsAlreadyExists(err) {
				err = fmt.Errorf("%w (by the sandbox %s)", err, by)
			}
			return nil, errors.Join(err, p.close())
		}
		p.forwards = append(p.forwards, fw)
	}
	return p, nil
}

// portHolder names the sandbox of this user that has a port of the host, if one
// does.
func portHolder(ctx context.Context, dataDir string, port uint16) (name string) {
	all, _ := control.List(ctx, dataDir) // it only adds to an error
	for _, r := range all {
		r.Close()
		for _, s := range r.Info.Ports {
			if m, err := ports.Parse(s); err == nil && m.Host.Port() == port {
				name = cmp.Or(r.Info.Name, ids.Short(r.Info.ID))
			}
		}
	}
	return name
}

// start begins to serve the sandbox, and says where its ports are.
func (p *publishing) start(a *App, e *local.Engine, b box) (err error) {
	dial := func(ctx context.Context, port int) (ports.Conn, error) { return b.sb.Session().DialPort(ctx, port) }
	for _, f := range p.forwards {
		f.Serve(dial)
		fmt.Fprintf(a.Stderr, "agentbox: %s leads to port %d of the sandbox\n", f.Host, f.Guest)
		b.info.Ports = append(b.info.Ports, f.String())
	}
	p.control, err = control.Serve(e.Dir(), b)
	return err
}

func (p *publishing) close() error {
	var err error
	for _, f := range p.forwards {
		err = errors.Join(err, f.Close())
	}
	p.forwards = nil
	if p.control != nil {
		err = errors.Join(err, p.control.Close())
		p.control = nil
	}
	return err
}

// mapping is how JSON shows one.
type mapping struct {
	Host  string `json:"host"`
	Guest uint16 `json:"guest"`
}

func (p *publishing) mappings() []mapping {
	list := []mapping{}
	for _, f := range p.forwards {
		list = append(list, mapping{f.Host.String(), f.Guest})
	}
	return list
}

// boxName is what a sandbox may be called. It must not be taken for a path.
// It is compiled when it is needed: most calls do without.
var boxName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`) })

// checkName refuses a name that can't be, or that a running sandbox has.
func checkName(ctx context.Context, dataDir, name string) error {
	if name == "" {
		return nil
	}
	if !boxName().MatchString(name) {
		return &sandbox.InvalidError{Field: "name", Value: name, Allowed: "1 to 63 letters, digits and any of _ . -, with a letter or digit first"}
	}
	all, err := control.List(ctx, dataDir)
	if err != nil {
		return err
	}
	for _, r := range all {
		r.Close()
		if r.Info.Name == name {
			return fmt.Errorf("a sandbox with the name %q is running; end it or take another name: %w", name, errdefs.ErrAlreadyExists)
		}
	}
	return nil
}

// box is the sandbox of this process as others see it.
type box struct {
	sb   *local.Sandbox
	info control.Info
}

func newBox(sb *local.Sandbox, name, image string) box {
	return box{sb, control.Info{ID: sb.ID, Name: name, Image: image, Pid: os.Getpid(), Created: time.Now(), Ports: []string{}}}
}

func (b box) Info() control.Info { return b.info }

func (b box) Stat(ctx context.Context, path string) (control.Stat, error) {
	i, err := b.sb.Session().Stat(ctx, path, client.StatOptions{Follow: true})
	if errdefs.IsNotFound(err) {
		return control.Stat{}, nil
	}
	return control.Stat{Exists: err == nil, Dir: i.Mode.IsDir()}, err
}

func (b box) GetTree(ctx context.Context, path string) (io.ReadCloser, error) {
	tree, err := b.sb.Session().GetArchive(ctx, path, client.ArchiveOptions{})
	if err != nil {
		return nil, err
	}
	return tree, nil
}

func (b box) PutTree(ctx context.Context, dir string, r io.Reader) error {
	return b.sb.Session().PutArchive(ctx, dir, r, client.UnpackOptions{Parents: true})
}
