package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
)

// LoadOptions say what to take from an archive.
type LoadOptions struct {
	// Name for the one image that the archive has; empty: the names that the
	// archive gives.
	Name string
	// Platform, such as "linux/amd64". Empty: this machine's.
	Platform string
	// Progress is told what happens, one call at a time. It may be nil.
	Progress func(Event)
}

func (o LoadOptions) withDefaults() (LoadOptions, error) {
	if o.Platform == "" {
		o.Platform = oci.DefaultPlatform()
	}
	if o.Progress == nil {
		o.Progress = func(Event) {}
	}
	if o.Name != "" {
		var err error
		if o.Name, err = fullName(o.Name, ""); err != nil {
			return o, err
		}
	}
	return o, oci.CheckPlatform(o.Platform)
}

// fullName is the name that a record gets for what somebody calls an image: a
// local name as it stands, or a reference in its full form. A digest in it is a
// promise, which only the image of that digest keeps.
func fullName(name, digest string) (string, error) {
	if validName().MatchString(name) {
		return name, nil
	}
	ref, err := oci.ParseRef(name)
	if err != nil {
		return "", err
	}
	if d := ref.Digest(); d != "" && d != digest {
		return "", fmt.Errorf("an image of an archive can't be called %s, after a digest that is not known to be its own: name it with --name: %w", ref, errdefs.ErrInvalidArgument)
	}
	return ref.String(), nil
}

// Load takes the images of an archive: what "docker save" writes, or the layout
// of the image specification as a tar, either of them also compressed. An image
// that can't be used leaves nothing behind; those before it stay.
func (s *Store) Load(ctx context.Context, r io.Reader, opts LoadOptions) (all []Image, err error) {
	defer func() { err = s.explainFull(err) }()
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	f, end, err := s.seekable(ctx, r, opts.Progress)
	if err != nil {
		return nil, err
	}
	defer end()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read image archive: %w", err)
	}
	a, err := oci.OpenTar(f, st.Size())
	if err != nil {
		return nil, err
	}
	return s.load(ctx, a, opts)
}

// LoadDir takes the images of an image layout in a directory.
func (s *Store) LoadDir(ctx context.Context, dir string, opts LoadOptions) ([]Image, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	a, err := oci.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	images, err := s.load(ctx, a, opts)
	return images, errors.Join(s.explainFull(err), a.Close())
}

// seekable is r as a file that is not compressed: r itself, or a copy.
func (s *Store) seekable(ctx context.Context, r io.Reader, report func(Event)) (*os.File, func(), error) {
	if f, ok := r.(*os.File); ok {
		head := make([]byte, 4)
		if _, err := f.ReadAt(head, 0); err == nil && oci.Detect(head) == oci.Uncompressed {
			return f, func() {}, nil
		}
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			if err := s.room(st.Size()); err != nil { // uncompressed it takes as much at least
				return nil, nil, fmt.Errorf("read image archive: %w", err)
			}
		}
	}
	report(Event{Phase: "read", Percent: -1, Line: "reading the archive"})
	z, err := oci.Decompress(bufio.NewReaderSize(contextReader{ctx, r}, 1<<18))
	if err != nil {
		return nil, nil, fmt.Errorf("this is no image archive, or it is damaged: %w", err)
	}
	defer z.Close()
	f, err := s.tempFile(ctx)
	if err != nil {
		return nil, nil, err
	}
	end := func() { _ = discard(f) } // the next sweep tries again
	n, err := io.Copy(f, io.LimitReader(z, maxSource+1))
	if err == nil && n > maxSource {
		err = fmt.Errorf("it is bigger than %d bytes: %w", int64(maxSource), errdefs.ErrResourceExhausted)
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("read image archive: %w", err)
	}
	return f, end, nil
}

func (s *Store) load(ctx context.Context, a *oci.Archive, opts LoadOptions) ([]Image, error) {
	stored, err := a.Images(opts.Platform)
	if err != nil {
		return nil, err
	}
	if opts.Name != "" && len(stored) > 1 {
		return nil, fmt.Errorf("the archive has %d images, one name can't be given to all: %w", len(stored), errdefs.ErrInvalidArgument)
	}
	var all []Image
	for i := range stored {
		names, err := namesFor(&stored[i], opts.Name)
		if err != nil {
			return all, err
		}
		got, err := s.loadOne(ctx, &stored[i], names, opts.Progress)
		all = append(all, got...)
		if err != nil {
			return all, fmt.Errorf("load image %q: %w", names[0], err)
		}
	}
	return all, nil
}

