package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"agentbox/internal/audit"
	"agentbox/internal/auth"
	"agentbox/internal/cli"
	"agentbox/internal/config"
	"agentbox/internal/doctor"
	"agentbox/internal/egress"
	"agentbox/internal/egress/dial"
	"agentbox/internal/egress/journal"
	"agentbox/internal/egress/vault"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/manager"
	"agentbox/internal/ports"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/server"
	"agentbox/internal/server/rest"
	"agentbox/internal/server/rpc"
	"agentbox/internal/store"
	"agentbox/internal/telemetry"
	"agentbox/internal/volume"
)

// What a daemon has in its data directory, beside images and programs.
const (
	daemonDir  = "daemon" // of the back end, apart from the sandboxes of terminals
	ownerFile  = "owner"  // in it: the mark of this daemon's things on the host
	database   = "agentbox.db"
	volumesDir = "volumes"
	auditDir   = "audit"
	destroyAll = time.Minute // for --ephemeral to leave nothing behind
)

// daemon is what a daemon has open. What was opened last is closed first.
type daemon struct {
	cfg    *config.Config
	hooks  cli.DaemonHooks
	meter  *telemetry.Core
	closes []func() error

	images *image.Store
	rt     runtime.Runtime
	store  *store.Store
	audit  *audit.Log
	vols   *volume.Volumes
	keys   *auth.Keyring
	gate   *auth.Gate
	boxes  *manager.Manager
	server *server.Server
	conns  *journal.Journal
	out    *egress.Gateway

	secrets *vault.Vault
}

// gcPercent is how much the heap may grow between two collections, unless GOGC
// says. Most of a large heap are outputs of commands, megabytes each: doubling
// would take twice what the limits of outputs promise.
const gcPercent = 50

// processors is how many of n CPUs run the daemon's code at a time, unless GOMAXPROCS
// says: the others are the sandboxes', whose work it waits for. With all of them Go wakes
// another CPU for each goroutine that becomes ready, and whoever wakes one waits for that:
// on two CPUs a command took 0.3 ms longer and a request through the proxy 0.1 ms.
func processors(n int) int { return max(1, n/2) }

// Serve runs a daemon until ctx is done.
func Serve(ctx context.Context, cfg *config.Config, hooks cli.DaemonHooks) (err error) {
	if err := armFailpoints(hooks.Log); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		goruntime.GOMAXPROCS(processors(goruntime.GOMAXPROCS(0)))
	}
	d := &daemon{cfg: cfg, hooks: hooks, meter: telemetry.New()}
	defer func() { err = errors.Join(err, d.close()) }()
	// The image comes last: making it takes minutes, and whoever set something
	// wrong should hear so at once.
	for _, open := range []func(context.Context) error{d.openData, d.tryAddress, d.openVolumes, d.openSecrets, d.openEgress, d.openSandboxes, d.openServer, d.ensureImage} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	listeners, err := d.listen()
	if err != nil {
		return err
	}
	return d.serve(ctx, listeners)
}

func (d *daemon) later(f func() error) { d.closes = append(d.closes, f) }

func (d *daemon) close() error {
	var err error
	for i := len(d.closes) - 1; i >= 0; i-- {
		err = errors.Join(err, d.closes[i]())
	}
	return err
}

// openData opens what lies in the data directory, which is this daemon's alone
// from now on.
func (d *daemon) openData(ctx context.Context) (err error) {
	lock, err := server.Lock(d.cfg.DataDir)
	if err != nil {
		return err
	}
	d.later(lock.Close)
	if err := image.CheckPatterns(d.cfg.Images.Allow); err != nil {
		return fmt.Errorf("images.allow: %w", err)
	}
	if d.images, err = Images(d.cfg.DataDir); err != nil {
		return err
	}
	if d.store, err = store.Open(ctx, filepath.Join(d.cfg.DataDir, database)); err != nil {
		return err
	}
	d.later(d.store.Close)
	d.audit, err = audit.Open(filepath.Join(d.cfg.DataDir, auditDir), audit.Options{MaxFile: d.cfg.Audit.MaxFile, Files: int(d.cfg.Audit.Files)})
	if err != nil {
		return err
	}
	d.later(d.audit.Close)
	d.keys = auth.NewKeyring(storedKeys{d.store})
	return nil
}

