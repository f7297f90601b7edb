package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"agentbox/internal/image/oci"

	"github.com/containerd/errdefs"
)

// Where images come from, Image.Source.
const (
	FromRecipe   = "recipe"
	FromTar      = "tar"
	FromArchive  = "archive"
	FromRegistry = "registry"
)

// isLayered reports an image that has layers of the image specification; others
// are one tar.
func (r record) isLayered() bool { return r.ConfigDigest != "" }

// key names the EROFS files of an image, in hex. Images that give the same root
// file system share it. What furnish makes of the configuration is part of it.
func (r record) key() string {
	if !r.isLayered() {
		return digestHex(r.Digest)
	}
	sum := sha256.New()
	for _, l := range r.Layers {
		fmt.Fprintln(sum, l.DiffID)
	}
	fmt.Fprintf(sum, "workdir %q\n", r.Config.Workdir)
	return hex.EncodeToString(sum.Sum(nil))
}

// blobs are the digests of everything that is kept of the image, apart from
// EROFS files.
func (r record) blobs() []string {
	all := []string{r.Digest}
	if r.isLayered() {
		all = append(all, r.ConfigDigest)
	}
	for _, l := range r.Layers {
		all = append(all, l.Digest)
	}
	return all
}

// newRecord is the record of an image of the image specification.
func newRecord(img oci.Image, source string) record {
	s := img.Settings
	user := s.User
	if user == "" || user == "root" { // by number, because an image need not have a list of users
		user = "0"
	}
	return record{
		Digest: img.Digest, ConfigDigest: img.ConfigDigest, Layers: img.Layers, Platform: img.Platform, Source: source,
		Config: Config{
			User: user, Workdir: s.Workdir, Env: s.Env, Entrypoint: s.Entrypoint, Cmd: s.Cmd,
			ExposedPorts: s.ExposedPorts, StopSignal: s.StopSignal,
		},
	}
}

// keepImage gives an image, whose layers in holds, its names when it proves to
// make a good root file system.
func (s *Store) keepImage(ctx context.Context, in *intake, img oci.Image, source string, names []string, report func(Event)) ([]Image, error) {
	for _, b := range []struct {
		digest  string
		content []byte
	}{{img.Digest, img.Manifest}, {img.ConfigDigest, img.Config}} {
		if err := in.put(ctx, b.digest, bytes.NewReader(b.content)); err != nil {
			return nil, err
		}
	}
	var all []Image
	for _, name := range names {
		r := newRecord(img, source)
		r.Name = name
		got, err := s.commit(ctx, r, report)
		if err != nil {
			return all, err
		}
		all = append(all, got)
	}
	return all, nil
}

// readRoot calls apply with the tars that make the root file system of an image,
// lowest first.
func (s *Store) readRoot(ctx context.Context, r record, apply func(io.Reader) error) error {
	if !r.isLayered() {
		return s.readSource(ctx, r.Digest, apply)
	}
	left := s.maxUncompressed()
	for i, l := range r.Layers {
		if err := s.readLayer(ctx, l, &left, apply); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(r.Layers), err)
		}
	}
	return nil
}

// maxUncompressed bounds the bytes of all layers of an image, uncompressed: data, and
// for each entry two blocks of a tar and a name.
func (s *Store) maxUncompressed() int64 { return s.limits.MaxBytes + 2048*s.limits.MaxEntries }

// readLayer calls apply with a layer as a tar, and checks that it is the one
// that the image names.
func (s *Store) readLayer(ctx context.Context, l oci.Layer, left *int64, apply func(io.Reader) error) error {
	limited := func(r io.Reader) error { return apply(&boundedReader{r, left}) }
	f, err := os.Open(s.blobPath(l.Digest))
	if errors.Is(err, os.ErrNotExist) && l.Digest == l.DiffID {
		return s.readSource(ctx, l.Digest, limited)
	}
	if err != nil {
		return fmt.Errorf("open layer: %w: %w", err, errdefs.ErrDataLoss)
	}
	defer f.Close()
	z, err := oci.Decompress(contextReader{ctx, f})
	if err != nil {
		return err
	}
	defer z.Close()
	return readWhole(z, l.DiffID, limited)
}

// maxTrailing is what may stand behind the end of a layer's tar: tools fill the
// last record, of 10 KiB or, rarely, a megabyte or two.
const maxTrailing = 4 << 20

// readWhole calls read with r, reads the rest, and checks that everything has
// the digest.
func readWhole(r io.Reader, digest string, read func(io.Reader) error) error {
	sum := sha256.New()
	tee := io.TeeReader(r, sum)
	rest := tee
	if read != nil {
		if err := read(tee); err != nil {
			return err
		}
		rest = io.LimitReader(tee, maxTrailing+1)
	}
	n, err := io.Copy(io.Discard, rest)
	if err != nil {
		return err
	}
	if read != nil && n > maxTrailing {
		return fmt.Errorf("more than %d bytes stand behind the end of the tar: %w", maxTrailing, errdefs.ErrInvalidArgument)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digestHex(digest) {
		return fmt.Errorf("content has digest sha256:%s, the image says %s: %w", got, digest, errdefs.ErrDataLoss)
	}
	return nil
}

// boundedReader fails when what is left for all layers is used up.
type boundedReader struct {
	r    io.Reader
	left *int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if *b.left <= 0 {
		return 0, fmt.Errorf("the image's layers are bigger than the limit, uncompressed: %w", errdefs.ErrResourceExhausted)
	}
	n, err := b.r.Read(p[:min(int64(len(p)), *b.left)])
	*b.left -= int64(n)
	return n, err
}
