package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// bench takes the measurements. What is compared with Docker is measured in
// turns, so that a change of the machine's load meets both.
type bench struct {
	own    *own
	docker *docker // nil: there is none
	report *report
	div    int    // divides the number of samples
	only   string // the one step to take; "": all
	// program is agentbox itself, for its daemon; dataDir has the image, dir is for
	// what goes with the run.
	program, dataDir, dir, image string
}

func (b *bench) n(full int) int { return max(2, full/b.div) }

// sharing is the step that comparing takes.
const sharing = "giving Docker the same image"

func (b *bench) all(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{sharing, b.shareImage},
		{"cold start and end", b.cold},
		{"exec on a running sandbox", b.exec},
		{"through REST", b.rest},
		{"files", b.files},
		{"egress", b.egress},
		{"creates at once", b.throughput},
		{"idle memory", b.memory},
		{"making a root file system", b.flatten},
	} {
		if b.only != "" && b.only != step.name && step.name != sharing {
			continue
		}
		say("%s", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// packRoot writes a sandbox's root file system as a tar.
var packRoot = []string{"tar", "-C", "/", "--one-file-system", "--exclude=./proc", "--exclude=./sys", "--exclude=./dev", "-cf", "-", "."}

// shareImage imports the sandboxes' root file system.
func (b *bench) shareImage(ctx context.Context) error {
	if b.docker == nil {
		return nil
	}
	sb, _, err := b.own.create(ctx)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(sb.stream(ctx, w, packRoot...))
	}()
	err = b.docker.importImage(ctx, r)
	r.Close()
	return errors.Join(err, b.own.destroy(ctx, sb))
}

// pause lets what the sample before left to be cleaned up end: the ends of a
// container go on for some time after Docker's answer.
func pause() { time.Sleep(100 * time.Millisecond) }

func timed(s *samples, f func() error) error {
	began := time.Now()
	err := f()
	s.add(time.Since(began))
	return err
}

// cold measures from nothing to the answer of a first command, and the end.
func (b *bench) cold(ctx context.Context) error {
	var total, create, start, attach, exec, destroy samples
	var dTotal, dCreate, dStart, dExec, dDestroy samples
	for i := range b.n(30) + 1 {
		if i == 1 { // the first one warms the caches up
			for _, s := range []*samples{&total, &create, &start, &attach, &exec, &destroy, &dTotal, &dCreate, &dStart, &dExec, &dDestroy} {
				*s = nil
			}
		}
		pause()
		began := time.Now()
		sb, p, err := b.own.create(ctx)
		if err != nil {
			return err
		}
		create.add(p.create)
		start.add(p.start)
		attach.add(p.attach)
		err = timed(&exec, func() error { return sb.exec(ctx, "true") })
		total.add(time.Since(began))
		if err := errors.Join(err, timed(&destroy, func() error { return b.own.destroy(ctx, sb) })); err != nil {
			return err
		}
		if b.docker == nil {
			continue
		}
		pause()
		began = time.Now()
		var id string
		err = timed(&dCreate, func() (err error) { id, err = b.docker.create(ctx); return })
		if err == nil {
			err = timed(&dStart, func() error { return b.docker.start(ctx, id) })
		}
		if err == nil {
			err = timed(&dExec, func() error { return b.docker.exec(ctx, id, "true") })
		}
		dTotal.add(time.Since(began))
		if err := errors.Join(err, timed(&dDestroy, func() error { return b.docker.destroy(ctx, id) })); err != nil {
			return err
		}
	}
	r := b.report
	r.add("cold create to first exec answered", "ms", total, dTotal, "<= 150 ms, >= 2.5x")
	r.add("- create", "ms", create, dCreate, "")
	r.add("- start", "ms", start, dStart, "")
	r.add("- attach and greet", "ms", attach, nil, "")
	r.add("- first exec", "ms", exec, dExec, "")
	r.add("destroy", "ms", destroy, dDestroy, "")
	return nil
}

// running gives a sandbox and, where there is Docker, a container to f.
func (b *bench) running(ctx context.Context, f func(sb *box, container string) error) (err error) {
	sb, _, err := b.own.create(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.own.destroy(ctx, sb)) }()
	if b.docker == nil {
		return f(sb, "")
	}
	id, err := b.docker.create(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.docker.destroy(ctx, id)) }()
	if err := b.docker.start(ctx, id); err != nil {
		return err
	}
	return f(sb, id)
}

func (b *bench) exec(ctx context.Context) error {
	return b.running(ctx, func(sb *box, id string) error {
		for _, c := range []struct {
			name, budget string
			n            int
			argv         []string
		}{
			{"exec true, running sandbox", "<= 10.5 ms, >= 8x", 200, []string{"true"}},
			{"exec python3 -c pass", "", 50, []string{"python3", "-c", "pass"}},
		} {
			var own, docker samples
			for range b.n(c.n) {
				pause()
				if err := timed(&own, func() error { return sb.exec(ctx, c.argv...) }); err != nil {
					return err
				}
				if b.docker == nil {
					continue
				}
				pause()
				if err := timed(&docker, func() error { return b.docker.exec(ctx, id, c.argv...) }); err != nil {
					return err
				}
			}
			b.report.add(c.name, "ms", own, docker, c.budget)
		}
		return nil
	})
}

// throughput measures how many sandboxes per second become ready.
func (b *bench) throughput(ctx context.Context) error {
	for _, width := range []int{1, 2, 4} {
		var own, docker samples
		for range b.n(3) {
			rate, err := rate(b.n(20), width, func() (func() error, error) {
				sb, _, err := b.own.create(ctx)
				return func() error { return b.own.destroy(ctx, sb) }, err
			})
			if err != nil {
				return err
			}
			own = append(own, rate)
			if b.docker == nil {
				continue
			}
			rate, err = b.dockerRate(ctx, width)
			if err != nil {
				return err
			}
			docker = append(docker, rate)
		}
		b.report.add(fmt.Sprintf("creates per second, %d at once", width), "1/s", own, docker, "")
	}
	return nil
}

func (b *bench) dockerRate(ctx context.Context, width int) (float64, error) {
	return rate(b.n(20), width, func() (func() error, error) {
		id, err := b.docker.create(ctx)
		if err == nil {
			err = b.docker.start(ctx, id)
		}
		return func() error { return b.docker.destroy(ctx, id) }, err
	})
}

// rate makes n things, width at once, and returns how many per second; they are
// removed afterwards.
func rate(n, width int, create func() (remove func() error, err error)) (float64, error) {
	var mu sync.Mutex
	var removes []func() error
	var errs error
	var next atomic.Int64
	var workers sync.WaitGroup
	began := time.Now()
	for range width {
		workers.Go(func() {
			for next.Add(1) <= int64(n) {
				remove, err := create()
				mu.Lock()
				errs = errors.Join(errs, err)
				if err == nil {
					removes = append(removes, remove)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	took := time.Since(began)
	for _, remove := range removes {
		errs = errors.Join(errs, remove())
	}
	return float64(n) / took.Seconds(), errs
}