// openSandboxes takes over those that the last daemon left.
func (d *daemon) openSandboxes(ctx context.Context) (err error) {
	allowed, err := policy(d.cfg)
	if err != nil {
		return err
	}
	public, err := dial.New(dial.Options{})
	if err != nil {
		return err
	}
	d.boxes, err = manager.Open(ctx, manager.Options{
		Runtime: d.rt, Images: image.Fetcher{Store: d.images, Allow: d.cfg.Images.Allow, Pull: d.hooks.Pull, Dial: public.DialContext}, Store: d.store, Volumes: d.vols, Egress: tunnels{d.out}, Secrets: d.secrets, Policy: allowed, Log: d.hooks.Log, Meter: d.meter,
		Memory: func() (available, total int64, err error) {
			m := doctor.HostMemory()
			return m.Available, m.Total, nil
		},
	})
	if err != nil {
		return err
	}
	d.later(d.boxes.Close)
	d.meter.Watch(d.boxes.Counts)
	return nil
}

func (d *daemon) ensureImage(ctx context.Context) error {
	return d.hooks.EnsureImage(ctx, d.images, d.cfg.Sandbox.Image)
}

func (d *daemon) openServer(context.Context) (err error) {
	rates := auth.Rates{PerKey: d.cfg.RateLimit.PerKey, PerAddress: d.cfg.RateLimit.PerAddress, Refused: d.cfg.RateLimit.Refused}
	for _, e := range d.cfg.RateLimit.Exempt {
		network, err := config.ParseNetwork("rate_limit.exempt", e)
		if err != nil {
			return err
		}
		rates.Exempt = append(rates.Exempt, network)
	}
	d.gate, err = auth.NewGate(d.keys, auth.Policy{NoAuth: d.cfg.NoAuth, LocalOnly: d.cfg.Autocoder.LocalOnly, Login: login(&d.cfg.Autocoder), Loopback: !slices.ContainsFunc(d.addresses(), func(at string) bool { return !auth.IsLoopback(at) }), AllowOrigin: d.cfg.AllowOrigin, Rates: rates, Requests: int(d.cfg.Limits.Requests)})
	if err != nil {
		return err
	}
	h := d.cfg.HTTP
	opts := server.Options{
		Gate: d.gate, Origins: d.gate.Origins(), Recorder: d.audit, Log: d.hooks.Log, NoAuth: d.cfg.NoAuth, Ready: d.ready,
		HeaderTimeout: h.HeaderTimeout, BodyTimeout: h.BodyTimeout, WriteTimeout: h.WriteTimeout, IdleTimeout: h.IdleTimeout,
		MaxHeader: int(h.MaxHeader), StopGrace: h.StopGrace, Metrics: server.NewMetrics(), OpenMetrics: d.cfg.Autocoder.EnableMetrics,
	}
	opts.Metrics.Register(d.meter)
	if d.cfg.TLS.Cert != "" {
		cert, err := server.LoadCertificate(d.cfg.TLS.Cert, d.cfg.TLS.Key, d.hooks.Log)
		if err != nil {
			return err
		}
		opts.TLS = cert.Config()
	}
	d.server = server.New(opts)
	s := d.cfg.Sandbox
	rest.New(d.server.Router(), rest.Parts{
		Version: d.hooks.Version, Keys: d.keys, Audit: d.audit, Sandboxes: d.boxes, Inside: d.boxes, Repeats: d.boxes, Images: operatorImages{d.images, d.hooks.Pull}, Volumes: d.vols, Networks: d.boxes, Connections: d.conns, Secrets: d.secrets,
		Defaults: sandbox.Limits{Memory: s.Memory, CPUs: s.CPUs, Disk: s.Disk, Pids: s.Pids}, Draining: d.server.Draining(),
	})
	d.addSandboxes()
	rpc.New(d.server.Router(), rpc.Parts{Sandboxes: d.boxes, Audit: d.audit, Session: d.session(), Ready: d.ready, Draining: d.server.Draining()})
	return nil
}

// ready: what can't be recorded is not done, so a daemon that can't record is of
// little use.
func (d *daemon) ready(context.Context) error { return errors.Join(d.audit.Err(), d.conns.Err()) }

// operatorImages pulls with the operator's settings for registries.
type operatorImages struct {
	*image.Store
	opts image.PullOptions
}

func (o operatorImages) Pull(ctx context.Context, reference, platform string) (image.Image, error) {
	opts := o.opts
	opts.Platform = platform
	return o.Store.Pull(ctx, reference, opts)
}

// serve serves until ctx is done, and lets go of the sandboxes or, if they are
// to go with the daemon, destroys them.
func (d *daemon) serve(ctx context.Context, l listeners) error {
	up := cli.DaemonUp{Address: l.main.Addr().String(), TLS: d.cfg.TLS.Cert != "", Socket: d.cfg.Socket, NoAuth: d.cfg.NoAuth}
	if !d.cfg.NoAuth && d.hooks.FirstKey {
		key, err := d.keys.First(ctx)
		if err != nil {
			return errors.Join(err, l.close())
		}
		up.FirstKey = key
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, d.boxes.Drain)()
	wait := d.serveBeside(ctx, cancel, l)
	d.hooks.Up(up)
	serving := []net.Listener{l.main, l.local}
	if l.grpc != nil {
		serving = append(serving, l.grpc)
	}
	err := d.server.Serve(ctx, serving...)
	cancel()
	err = errors.Join(err, wait())
	if d.cfg.Ephemeral {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), destroyAll)
		defer done()
		return errors.Join(err, d.boxes.DestroyAll(last))
	}
	left := 0
	for state, n := range d.boxes.Counts() {
		if state != sandbox.Destroyed {
			left += n
		}
	}
	d.hooks.Left(left)
	return err
}

