package oci

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Saver writes images as an archive that is an OCI image layout and what
// "docker load" takes, in one.
type Saver struct {
	w      *tar.Writer
	index  v1.IndexManifest
	docker []dockerImage
	have   map[string]bool
}

// NewSaver begins an archive.
func NewSaver(w io.Writer) *Saver {
	return &Saver{
		w: tar.NewWriter(w), have: map[string]bool{},
		index: v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}},
	}
}

// tags are the names that have one: "docker load" takes no others.
func tags(names []string) []string {
	return slices.DeleteFunc(append([]string{}, names...), func(n string) bool { return strings.Contains(n, "@") })
}

// Add writes an image. open gives the content of a layer; it is asked once for
// each layer of the archive.
func (s *Saver) Add(img Image, names []string, open func(Layer) (io.ReadCloser, error)) error {
	if err := s.bytes(img.ConfigDigest, img.Config); err != nil {
		return err
	}
	d := dockerImage{Config: blobPath(img.ConfigDigest), RepoTags: tags(names), Layers: []string{}}
	for _, l := range img.Layers {
		d.Layers = append(d.Layers, blobPath(l.Digest))
		if s.have[l.Digest] {
			continue
		}
		r, err := open(l)
		if err != nil {
			return err
		}
		err = s.blob(l.Digest, l.Size, r)
		r.Close()
		if err != nil {
			return err
		}
	}
	if err := s.bytes(img.Digest, img.Manifest); err != nil {
		return err
	}
	s.docker = append(s.docker, d)
	m, err := parseManifest(img.Manifest)
	if err != nil {
		return err
	}
	mediaType := m.MediaType
	if mediaType == "" {
		mediaType = types.OCIManifestSchema1
	}
	entry := descriptor(mediaType, img.Digest, int64(len(img.Manifest)))
	for _, name := range names {
		entry.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
		s.index.Manifests = append(s.index.Manifests, entry)
	}
	return nil
}

// Close writes the lists and ends the archive.
func (s *Saver) Close() error {
	for _, f := range []struct {
		name string
		v    any
	}{{"index.json", s.index}, {"manifest.json", s.docker}, {"oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"}}} {
		text, err := json.Marshal(f.v)
		if err != nil {
			return fmt.Errorf("write image archive: %w", err)
		}
		if err := s.file(f.name, int64(len(text)), strings.NewReader(string(text))); err != nil {
			return err
		}
	}
	if err := s.w.Close(); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

// blobPath is the name of a blob in the archive.
func blobPath(digest string) string { return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:") }

func (s *Saver) bytes(digest string, b []byte) error {
	return s.blob(digest, int64(len(b)), strings.NewReader(string(b)))
}

func (s *Saver) blob(digest string, size int64, r io.Reader) error {
	if s.have[digest] {
		return nil
	}
	s.have[digest] = true
	return s.file(blobPath(digest), size, r)
}

func (s *Saver) file(name string, size int64, r io.Reader) error {
	if err := s.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	if n, err := io.Copy(s.w, r); err != nil {
		return fmt.Errorf("write %s of the image archive: %w", name, err)
	} else if n != size {
		return fmt.Errorf("write %s of the image archive: got %d bytes of %d: %w", name, n, size, io.ErrUnexpectedEOF)
	}
	return nil
}
