package oci

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxRef keeps a reference fit for a file name, the escapes of slashes included.
const maxRef = 200

// Ref names an image in a registry.
type Ref struct{ ref name.Reference }

// ParseRef reads "[REGISTRY/]REPOSITORY[:TAG][@DIGEST]". Without a tag it is
// "latest"; a digest beats a tag. InvalidArgument says what is wrong.
func ParseRef(s string) (Ref, error) {
	if len(s) > maxRef {
		return Ref{}, fmt.Errorf("image reference %.60q… is longer than %d bytes: %w", s, maxRef, errdefs.ErrInvalidArgument)
	}
	ref, err := name.ParseReference(s)
	if err != nil {
		return Ref{}, fmt.Errorf("invalid image reference %q (want [REGISTRY/]REPOSITORY[:TAG][@sha256:DIGEST], the repository in lower case): %w: %w", s, err, errdefs.ErrInvalidArgument)
	}
	if !registryHost.MatchString(ref.Context().RegistryStr()) {
		return Ref{}, fmt.Errorf("invalid image reference %q: bad registry: %w", s, errdefs.ErrInvalidArgument)
	}
	for part := range strings.SplitSeq(ref.Context().RepositoryStr(), "/") {
		if !repositoryPart.MatchString(part) {
			return Ref{}, fmt.Errorf("invalid image reference %q: bad repository: %w", s, errdefs.ErrInvalidArgument)
		}
	}
	return Ref{ref}, nil
}

var (
	// repositoryPart is the grammar of the distribution specification.
	repositoryPart = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$`)
	// registryHost is a name or an address, with a port or without.
	registryHost = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]+)?$`)
)

// Repositories are the names of the repository: with its registry, and without
// the default one and what it adds.
func (r Ref) Repositories() []string {
	repo := r.ref.Context()
	names := []string{repo.Name()}
	if repo.RegistryStr() == name.DefaultRegistry {
		names = append(names, repo.RepositoryStr(), strings.TrimPrefix(repo.RepositoryStr(), "library/"))
	}
	return names
}

// String is the short form, always with a tag or a digest: the default registry
// is left out.
func (r Ref) String() string {
	repo := r.ref.Context()
	s := repo.Name()
	if repo.RegistryStr() == name.DefaultRegistry {
		s = strings.TrimPrefix(repo.RepositoryStr(), "library/")
	}
	if _, ok := r.ref.(name.Digest); ok {
		return s + "@" + r.ref.Identifier()
	}
	return s + ":" + r.ref.Identifier()
}

// Digest is the digest that the reference names, "" if it names a tag.
func (r Ref) Digest() string {
	if d, ok := r.ref.(name.Digest); ok {
		return d.DigestStr()
	}
	return ""
}

// Registry is the host that the reference names.
func (r Ref) Registry() string { return r.ref.Context().RegistryStr() }

// DefaultPlatform is this machine's: sandboxes run its machine code.
func DefaultPlatform() string { return "linux/" + runtime.GOARCH }

var platformName = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?$`)

// CheckPlatform reports a platform that is not "os/architecture[/variant]".
func CheckPlatform(s string) error {
	if !platformName.MatchString(s) {
		return fmt.Errorf("invalid platform %.60q: want OS/ARCHITECTURE, such as linux/amd64: %w", s, errdefs.ErrInvalidArgument)
	}
	return nil
}

func platformOf(p v1.Platform) string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// fits reports whether an image for have can be taken where want is asked for:
// want without a variant takes any, and an image that does not say is believed.
func fits(have, want string) bool {
	return have == want || have == "/" || strings.HasPrefix(have, want+"/")
}

// choose finds the manifest for a platform in an index. NotFound lists the
// platforms that are there.
func choose(idx *v1.IndexManifest, platform string) (v1.Descriptor, error) {
	var there []string
	for _, d := range idx.Manifests {
		if d.Platform == nil || !d.MediaType.IsImage() && d.MediaType != "" {
			continue
		}
		have := platformOf(*d.Platform)
		if fits(have, platform) {
			return d, checkDescriptor("manifest", d, MaxManifest)
		}
		if d.Platform.OS != "unknown" && !slices.Contains(there, have) { // those describe how others were built
			there = append(there, have)
		}
	}
	return v1.Descriptor{}, noPlatform(platform, there)
}

func noPlatform(want string, there []string) error {
	const most = 20
	list := strings.Join(there[:min(len(there), most)], ", ")
	if list == "" {
		list = "none"
	}
	return fmt.Errorf("no image for the platform %s, there are: %s: %w", want, strings.ToValidUTF8(list, "?"), errdefs.ErrNotFound)
}