// serveBeside serves the listeners that not every daemon has, until ctx ends. When
// one of them fails, it ends the daemon: half a one is none. What it returns waits
// for them.
func (d *daemon) serveBeside(ctx context.Context, end func(), l listeners) (wait func() error) {
	var g errgroup.Group
	for _, one := range []struct {
		net.Listener
		serve func(context.Context, net.Listener) error
	}{{l.metrics, d.server.ServeMetrics}, {l.proxy, d.out.Serve}} {
		if one.Listener != nil {
			g.Go(func() error {
				defer end()
				return one.serve(ctx, one.Listener)
			})
		}
	}
	return g.Wait
}

// policy is the operator's, as the core takes it.
func policy(cfg *config.Config) (manager.Policy, error) {
	published, err := ports.ParseRange(cfg.PortRange)
	if err != nil {
		return manager.Policy{}, fmt.Errorf("port_range: %w", err)
	}
	l := cfg.Limits
	most := sandbox.MaxLimits(doctor.HostMemory().Total, goruntime.NumCPU())
	most.Memory, most.CPUs = cmp.Or(l.Memory, most.Memory), cmp.Or(l.CPUs, most.CPUs)
	most.Shm, most.Run = most.Memory, most.Memory
	most.Disk, most.Pids = l.Disk, l.Pids
	return manager.Policy{
		DefaultImage: cfg.Sandbox.Image, Max: most, MaxSandboxes: int(l.Sandboxes), MaxPerOwner: int(l.SandboxesPerOwner), Creates: int(l.Creates),
		IdleTimeout: endless(cfg.Sandbox.IdleTimeout), Lifetime: endless(cfg.Sandbox.Lifetime), MaxIdleTimeout: l.IdleTimeout, MaxLifetime: l.Lifetime,
		ExecTimeout: cfg.Sandbox.ExecTimeout, MaxExecTimeout: l.ExecTimeout, Output: cfg.Sandbox.MaxOutput, MaxOutput: l.MaxOutput, Execs: int(l.Execs),
		Ports: published,
	}, nil
}

// endless is a configured timeout, in which 0 is without end.
func endless(d time.Duration) time.Duration {
	if d == 0 {
		return sandbox.Never
	}
	return d
}

// daemonBackend opens the back end of a data directory's daemon, also to take
// over what the last one left. The caller has the directory's lock.
func daemonBackend(dataDir string) (runtime.Runtime, error) {
	dir := filepath.Join(dataDir, daemonDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the daemon's directory: %w", err)
	}
	if err := checkPlace(dir); err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	owner, err := daemonOwner(filepath.Join(dir, ownerFile))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's mark: %w", err)
	}
	return Backend(dataDir)(owner, dir)
}

// daemonOwner is the mark that the daemon's things on the host carry, drawn once
// for each data directory: two daemons must not take the other's for their own. A
// host that crashed may have left it empty: then nothing that carries it is left.
func daemonOwner(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if owner := strings.TrimSpace(string(text)); owner != "" {
		return owner, nil
	}
	owner := ids.Hex(4)
	return owner, writeWhole(path, owner)
}

// writeWhole replaces a private file, which has its old or its new content after a
// crash.
func writeWhole(path, text string) error {
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(temp, path)
}

// ReclaimDaemon destroys the sandboxes that a data directory's daemon left
// behind, and unmounts their volumes. It refuses while the daemon runs.
func ReclaimDaemon(ctx context.Context, dataDir string) (err error) {
	if _, err := os.Stat(filepath.Join(dataDir, daemonDir)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := server.Lock(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	rt, err := daemonBackend(dataDir)
	if err != nil {
		return err
	}
	all, err := rt.List(ctx)
	for _, s := range all {
		err = errors.Join(err, rt.Destroy(ctx, s.ID))
	}
	return errors.Join(err, rt.Close(), volume.Detach(filepath.Join(dataDir, volumesDir)))
}

// DaemonRuns is the error that says so while a data directory's daemon runs.
func DaemonRuns(dataDir string) error {
	if _, err := os.Stat(dataDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := server.Lock(dataDir)
	if err != nil {
		return err
	}
	return lock.Close()
}
