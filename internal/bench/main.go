// Command bench measures what agentbox costs, beside Docker and runc in the same
// run where a Docker engine can be had, and what making a root file system costs,
// beside mkfs.erofs where it is installed: a table on standard output, and the same
// as JSON in a file. It asserts nothing. scripts/bench.sh runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if isRawGuest() {
		fmt.Fprintln(os.Stderr, "bench:", rawGuest())
		os.Exit(1)
	}
	dataDir := flag.String("data-dir", "", "data directory with the image")
	image := flag.String("image", "small", "image to measure with")
	out := flag.String("json", "", "file for the figures")
	program := flag.String("agentbox", "bin/agentbox", "the program, for its daemon")
	docker := flag.Bool("docker", true, "compare with Docker, also in one step alone")
	quick := flag.Bool("quick", false, "few samples, to see whether it works")
	only := flag.String("only", "", "the one step to take, such as files")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, bench{program: *program, dataDir: *dataDir, image: *image, only: *only, div: 1}, *out, *quick, *docker)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, b bench, out string, quick, docker bool) (err error) {
	r := &report{Time: time.Now(), Machine: describe()}
	o, err := openOwn(ctx, b.dataDir, b.image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close(context.WithoutCancel(ctx))) }()
	c := o.rt.Capabilities()
	r.Agentbox = fmt.Sprintf("%s %s, %s", c.Name, c.Version, c.Mode)

	b.own, b.report = o, r
	if quick {
		b.div = 10
	}
	dir, err := os.MkdirTemp("", "agentbox-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b.dir, r.Docker = dir, "not measured"
	if docker {
		say("starting a Docker engine to compare with")
		d, err := startDocker(ctx, filepath.Join(dir, "docker"))
		if err != nil {
			r.Docker += ": " + err.Error()
		} else {
			defer d.stop()
			if r.Docker, err = d.version(ctx); err != nil {
				return err
			}
			b.docker = d.docker
		}
	}
	failed := b.all(ctx) // what was measured before is reported all the same
	err = errors.Join(failed, r.print(os.Stdout))
	if out != "" {
		err = errors.Join(err, r.save(out))
	}
	return err
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
