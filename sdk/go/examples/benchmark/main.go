// Benchmark measures sessions of the gRPC interface at the server that AGENTBOX_URL names:
// how long one takes to come about, how long a command takes, alone and with many
// sessions at once, and the memory of a session.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	agentbox "agentbox/sdk/go"
	"agentbox/sdk/go/sandbox"
)

// settle is how long sessions rest before their memory is looked at.
const settle = time.Second

type benchmark struct {
	url                       string
	client                    *agentbox.Client
	cold, exec, memory, crowd int
}

func main() {
	b := benchmark{url: os.Getenv("AGENTBOX_URL")}
	flag.IntVar(&b.cold, "cold-start-iterations", 10, "how many sessions are made to see how long that takes")
	flag.IntVar(&b.exec, "exec-iterations", 50, "how many commands are run to see how long that takes")
	flag.IntVar(&b.memory, "memory-sessions", 5, "of how many sessions the memory is looked at")
	flag.IntVar(&b.crowd, "max-concurrent", 20, "how many sessions run commands at once, at most; in steps of five")
	skip := flag.String("skip", "", "what is left out, of cold exec memory concurrent, with commas")
	flag.Parse()
	left := append(strings.Split(*skip, ","), flag.Args()...) // --skip cold exec is taken, too
	if err := b.run(context.Background(), left); err != nil {
		log.Fatal(err)
	}
}

func (b *benchmark) run(ctx context.Context, skip []string) (err error) {
	if b.client, err = agentbox.NewClient(); err != nil {
		return err
	}
	defer b.client.Close()
	if b.url == "" {
		b.url = agentbox.DefaultURL
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"cold", b.coldStart}, {"exec", b.execs}, {"memory", b.memories}, {"concurrent", b.concurrent}} {
		if slices.Contains(skip, part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	return nil
}

// session is one that has run a command.
func (b *benchmark) session(ctx context.Context) (*sandbox.Sandbox, error) {
	s := sandbox.New(b.url)
	if _, err := s.Create(ctx, sandbox.Options{}); err != nil {
		return nil, err
	}
	return s, hello(ctx, s)
}

func hello(ctx context.Context, s *sandbox.Sandbox) error {
	r, err := s.Exec(ctx, "echo hello", sandbox.ExecOptions{})
	if err == nil && r.GetStdout() != "hello\n" {
		err = fmt.Errorf("echo hello said %q", r.GetStdout()+r.GetStderr())
	}
	return err
}

func end(ctx context.Context, all ...*sandbox.Sandbox) {
	for _, s := range all {
		_, _ = s.Destroy(ctx) // the server ends it in time
		s.Close()
	}
}

func (b *benchmark) coldStart(ctx context.Context) error {
	var took []float64
	for range b.cold {
		s, began := sandbox.New(b.url), time.Now()
		if _, err := s.Create(ctx, sandbox.Options{}); err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
		end(ctx, s)
	}
	report("create a session", "ms", took)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (b *benchmark) execs(ctx context.Context) error {
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer end(ctx, s)
	var took []float64
	for range b.exec {
		began := time.Now()
		if err := hello(ctx, s); err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
	}
	report("run echo hello", "ms", took)
	return nil
}

func (b *benchmark) memories(ctx context.Context) error {
	var all []*sandbox.Sandbox
	defer func() { end(ctx, all...) }()
	for range b.memory {
		s, err := b.session(ctx)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	time.Sleep(settle)
	var used []float64
	for _, s := range all {
		stats, err := b.client.Box(s.SessionID()).Stats(ctx)
		if err != nil {
			return err
		}
		used = append(used, float64(stats.Memory)/(1<<20))
	}
	report("memory of a session", "MiB", used)
	return nil
}

func (b *benchmark) concurrent(ctx context.Context) error {
	var all []*sandbox.Sandbox
	defer func() { end(ctx, all...) }()
	for n := 5; n <= b.crowd; n += 5 {
		for len(all) < n {
			s, err := b.session(ctx)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		took, err := atOnce(ctx, all)
		if err != nil {
			return err
		}
		report(fmt.Sprintf("run echo hello, %d sessions at once", n), "ms", took)
	}
	return nil
}

// atOnce runs a command in all sessions at the same time.
func atOnce(ctx context.Context, all []*sandbox.Sandbox) ([]float64, error) {
	took, errs := make([]float64, len(all)), make([]error, len(all))
	var open sync.WaitGroup
	for i, s := range all {
		open.Go(func() {
			began := time.Now()
			errs[i] = hello(ctx, s)
			took[i] = ms(time.Since(began))
		})
	}
	open.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

func report(what, unit string, all []float64) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	at := func(q float64) float64 { return all[min(int(q*float64(len(all))), len(all)-1)] }
	fmt.Printf("%-40s mean %8.2f  median %8.2f  p95 %8.2f  min %8.2f  max %8.2f %s\n", what, sum/float64(len(all)), at(.5), at(.95), all[0], all[len(all)-1], unit)
}
