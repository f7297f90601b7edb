package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settle is how long what was made is left alone before its memory is read.
const settle = 5 * time.Second

// memory measures what an idle sandbox holds, by its own processes and by what
// the machine has less.
func (b *bench) memory(ctx context.Context) error {
	for _, count := range []int{20, 100} {
		var proportional, available, dProportional, dAvailable samples
		n := b.n(count)
		if err := b.idle(ctx, n, &proportional, &available); err != nil {
			return err
		}
		if b.docker != nil && count == 20 {
			if err := b.dockerIdle(ctx, n, &dProportional, &dAvailable); err != nil {
				return err
			}
		}
		b.report.add(fmt.Sprintf("idle memory, each of %d, PSS", n), "MB", proportional, dProportional, "<= 14 MB")
		b.report.add(fmt.Sprintf("idle memory, each of %d, MemAvailable", n), "MB", available, dAvailable, "<= 14 MB")
	}
	return nil
}

func (b *bench) idle(ctx context.Context, n int, proportional, available *samples) (err error) {
	var boxes []*box
	defer func() {
		for _, sb := range boxes {
			err = errors.Join(err, b.own.destroy(ctx, sb))
		}
	}()
	before := meminfo("MemAvailable")
	for range n {
		sb, _, err := b.own.create(ctx)
		if err != nil {
			return fmt.Errorf("sandbox %d: %w", len(boxes)+1, err)
		}
		boxes = append(boxes, sb)
	}
	time.Sleep(settle)
	*available = append(*available, (before-meminfo("MemAvailable"))/float64(n))
	all, err := b.own.rt.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		*proportional = append(*proportional, pss(s.Pid))
	}
	return nil
}

func (b *bench) dockerIdle(ctx context.Context, n int, proportional, available *samples) (err error) {
	var containers []string
	defer func() {
		for _, id := range containers {
			err = errors.Join(err, b.docker.destroy(ctx, id))
		}
	}()
	before := meminfo("MemAvailable")
	for range n {
		id, err := b.docker.create(ctx)
		if err != nil {
			return err
		}
		containers = append(containers, id)
		if err := b.docker.start(ctx, id); err != nil {
			return err
		}
	}
	time.Sleep(settle)
	*available = append(*available, (before-meminfo("MemAvailable"))/float64(n))
	for _, id := range containers {
		shim, err := b.docker.shim(ctx, id)
		if err != nil {
			return err
		}
		*proportional = append(*proportional, pss(shim))
	}
	return nil
}
