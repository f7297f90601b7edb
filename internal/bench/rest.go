package main

import (
	"context"
	"errors"
	"path/filepath"
)

// rest measures the daemon through its API, beside Docker's through its own and
// beside the engine without a daemon.
func (b *bench) rest(ctx context.Context) (err error) {
	s, err := startServed(ctx, b.program, b.dataDir, filepath.Join(b.dir, "served"), b.image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return errors.Join(b.restExec(ctx, s), b.commandLine(ctx, s), b.restCreate(ctx, s), b.rpc(ctx, s))
}

func (b *bench) restExec(ctx context.Context, s *served) error {
	id, err := s.create(ctx)
	if err != nil {
		return err
	}
	return b.running(ctx, func(sb *box, container string) error {
		var through, own, docker, first, dFirst samples
		for range b.n(200) {
			pause()
			err := timed(&through, func() error { return s.exec(ctx, id, "true") })
			pause()
			err = errors.Join(err, timed(&own, func() error { return sb.exec(ctx, "true") }))
			if err == nil && b.docker != nil {
				pause()
				err = timed(&docker, func() error { return b.docker.exec(ctx, container, "true") })
			}
			if err != nil {
				return err
			}
		}
		if err := s.stream(ctx, id, &first, b.n(100)); err != nil {
			return err
		}
		if b.docker != nil {
			if err := b.docker.stream(ctx, container, &dFirst, b.n(100)); err != nil {
				return err
			}
		}
		b.report.add("exec true through REST", "ms", through, docker, "<= engine + 1.5 ms, >= 8x")
		b.report.add("- the engine alone, in turns with it", "ms", own, nil, "")
		b.report.add("stream: first byte after the program's write", "ms", first, dFirst, "<= 5 ms")
		return s.destroy(ctx, id)
	})
}

// commandLine measures the program as its users call it: a process for each command.
func (b *bench) commandLine(ctx context.Context, s *served) error {
	id, err := s.create(ctx)
	if err != nil {
		return err
	}
	var whole samples
	for range b.n(50) {
		pause()
		if err := timed(&whole, func() error { return s.commandLine(ctx, "exec", id, "--", "true") }); err != nil {
			return err
		}
	}
	b.report.add("agentbox exec true, from its start to its end", "ms", whole, nil, "<= 40 ms")
	return s.destroy(ctx, id)
}

func (b *bench) restCreate(ctx context.Context, s *served) error {
	var through, docker samples
	for i := range b.n(30) + 1 {
		if i == 1 { // the first one warms the caches up
			through, docker = nil, nil
		}
		pause()
		var id string
		err := timed(&through, func() (err error) { id, err = s.create(ctx); return err })
		if err := errors.Join(err, s.destroy(ctx, id)); err != nil {
			return err
		}
		if b.docker == nil {
			continue
		}
		pause()
		var container string
		err = timed(&docker, func() (err error) {
			if container, err = b.docker.create(ctx); err == nil {
				err = b.docker.start(ctx, container)
			}
			return err
		})
		if err := errors.Join(err, b.docker.destroy(ctx, container)); err != nil {
			return err
		}
	}
	b.report.add("cold create through REST", "ms", through, docker, "<= 150 ms")
	return nil
}