// namesFor are the names that an image of an archive gets.
func namesFor(img *oci.Stored, given string) ([]string, error) {
	if given != "" {
		return []string{given}, nil
	}
	if len(img.Names) == 0 {
		return nil, fmt.Errorf("the image has no name in the archive: give it one with --name: %w", errdefs.ErrInvalidArgument)
	}
	var names []string
	for _, n := range img.Names {
		full, err := fullName(n, img.Digest)
		if err != nil {
			return nil, err
		}
		names = append(names, full)
	}
	return names, nil
}

func (s *Store) loadOne(ctx context.Context, img *oci.Stored, names []string, report func(Event)) (all []Image, err error) {
	in := s.newIntake()
	defer func() { err = errors.Join(err, in.close(), s.tidy(ctx, err)) }()
	if err := s.room(s.layersSize(img.Layers, true) + s.rootSize(newRecord(img.Image, FromArchive))); err != nil {
		return nil, err
	}
	for i, l := range img.Layers {
		report(Event{Phase: "load", Percent: i * packFrom / len(img.Layers), Line: fmt.Sprintf("layer %d of %d of %s", i+1, len(img.Layers), names[0])})
		if err := in.takeLayer(ctx, l, func() (io.ReadCloser, error) { return img.OpenLayer(i) }); err != nil {
			return nil, err
		}
	}
	return s.keepImage(ctx, in, img.Image, FromArchive, names, report)
}

// takeLayer stores a layer of an archive.
func (in *intake) takeLayer(ctx context.Context, l oci.Layer, open func() (io.ReadCloser, error)) error {
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	if l.Digest == l.DiffID {
		return in.putTar(ctx, l.Digest, r)
	}
	return in.put(ctx, l.Digest, r)
}

// tidy removes what a failed operation put into the store.
func (s *Store) tidy(ctx context.Context, failed error) error {
	if failed == nil {
		return nil
	}
	l, err := s.lock(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer l.Close()
	_ = s.prune(grace) // what is in the way of it is no part of this failure
	return nil
}

// Save writes images as an archive that other container tools read. An image
// that was not made by one becomes an image of one uncompressed layer.
func (s *Store) Save(ctx context.Context, w io.Writer, names ...string) error {
	out := oci.NewSaver(w)
	for _, name := range names {
		if err := s.saveOne(ctx, out, name); err != nil {
			return fmt.Errorf("save image %q: %w", name, err)
		}
	}
	return out.Close()
}

func (s *Store) saveOne(ctx context.Context, out *oci.Saver, name string) error {
	img, release, err := s.Acquire(ctx, name) // so that nothing of it is removed meanwhile
	if err != nil {
		return err
	}
	defer release()
	r, err := s.find(img.Name)
	if err != nil {
		return err
	}
	var saved oci.Image
	if r.isLayered() {
		saved, err = s.storedImage(r)
	} else {
		saved, err = s.tarImage(ctx, r)
	}
	if err != nil {
		return err
	}
	tag := r.Name
	if ref, err := oci.ParseRef(r.Name); err == nil {
		tag = ref.String() // docker wants a tag
	}
	return out.Add(saved, []string{tag}, func(l oci.Layer) (io.ReadCloser, error) { return s.openLayer(ctx, l) })
}

// storedImage reads back what came with the image.
func (s *Store) storedImage(r record) (oci.Image, error) {
	manifest, err := os.ReadFile(s.blobPath(r.Digest))
	if err != nil {
		return oci.Image{}, fmt.Errorf("open manifest: %w: %w", err, errdefs.ErrDataLoss)
	}
	config, err := os.ReadFile(s.blobPath(r.ConfigDigest))
	if err != nil {
		return oci.Image{}, fmt.Errorf("open configuration: %w: %w", err, errdefs.ErrDataLoss)
	}
	return oci.Parse(manifest, config)
}

// tarImage makes an image of one layer of an image that is one tar.
func (s *Store) tarImage(ctx context.Context, r record) (oci.Image, error) {
	var size int64
	err := s.readSource(ctx, r.Digest, func(tar io.Reader) error {
		var err error
		size, err = io.Copy(io.Discard, tar)
		return err
	})
	if err != nil {
		return oci.Image{}, err
	}
	c := r.Config
	return oci.FromTar(oci.Settings{User: c.User, Workdir: c.Workdir, Env: c.Env}, r.Digest, size)
}

// openLayer opens a layer as it was transferred.
func (s *Store) openLayer(ctx context.Context, l oci.Layer) (io.ReadCloser, error) {
	f, err := os.Open(s.blobPath(l.Digest))
	if err == nil {
		return f, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open layer: %w", err)
	}
	pr, pw := io.Pipe()
	go func() {
		pw.CloseWithError(s.readSource(ctx, l.Digest, func(tar io.Reader) error {
			_, err := io.Copy(pw, tar)
			return err
		}))
	}()
	return pr, nil
}
