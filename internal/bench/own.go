package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	guestv1 "agentbox/internal/gen/guest/v1"
	"agentbox/internal/guest/client"
	"agentbox/internal/ids"
	"agentbox/internal/image"
	"agentbox/internal/owner"
	"agentbox/internal/runtime"
	"agentbox/internal/sandbox"
	"agentbox/internal/wire"
)

// own is agentbox, taken apart so that each step can be timed.
type own struct {
	rt      runtime.Runtime
	owner   *owner.Owner
	image   image.Image
	release func()
}

// box is a running sandbox.
type box struct {
	id      string
	session *client.Session
}

// parts are the steps from nothing to a running sandbox.
type parts struct{ create, start, attach time.Duration }

func openOwn(ctx context.Context, dataDir, imageName string) (*own, error) {
	store, err := wire.Images(dataDir)
	if err != nil {
		return nil, err
	}
	o := &own{}
	if o.image, o.release, err = store.Acquire(ctx, imageName); err != nil {
		return nil, fmt.Errorf("%w (make it with: agentbox --data-dir %s images build %s)", err, dataDir, imageName)
	}
	if o.owner, err = owner.New(dataDir); err != nil {
		return nil, err
	}
	o.rt, err = wire.Backend(dataDir)(o.owner.ID, o.owner.Dir)
	return o, err
}

func (o *own) close(ctx context.Context) error {
	all, err := o.rt.List(ctx)
	for _, s := range all {
		err = errors.Join(err, o.rt.Destroy(ctx, s.ID))
	}
	err = errors.Join(err, o.rt.Close())
	o.release()
	return errors.Join(err, o.owner.Release())
}

func (o *own) create(ctx context.Context) (*box, parts, error) {
	var p parts
	b := &box{id: ids.UID()}
	limits := sandbox.Limits{}.WithDefaults()
	began := time.Now()
	err := o.rt.Create(ctx, runtime.Spec{ID: b.id, Limits: limits, Image: runtime.Image{Path: o.image.Path, Digest: o.image.Digest}})
	p.create = time.Since(began)
	if err != nil {
		return nil, p, err
	}
	began = time.Now()
	err = o.rt.Start(ctx, b.id)
	p.start = time.Since(began)
	if err == nil {
		began = time.Now()
		b.session, err = o.connect(ctx, b.id, limits)
		p.attach = time.Since(began)
	}
	if err != nil {
		return nil, p, errors.Join(err, o.rt.Destroy(ctx, b.id))
	}
	return b, p, nil
}

func (o *own) connect(ctx context.Context, id string, limits sandbox.Limits) (*client.Session, error) {
	conn, err := o.rt.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	config := &guestv1.GuestConfig{
		MemoryLimit: limits.Memory, MaxPids: limits.Pids, OpenFiles: limits.OpenFiles,
		User: o.image.Config.User, Workdir: o.image.Config.Workdir,
		MaxExecs: sandbox.MaxExecs, MaxQueued: sandbox.MaxQueuedExecs, RingSize: sandbox.DefaultRing,
	}
	for _, e := range o.image.Config.Env {
		config.Env = append(config.Env, []byte(e))
	}
	return client.New(ctx, conn, client.Options{SandboxID: id, Hostname: ids.Short(id), Epoch: 1, Config: config})
}

func (o *own) destroy(ctx context.Context, b *box) error {
	_ = b.session.Close() // the sandbox goes
	return o.rt.Destroy(ctx, b.id)
}

// exec runs a command that must succeed.
func (b *box) exec(ctx context.Context, argv ...string) error {
	return check(b.session.Run(ctx, sandbox.Command{Argv: argv}, nil))
}

func check(res *sandbox.Result, err error) error {
	if err == nil && res.ShellCode() != 0 {
		err = fmt.Errorf("%s with %d: %s%s", res.Outcome, res.ShellCode(), res.Reason, res.Stderr)
	}
	return err
}

// stream runs a command as root whose standard output goes to out.
func (b *box) stream(ctx context.Context, out io.Writer, argv ...string) error {
	p, err := b.session.Start(ctx, "bench-"+ids.Hex(6), sandbox.Command{Argv: argv, User: "root", MaxOutput: -1}, client.Output{Stdout: out})
	if err != nil {
		return err
	}
	return check(p.Wait(ctx))
}

// swallow sends data through the channel to a program that drops it.
func (b *box) swallow(ctx context.Context, data []byte) error {
	return check(b.session.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", "cat >/dev/null"}, Stdin: true}, bytes.NewReader(data)))
}

func (b *box) upload(ctx context.Context, name string, data []byte) error {
	return b.session.WriteFile(ctx, name, bytes.NewReader(data), client.WriteOptions{})
}

func (b *box) download(ctx context.Context, name string) error {
	r, err := b.session.ReadFile(ctx, name, client.ReadOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
