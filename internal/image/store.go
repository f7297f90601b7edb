package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentbox/internal/image/erofs"
	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
)

// Store keeps images in a directory:
//
//	lock            held while records change or files are looked for to remove
//	build-NAME.lock held while NAME is built; its content tells how far that is
//	layout.lock     held while an EROFS file is made
//	names/NAME.json one record per image
//	sources/        tars, compressed by us, by the digest of the tar
//	blobs/          manifests, configurations and layers as others made them, by
//	                digest
//	partial/        blobs that are not whole yet, each locked while it grows
//	erofs/          EROFS files, by digest and layout; each is locked shared by
//	                every sandbox that uses it
//	tmp/            files and directories of operations that run, each locked
type Store struct {
	dir    string
	agent  Agent
	limits erofs.Limits
	needed func() ([]string, error) // see KeepFor
}

const (
	namesDir   = "names"
	sourcesDir = "sources"
	blobsDir   = "blobs"
	partialDir = "partial"
	erofsDir   = "erofs"
	tmpDir     = "tmp"
	recordExt  = ".json"
	sourceExt  = ".tar.zst"
	erofsExt   = ".erofs"
)

// Open opens the store in dir, which is made if need be. What a killed process
// left half-written is removed.
func Open(dir string, agent Agent) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	s := &Store{dir: dir, agent: agent, limits: erofs.DefaultLimits}
	// The user that apt downloads as must be able to pass.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	for name, mode := range map[string]fs.FileMode{namesDir: 0o700, sourcesDir: 0o700, blobsDir: 0o700, partialDir: 0o700, erofsDir: 0o700, tmpDir: 0o711} {
		if err := os.MkdirAll(filepath.Join(dir, name), mode); err != nil {
			return nil, fmt.Errorf("open image store: %w", err)
		}
	}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open image store: %w", err)
	}
	return s, nil
}

// record is what the store knows of an image.
type record struct {
	Name     string    `json:"name"`
	Digest   string    `json:"digest"`
	Created  time.Time `json:"created"`
	Recipe   string    `json:"recipe,omitempty"` // Recipe.id
	Config   Config    `json:"config"`
	Packages []string  `json:"packages,omitempty"`
	Source   string    `json:"source,omitempty"`
	// Of images of the image specification; Digest is their manifest's.
	ConfigDigest string      `json:"config_digest,omitempty"`
	Platform     string      `json:"platform,omitempty"`
	Layers       []oci.Layer `json:"layers,omitempty"`
}

// maxRecord bounds the size of a record.
const maxRecord = 8 << 20

// lock takes the store's lock.
func (s *Store) lock(ctx context.Context) (*os.File, error) {
	return openLock(ctx, filepath.Join(s.dir, "lock"), func(*os.File) {})
}

func (s *Store) recordPath(name string) string {
	return filepath.Join(s.dir, namesDir, strings.ReplaceAll(name, "/", "%2F")+recordExt)
}

func (s *Store) sourcePath(digest string) string {
	return filepath.Join(s.dir, sourcesDir, digestHex(digest)+sourceExt)
}

const digestPrefix = "sha256:"

func digestHex(digest string) string { return strings.TrimPrefix(digest, digestPrefix) }

// record reads the record of an image.
func (s *Store) record(name string) (record, error) {
	f, err := os.Open(s.recordPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, fmt.Errorf("no image %q: %s: %w", name, howToGet(name), errdefs.ErrNotFound)
	}
	if err != nil {
		return record{}, fmt.Errorf("open image %q: %w", name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return record{}, fmt.Errorf("read image %q: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, fmt.Errorf("read image %q: %w: %w", name, err, errdefs.ErrDataLoss)
	}
	if r.Name != name || !r.plausible() {
		return record{}, fmt.Errorf("image %q has a bad record: %w", name, errdefs.ErrDataLoss)
	}
	return r, nil
}

// plausible checks what becomes the name of a file.
func (r record) plausible() bool {
	for _, d := range r.blobs() {
		if sum, err := hex.DecodeString(digestHex(d)); err != nil || len(sum) != sha256.Size {
			return false
		}
	}
	return true
}

// find reads the record of an image by what somebody calls it: its name as it
// stands, or a reference whose full form is a name.
func (s *Store) find(name string) (record, error) {
	var err error
	if validName().MatchString(name) {
		var r record
		if r, err = s.record(name); !errdefs.IsNotFound(err) {
			return r, err
		}
	}
	ref, bad := oci.ParseRef(name)
	switch {
	case bad != nil && err != nil:
		return record{}, err
	case bad != nil:
		return record{}, bad
	}
	r, missing := s.record(ref.String())
	if err != nil && errdefs.IsNotFound(missing) {
		return record{}, err // names it as the caller did
	}
	return r, missing
}

// howToGet says how an image comes here.
func howToGet(name string) string {
	switch {
	case HasRecipe(name):
		return "agentbox images build " + name
	case validName().MatchString(name):
		return "agentbox images build " + name + " --recipe FILE, or load or pull it"
	}
	return "agentbox images pull " + name
}

// records reads all records, sorted by name. Good ones are returned even if
// others are damaged, which the error tells.
func (s *Store) records() ([]record, error) {
	files, err := os.ReadDir(filepath.Join(s.dir, namesDir))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var all []record
	var errs error
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), recordExt)
		if !ok {
			continue
		}
		name = strings.ReplaceAll(name, "%2F", "/")
		r, err := s.record(name)
		switch {
		case err == nil:
			all = append(all, r)
		case !errdefs.IsNotFound(err): // or removed just now
			errs = errors.Join(errs, err)
		}
	}
	return all, errs
}

