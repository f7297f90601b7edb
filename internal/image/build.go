package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// BuildOptions say how an image is made.
type BuildOptions struct {
	// Recipe is a file. Empty: the built-in recipe of the image's name.
	Recipe string
	// Mirror is the URL of a Debian mirror, optionally followed by a comma and
	// the URL of the archive of its security updates. Empty: what the host's apt
	// uses.
	Mirror string
	// Progress is told what happens, one call at a time. It may be nil.
	Progress func(Event)
}

// Build makes the image name from a recipe, also if there is one already: the
// new one takes its name, sandboxes keep what they run on. When another process
// makes the same image at that moment, Build waits for it and returns its
// result.
func (s *Store) Build(ctx context.Context, name string, opts BuildOptions) (Image, error) {
	if err := checkName(name); err != nil {
		return Image{}, err
	}
	recipe, err := LoadRecipe(name, opts.Recipe)
	if err != nil {
		return Image{}, err
	}
	b := bootstrap{recipe: recipe, report: opts.Progress}
	if b.report == nil {
		b.report = func(Event) {}
	}
	if b.mirror, err = chooseMirror(opts.Mirror); err != nil {
		return Image{}, err
	}
	began := time.Now()
	l, err := s.lockBuild(ctx, name, b.report)
	if err != nil {
		return Image{}, err
	}
	defer l.Close()
	if r, err := s.record(name); err == nil && r.Created.After(began) && r.Recipe == recipe.id {
		return s.Resolve(ctx, name) // another process made it while we waited
	}
	b.report = relay(l, b.report)
	b.memory = memoryForScratch()
	img, err := s.build(ctx, name, b)
	if errors.Is(err, errNotInMemory) {
		b.memory = 0
		img, err = s.build(ctx, name, b)
	}
	if err != nil {
		return Image{}, fmt.Errorf("build image %q: %w", name, s.explainFull(err))
	}
	return img, nil
}

func chooseMirror(given string) (mirror, error) {
	if given != "" {
		return parseMirror(given)
	}
	return hostMirror(os.DirFS("/etc/apt"))
}

// build runs the recipe. The lock on the name is held.
func (s *Store) build(ctx context.Context, name string, b bootstrap) (img Image, err error) {
	dir, err := s.scratch(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = errors.Join(err, discard(dir)) }()
	b.dir = dir.Name()
	src, err := s.newSource(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	packages, err := b.run(ctx, src)
	if err != nil {
		return Image{}, err
	}
	config := Config{User: "user", Workdir: b.recipe.Workdir, Env: b.recipe.Env}
	return s.commitTar(ctx, src, record{Name: name, Source: FromRecipe, Recipe: b.recipe.id, Config: config, Packages: packages}, b.report)
}

// scratch makes the directory for a run of mmdebstrap. Without root the files
// in it belong to subordinate ids, which can't get below a private home
// directory.
func (s *Store) scratch(ctx context.Context) (*os.File, error) {
	if os.Geteuid() == 0 {
		return s.tempDir(ctx)
	}
	dir, err := os.MkdirTemp("", "agentbox-image-")
	if err != nil {
		return nil, fmt.Errorf("make temporary directory: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	return os.Open(dir)
}

// ImportTar makes the image name of an uncompressed tar of a root file system.
// Limits and checks are those of package erofs.
func (s *Store) ImportTar(ctx context.Context, name string, r io.Reader, config Config) (img Image, err error) {
	defer func() { err = s.explainFull(err) }()
	if err := checkName(name); err != nil {
		return Image{}, err
	}
	src, err := s.newSource(ctx)
	if err != nil {
		return Image{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	if _, err := io.Copy(src, io.LimitReader(contextReader{ctx, r}, maxSource+1)); err != nil {
		return Image{}, fmt.Errorf("import image %q: %w", name, err)
	}
	if img, err = s.commitTar(ctx, src, record{Name: name, Source: FromTar, Config: config}, func(Event) {}); err != nil {
		return Image{}, fmt.Errorf("import image %q: %w", name, err)
	}
	return img, nil
}

// maxSource bounds what is read of a tar; the EROFS writer refuses more anyway.
const maxSource = 128 << 30

// commitTar gives the tar in src a name, when it proves to make a good image.
func (s *Store) commitTar(ctx context.Context, src *sourceWriter, r record, report func(Event)) (Image, error) {
	var err error
	if r.Digest, err = src.finish(ctx, s); err != nil {
		return Image{}, err
	}
	return s.commit(ctx, r, report)
}

// commit writes the record of an image whose sources are there and held, when
// they prove to make a good root file system.
func (s *Store) commit(ctx context.Context, r record, report func(Event)) (Image, error) {
	f, err := s.ready(ctx, r, report)
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Image{}, err
	}
	l, err := s.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer l.Close()
	r.Created = time.Now().UTC()
	if err := s.save(r); err != nil {
		return Image{}, err
	}
	// What nobody needs any more is removed now or by the next one.
	_ = s.prune(grace)
	return r.image(f.Name(), st.Size()), nil
}

// lockBuild waits until no other process builds the image, and reports how far
// that one is.
func (s *Store) lockBuild(ctx context.Context, name string, report func(Event)) (*os.File, error) {
	var last Event
	return openLock(ctx, filepath.Join(s.dir, "build-"+name+".lock"), func(f *os.File) {
		e := Event{Phase: "wait", Percent: -1, Line: "another process builds this image"}
		buf := make([]byte, 4096)
		if n, _ := f.ReadAt(buf, 0); n > 0 {
			_ = json.NewDecoder(io.NewSectionReader(f, 0, int64(n))).Decode(&e) // half-written: the next one will do
		}
		if e != last {
			last = e
			report(e)
		}
	})
}

// relay reports events, and writes them to the lock file for those who wait.
func relay(l *os.File, report func(Event)) func(Event) {
	_ = l.Truncate(0)
	return func(e Event) {
		if text, err := json.Marshal(e); err == nil {
			_, _ = l.WriteAt(append(text, '\n'), 0)
		}
		report(e)
	}
}
