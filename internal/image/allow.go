package image

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"

	"agentbox/internal/image/oci"
)

// Patterns are the images that callers of a server may have pulled: each is a
// repository, "alpine" or "ghcr.io/team/tool", in which * stands for any part of
// a name between two slashes, and ** at the end for all that is below. Tags and
// digests are free. None allows nothing.
type Patterns []string

// CheckPatterns reports the first pattern that can match nothing.
func CheckPatterns(p Patterns) error {
	for _, s := range p {
		_, err := path.Match(strings.TrimSuffix(s, "**"), "")
		if err != nil || s == "" || strings.ContainsAny(s, "@ ") || strings.Contains(strings.TrimSuffix(s, "**"), "**") {
			return fmt.Errorf("invalid image pattern %q (want [REGISTRY/]REPOSITORY, with * for a part of it and /** at the end for all below): %w", s, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// match gives the pattern by which an image may be pulled.
func (p Patterns) match(ref oci.Ref) (pattern string, ok bool) {
	for _, s := range p {
		for _, repo := range ref.Repositories() {
			if below, all := strings.CutSuffix(s, "/**"); all {
				n := strings.Count(below, "/") + 1
				if parts := strings.SplitN(repo, "/", n+1); len(parts) > n {
					if ok, err := path.Match(below, strings.Join(parts[:n], "/")); ok && err == nil {
						return s, true
					}
				}
			} else if ok, err := path.Match(s, repo); ok && err == nil {
				return s, true
			}
		}
	}
	return "", false
}

// Fetcher is a store that gets missing images from their registries, as far as
// the operator allows.
type Fetcher struct {
	*Store
	Allow Patterns
	Pull  PullOptions
	// Dial makes the connections to what the operator did not name; see [named].
	// nil: the same as all others.
	Dial Dial
}

// Acquire is that of the store, after a pull if the image is missing and allowed.
func (f Fetcher) Acquire(ctx context.Context, name string) (Image, func(), error) {
	img, release, err := f.Store.Acquire(ctx, name)
	if !errdefs.IsNotFound(err) {
		return img, release, err
	}
	ref, bad := oci.ParseRef(name)
	if bad != nil || HasRecipe(name) {
		return img, release, err
	}
	pattern, ok := f.Allow.match(ref)
	if !ok {
		return img, release, err
	}
	opts := f.Pull
	if f.Dial != nil {
		opts.Registry.Dial = f.Dial.except(f.named(ref, pattern))
	}
	if _, err := f.Store.Pull(ctx, name, opts); err != nil {
		return Image{}, nil, err
	}
	return f.Store.Acquire(ctx, name)
}
