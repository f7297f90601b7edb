package oci

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Archive is a file or directory with images: what "docker save" writes, in its
// old and new forms, or a layout of the image specification.
type Archive struct {
	files files
	close func() error
}

// Stored is an image in an archive.
type Stored struct {
	Image
	// Names that the archive gives it. There may be none.
	Names []string
	open  []func() (io.ReadCloser, error)
}

// OpenLayer opens the layer of that number, as it is stored.
func (s *Stored) OpenLayer(i int) (io.ReadCloser, error) { return s.open[i]() }

// OpenTar opens an archive of size bytes, which is not compressed as a whole.
func OpenTar(r io.ReaderAt, size int64) (*Archive, error) {
	f, err := indexTar(r, size)
	if err != nil {
		return nil, err
	}
	return &Archive{files: f, close: func() error { return nil }}, nil
}

// OpenDir opens the layout in a directory.
func OpenDir(dir string) (*Archive, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open image layout: %w", err)
	}
	return &Archive{files: dirFiles{root}, close: root.Close}, nil
}

// Close closes what Open opened.
func (a *Archive) Close() error { return a.close() }

// maxImages bounds the images of one archive.
const maxImages = 1000

// Images reads what the archive has for a platform. If there are images, but
// none for it, the error lists the platforms that are there.
func (a *Archive) Images(platform string) ([]Stored, error) {
	index, err := readAll(a.files, "index.json", MaxManifest)
	if err == nil {
		return a.layout(index, platform)
	}
	if !errdefs.IsNotFound(err) {
		return nil, err
	}
	list, err := readAll(a.files, "manifest.json", MaxManifest)
	if errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("this is no image archive: it has neither index.json nor manifest.json: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, err
	}
	return a.docker(list, platform)
}

// dockerImage is an entry of manifest.json in what "docker save" writes.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func parseDocker(text []byte) ([]dockerImage, error) {
	var list []dockerImage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read manifest.json: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if len(list) > maxImages {
		return nil, fmt.Errorf("image archive has more than %d images: %w", maxImages, errdefs.ErrResourceExhausted)
	}
	for _, d := range list {
		if len(d.Layers) > MaxLayers || len(d.RepoTags) > maxImages {
			return nil, fmt.Errorf("manifest.json names too many layers or tags: %w", errdefs.ErrResourceExhausted)
		}
	}
	return list, nil
}

// docker reads the images of a "docker save".
func (a *Archive) docker(text []byte, platform string) ([]Stored, error) {
	list, err := parseDocker(text)
	if err != nil {
		return nil, err
	}
	var images []Stored
	var others []string
	for _, d := range list {
		s, err := a.dockerImage(d)
		if err != nil {
			return nil, err
		}
		if !fits(s.Platform, platform) {
			others = append(others, s.Platform)
			continue
		}
		images = append(images, s)
	}
	return images, orOther(images, platform, others)
}

func orOther(images []Stored, platform string, others []string) error {
	if len(images) == 0 {
		slices.Sort(others)
		return noPlatform(platform, slices.Compact(others))
	}
	return nil
}

func (a *Archive) dockerImage(d dockerImage) (Stored, error) {
	config, err := readAll(a.files, d.Config, MaxConfig)
	if err != nil {
		return Stored{}, err
	}
	img, err := parseConfig(config)
	if err != nil {
		return Stored{}, err
	}
	if len(img.Layers) != len(d.Layers) {
		return Stored{}, fmt.Errorf("image %.100q has %d layers and names the content of %d: %w", d.Config, len(d.Layers), len(img.Layers), errdefs.ErrInvalidArgument)
	}
	s := Stored{Names: d.RepoTags}
	for i, name := range d.Layers {
		if img.Layers[i], err = a.layer(name, img.Layers[i].DiffID); err != nil {
			return Stored{}, err
		}
		s.open = append(s.open, a.opener(name))
	}
	s.Image, err = synthesize(config, img.Layers)
	return s, err
}

func (a *Archive) opener(name string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return a.files.open(name) }
}