// save writes a record. The store's lock is held.
func (s *Store) save(r record) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write image %q: %w", r.Name, err)
	}
	// Not in tmp: the store's lock, which keeps sweeps away, is held.
	tmp := s.recordPath(r.Name) + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write image %q: %w", r.Name, err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = publish(tmp, s.recordPath(r.Name))
	}
	if err != nil {
		_ = os.Remove(tmp) // if it is still there
		return fmt.Errorf("write image %q: %w", r.Name, err)
	}
	return nil
}

// publish renames a finished file and makes the name durable.
func publish(tmp, path string) error {
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("publish %s: %w", path, err)
	}
	return nil
}

// Resolve returns an image that is ready for use, and makes its EROFS file if
// there is none for the current agent. NotFound says how to get the image.
// Nothing keeps the file from being removed later: users of it call Acquire.
func (s *Store) Resolve(ctx context.Context, name string) (Image, error) {
	img, release, err := s.Acquire(ctx, name)
	if err == nil {
		release()
	}
	return img, err
}

// Acquire is Resolve, and keeps the image from being removed until release is
// called or the process ends. release may be called more than once.
func (s *Store) Acquire(ctx context.Context, name string) (img Image, release func(), err error) {
	r, f, err := s.current(ctx, name)
	if err != nil {
		return Image{}, nil, s.explainFull(err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return Image{}, nil, fmt.Errorf("prepare image %q: %w", name, err)
	}
	now := time.Now()
	_ = os.Chtimes(f.Name(), now, now) // when it was used last, for prune
	return r.image(f.Name(), st.Size()), func() { f.Close() }, nil
}

// Hold keeps a root file system that Acquire gave to another process from being
// removed, until release is called or this process ends. path is Image.Path, also
// of before the store was moved. NotFound: it was removed meanwhile.
func (s *Store) Hold(ctx context.Context, path string) (release func(), err error) {
	if filepath.Base(filepath.Dir(path)) != erofsDir || filepath.Ext(path) != erofsExt {
		return nil, fmt.Errorf("hold %s: it is no root file system of this store: %w", path, errdefs.ErrInvalidArgument)
	}
	path = filepath.Join(s.dir, erofsDir, filepath.Base(path))
	f, err := openShared(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("hold %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// current returns the record of an image and its EROFS file, locked shared.
func (s *Store) current(ctx context.Context, name string) (record, *os.File, error) {
	for {
		r, err := s.find(name)
		if err != nil {
			return record{}, nil, err
		}
		f, err := s.ready(ctx, r, func(Event) {})
		if err == nil {
			return r, f, nil
		}
		// It may have been removed or made anew in the middle.
		now, again := s.find(name)
		if again != nil {
			return record{}, nil, again
		}
		if now.key() == r.key() {
			return record{}, nil, fmt.Errorf("prepare image %q: %w", name, err)
		}
	}
}

func (r record) image(path string, size int64) Image {
	return Image{
		Name: r.Name, Digest: r.Digest, Path: path, Size: size, Created: r.Created, Config: r.Config,
		Source: r.Source, ConfigDigest: r.ConfigDigest, Platform: r.Platform, Layers: r.Layers,
	}
}

// List returns all images, sorted by name. With an error it returns those that
// can be read.
func (s *Store) List() ([]Image, error) {
	records, err := s.records()
	images := make([]Image, 0, len(records))
	for _, r := range records {
		images = append(images, s.describe(r))
	}
	return images, err
}

// Inspect describes an image without making anything of it.
func (s *Store) Inspect(name string) (Image, error) {
	r, err := s.find(name)
	if err != nil {
		return Image{}, err
	}
	return s.describe(r), nil
}

func (s *Store) describe(r record) Image {
	path := s.erofsPath(r)
	if st, err := os.Stat(path); err == nil {
		return r.image(path, st.Size())
	}
	if st, err := os.Stat(s.sourcePath(r.Digest)); err == nil {
		return r.image("", st.Size())
	}
	var size int64
	for _, l := range r.Layers {
		size += l.Size
	}
	return r.image("", size)
}

// Packages returns names and versions of the packages that an image was made
// of, one "name version" each. It is empty for imported images.
func (s *Store) Packages(name string) ([]string, error) {
	r, err := s.find(name)
	return r.Packages, err
}

// Remove removes an image. It is FailedPrecondition while a sandbox uses it.
func (s *Store) Remove(name string) error {
	l, err := s.lock(context.Background())
	if err != nil {
		return fmt.Errorf("remove image %q: %w", name, err)
	}
	defer l.Close()
	r, err := s.find(name)
	if err != nil && !errdefs.IsDataLoss(err) {
		return err
	}
	if err == nil {
		name = r.Name
	}
	others, othersErr := s.records()
	shared := slices.ContainsFunc(others, func(o record) bool { return o.Name != name && o.key() == r.key() })
	if err == nil && !shared {
		needed, err := s.neededNames()
		if err != nil {
			return fmt.Errorf("remove image %q: %w", name, err)
		}
		busy, err := s.inUse(r.key(), needed)
		if err != nil {
			return fmt.Errorf("remove image %q: %w", name, err)
		}
		if busy {
			return fmt.Errorf("image %q is used by a sandbox: %w", name, errdefs.ErrFailedPrecondition)
		}
	}
	if err := os.Remove(s.recordPath(name)); err != nil {
		return fmt.Errorf("remove image %q: %w", name, err)
	}
	if othersErr != nil {
		return nil // prune would refuse: a record that can't be read may need files
	}
	return s.prune(grace)
}
