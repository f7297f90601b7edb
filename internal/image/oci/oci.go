// Package oci reads what others made: references, manifests and configurations
// of container images, archives of them, and registries. Everything that it reads
// is hostile; it is bounded and checked here.
//
// The formats: the image specification of the Open Container Initiative, and
// the archives of "docker save".
package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Bounds of what an image may bring. Real images stay far below.
const (
	// MaxManifest is what registries accept at most, in bytes.
	MaxManifest = 4 << 20
	// MaxConfig is the size of an image's configuration in bytes.
	MaxConfig = 8 << 20
	// MaxLayers is four times what Docker's storage can stack.
	MaxLayers = 512
	// MaxLayer is the size of one compressed layer in bytes.
	MaxLayer = 64 << 30
)

// Layer is one layer of an image.
type Layer struct {
	// Digest of the layer as it is transferred, "sha256:…".
	Digest string `json:"digest"`
	// DiffID is the digest of the uncompressed layer. It is Digest when the
	// layer is transferred uncompressed.
	DiffID string `json:"diff_id"`
	// Size in bytes as it is transferred.
	Size int64 `json:"size"`
	// MediaType as the manifest has it.
	MediaType string `json:"media_type"`
}

// Image is what a manifest and a configuration say. The layers' content is
// elsewhere.
type Image struct {
	// Digest of the manifest, "sha256:…".
	Digest           string
	Manifest, Config []byte
	// ConfigDigest is the image id that Docker shows.
	ConfigDigest string
	Layers       []Layer
	// Platform is "os/architecture" or "os/architecture/variant".
	Platform string
	// Created is what the image says of itself; zero when it does not.
	Created  time.Time
	Settings Settings
}

// foreignLayer marks layers that must be fetched from elsewhere: parts of Windows.
const foreignLayer = "foreign"

// Parse checks a manifest and its configuration against each other.
func Parse(manifest, config []byte) (Image, error) {
	m, err := parseManifest(manifest)
	if err != nil {
		return Image{}, err
	}
	if got := digestOf(config); got != m.Config.Digest.String() {
		return Image{}, fmt.Errorf("image configuration has digest %s, its manifest says %s: %w", got, m.Config.Digest, errdefs.ErrDataLoss)
	}
	img, err := parseConfig(config)
	if err != nil {
		return Image{}, err
	}
	if len(img.Layers) != len(m.Layers) {
		return Image{}, fmt.Errorf("image has %d layers and names the content of %d: %w", len(m.Layers), len(img.Layers), errdefs.ErrInvalidArgument)
	}
	for i, l := range m.Layers {
		img.Layers[i].Digest, img.Layers[i].Size, img.Layers[i].MediaType = l.Digest.String(), l.Size, string(l.MediaType)
	}
	img.Digest, img.Manifest = digestOf(manifest), manifest
	return img, nil
}

// parseManifest reads the manifest of one image.
func parseManifest(text []byte) (*v1.Manifest, error) {
	if err := checkSize("manifest", len(text), MaxManifest); err != nil {
		return nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read image manifest: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	switch {
	case m.MediaType == types.DockerManifestSchema1 || m.MediaType == types.DockerManifestSchema1Signed || m.SchemaVersion == 1:
		return nil, fmt.Errorf("image has a manifest of schema 1, which registries have given up: push it again with a newer tool: %w", errdefs.ErrInvalidArgument)
	case m.SchemaVersion != 2:
		return nil, fmt.Errorf("image manifest has schema version %d, only 2 is known: %w", m.SchemaVersion, errdefs.ErrInvalidArgument)
	case m.Config.MediaType != "" && !m.Config.MediaType.IsConfig():
		return nil, fmt.Errorf("this is no container image but %.100q: %w", m.Config.MediaType, errdefs.ErrInvalidArgument)
	case len(m.Layers) > MaxLayers:
		return nil, fmt.Errorf("image has more than %d layers: %w", MaxLayers, errdefs.ErrResourceExhausted)
	}
	if err := checkDescriptor("configuration", m.Config, MaxConfig); err != nil {
		return nil, err
	}
	for _, l := range m.Layers {
		if err := checkDescriptor("layer", l, MaxLayer); err != nil {
			return nil, err
		}
		if strings.Contains(string(l.MediaType), foreignLayer) {
			return nil, fmt.Errorf("layer %s must be fetched from elsewhere (%.100q), which is not supported: %w", l.Digest, l.MediaType, errdefs.ErrInvalidArgument)
		}
	}
	return m, nil
}

func checkSize(what string, size, limit int) error {
	if size > limit {
		return fmt.Errorf("image %s is longer than %d bytes: %w", what, limit, errdefs.ErrResourceExhausted)
	}
	return nil
}

func checkDescriptor(what string, d v1.Descriptor, limit int64) error {
	switch {
	case d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != 64:
		return fmt.Errorf("image %s has the digest %.100q, only sha256 is known: %w", what, d.Digest.String(), errdefs.ErrInvalidArgument)
	case d.Size < 0:
		return fmt.Errorf("image %s %s has a negative size: %w", what, d.Digest, errdefs.ErrInvalidArgument)
	case d.Size > limit:
		return fmt.Errorf("image %s %s is longer than %d bytes: %w", what, d.Digest, limit, errdefs.ErrResourceExhausted)
	}
	return nil
}

// synthesize makes an image with a manifest of its own, for layers and a
// configuration that came without one. The same input gives the same digest.
func synthesize(config []byte, layers []Layer) (Image, error) {
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: []v1.Descriptor{}}
	m.Config = descriptor(types.OCIConfigJSON, digestOf(config), int64(len(config)))
	for _, l := range layers {
		m.Layers = append(m.Layers, descriptor(types.MediaType(l.MediaType), l.Digest, l.Size))
	}
	text, err := json.Marshal(m)
	if err != nil {
		return Image{}, fmt.Errorf("write image manifest: %w", err)
	}
	return Parse(text, config)
}

func descriptor(t types.MediaType, digest string, size int64) v1.Descriptor {
	_, hex, _ := strings.Cut(digest, ":")
	return v1.Descriptor{MediaType: t, Size: size, Digest: v1.Hash{Algorithm: "sha256", Hex: hex}}
}

// Layers is where the layers of an image are put.
type Layers interface {
	// Room is an error when there is no room for what is missing of an image;
	// it wraps syscall.ENOSPC. It is asked before the first layer is fetched.
	Room(img Image) error
	// Begin opens a blob to be filled. nil: it is there already.
	Begin(ctx context.Context, digest string) (Blob, error)
}

// Blob is a file that is being filled.
type Blob interface {
	io.Writer
	// Size is how many bytes it has, from an earlier attempt as well.
	Size() int64
	// Reset takes all bytes away.
	Reset() error
	// Commit ends the filling; it closes the blob. When the content has another
	// digest than it should, it is removed, and the error is DataLoss.
	Commit(ctx context.Context) error
	// Close ends the filling without success; a later one goes on where this
	// one stopped.
	Close() error
}