// layer describes a layer that has no description. Who takes its content checks
// that it is what the digest says.
func (a *Archive) layer(name, diffID string) (Layer, error) {
	m, err := a.files.open(name)
	if err != nil {
		return Layer{}, err
	}
	defer m.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(m, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // a layer may be shorter
		return Layer{}, fmt.Errorf("read %.200q of the image archive: %w", name, err)
	}
	l := Layer{Digest: diffID, DiffID: diffID, Size: m.size, MediaType: string(types.OCIUncompressedLayer)}
	switch Detect(head[:n]) {
	case Uncompressed:
		return l, nil
	case Gzip:
		l.MediaType = string(types.OCILayer)
	case Zstd:
		l.MediaType = string(types.OCILayerZStd)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.MultiReader(bytes.NewReader(head[:n]), m)); err != nil {
		return Layer{}, fmt.Errorf("read %.200q of the image archive: %w", name, err)
	}
	l.Digest = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return l, nil
}

// layout reads the images of an OCI image layout.
func (a *Archive) layout(text []byte, platform string) ([]Stored, error) {
	idx, err := parseIndex(text)
	if err != nil {
		return nil, err
	}
	if len(idx.Manifests) > maxImages {
		return nil, fmt.Errorf("image layout has more than %d images: %w", maxImages, errdefs.ErrResourceExhausted)
	}
	names, err := a.dockerNames()
	if err != nil {
		return nil, err
	}
	var images []Stored
	var others []string
	for _, d := range idx.Manifests {
		s, err := a.layoutImage(d, platform)
		var no *otherPlatform
		if errors.As(err, &no) {
			others = append(others, no.platform)
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Names = append(s.Names, annotatedName(d.Annotations)...)
		if len(s.Names) == 0 {
			s.Names = names[s.ConfigDigest]
		}
		images = append(images, s)
	}
	return images, orOther(images, platform, others)
}

// otherPlatform is an image for another platform than the one asked for.
type otherPlatform struct{ platform string }

func (o *otherPlatform) Error() string { return "image is for " + o.platform }

func parseIndex(text []byte) (*v1.IndexManifest, error) {
	if err := checkSize("index", len(text), MaxManifest); err != nil {
		return nil, err
	}
	idx, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read image index: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return idx, nil
}

// layoutImage reads what a descriptor leads to: an image, or an index of images
// for different platforms.
func (a *Archive) layoutImage(d v1.Descriptor, platform string) (Stored, error) {
	text, err := a.blob(d, MaxManifest)
	if err != nil {
		return Stored{}, err
	}
	if d.MediaType.IsIndex() {
		idx, err := parseIndex(text)
		if err != nil {
			return Stored{}, err
		}
		if d, err = choose(idx, platform); err != nil {
			return Stored{}, err
		}
		if text, err = a.blob(d, MaxManifest); err != nil {
			return Stored{}, err
		}
	}
	m, err := parseManifest(text)
	if err != nil {
		return Stored{}, err
	}
	config, err := a.blob(m.Config, MaxConfig)
	if err != nil {
		return Stored{}, err
	}
	s := Stored{}
	if s.Image, err = Parse(text, config); err != nil {
		return Stored{}, err
	}
	if !fits(s.Platform, platform) {
		return Stored{}, &otherPlatform{s.Platform}
	}
	for _, l := range m.Layers {
		s.open = append(s.open, a.opener(blobName(l.Digest)))
	}
	return s, nil
}

func blobName(h v1.Hash) string { return path.Join("blobs", h.Algorithm, h.Hex) }

// blob reads a small blob and checks its digest.
func (a *Archive) blob(d v1.Descriptor, limit int) ([]byte, error) {
	if err := checkDescriptor("blob", d, int64(limit)); err != nil {
		return nil, err
	}
	text, err := readAll(a.files, blobName(d.Digest), limit)
	if err != nil {
		return nil, err
	}
	if got := digestOf(text); got != d.Digest.String() {
		return nil, fmt.Errorf("image archive: blob %s has digest %s: %w", d.Digest, got, errdefs.ErrDataLoss)
	}
	return text, nil
}

// annotatedName is the name that a layout gives an image. Tools that know the
// whole name put it into an annotation of their own; the standard one is often a
// tag alone, which says little, but is all there is.
func annotatedName(annotations map[string]string) []string {
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		if n := annotations[key]; n != "" {
			return []string{n}
		}
	}
	return nil
}

// dockerNames are the names in a manifest.json that stands beside index.json,
// by the digest of the image's configuration.
func (a *Archive) dockerNames() (map[string][]string, error) {
	text, err := readAll(a.files, "manifest.json", MaxManifest)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list, err := parseDocker(text)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for _, d := range list {
		id := strings.TrimSuffix(path.Base(d.Config), ".json")
		names["sha256:"+id] = append(names["sha256:"+id], d.RepoTags...)
	}
	return names, nil
}
