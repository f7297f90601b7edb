package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"
)

// Progress tells how far a layer is.
type Progress struct {
	Digest      string
	Done, Total int64 // bytes
}

// Pull fetches an image: its layers go to into. report may be called by several
// goroutines at once. NotFound when there is no such image, or none for the
// platform; Unauthenticated and PermissionDenied are the registry's; DataLoss
// when what came is not what was asked for.
func (r *Registry) Pull(ctx context.Context, ref Ref, platform string, into Layers, report func(Progress)) (Image, error) {
	places, err := r.endpoints(ref)
	if err != nil {
		return Image{}, err
	}
	var errs error
	for _, e := range places {
		img, err := r.pullFrom(ctx, e, ref, platform, into, report)
		if err == nil {
			return img, nil
		}
		if errs = errors.Join(errs, err); ctx.Err() != nil || errors.Is(err, syscall.ENOSPC) {
			break // the next one can't help
		}
	}
	return Image{}, errs
}

func (r *Registry) pullFrom(ctx context.Context, e *endpoint, ref Ref, platform string, into Layers, report func(Progress)) (Image, error) {
	if err := r.connect(ctx, e); err != nil {
		return Image{}, err
	}
	img, err := r.describe(ctx, e, ref, platform)
	if err != nil {
		return Image{}, err
	}
	if err := into.Room(img); err != nil {
		return Image{}, err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(r.opts.Parallel)
	layers := distinct(img.Layers)
	for _, l := range layers { // so that the sum is known from the beginning
		report(Progress{l.Digest, 0, l.Size})
	}
	for _, l := range layers {
		all.Go(func() error { return r.fetchLayer(ctx, e, l, into, report) })
	}
	return img, all.Wait()
}

// distinct are the layers, each once.
func distinct(all []Layer) []Layer {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(l Layer) bool {
		again := seen[l.Digest]
		seen[l.Digest] = true
		return again
	})
}

// describe fetches manifest and configuration.
func (r *Registry) describe(ctx context.Context, e *endpoint, ref Ref, platform string) (Image, error) {
	text, kind, err := r.manifest(ctx, e, ref.ref.Identifier())
	if err != nil {
		return Image{}, err
	}
	if kind.IsIndex() {
		idx, err := parseIndex(text)
		if err != nil {
			return Image{}, err
		}
		d, err := choose(idx, platform)
		if err != nil {
			return Image{}, fmt.Errorf("%s: %w", ref, err)
		}
		if text, _, err = r.manifest(ctx, e, d.Digest.String()); err != nil {
			return Image{}, err
		}
	}
	m, err := parseManifest(text)
	if err != nil {
		return Image{}, err
	}
	config, err := r.small(ctx, e, "blobs", m.Config.Digest.String(), MaxConfig)
	if err != nil {
		return Image{}, err
	}
	img, err := Parse(text, config.body)
	if err == nil && !fits(img.Platform, platform) {
		err = fmt.Errorf("%s: %w", ref, noPlatform(platform, []string{img.Platform}))
	}
	return img, err
}

// manifestTypes are what is asked for.
var manifestTypes = strings.Join([]string{
	string(types.OCIManifestSchema1), string(types.OCIImageIndex), string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ", ")

// manifest fetches a manifest or an index by tag or digest.
func (r *Registry) manifest(ctx context.Context, e *endpoint, id string) ([]byte, types.MediaType, error) {
	a, err := r.small(ctx, e, "manifests", id, MaxManifest)
	if err != nil {
		return nil, "", err
	}
	var self struct {
		MediaType types.MediaType   `json:"mediaType"`
		Manifests []json.RawMessage `json:"manifests"`
		Layers    []json.RawMessage `json:"layers"`
	}
	_ = json.Unmarshal(a.body, &self) // who reads it as what it is finds out
	switch {
	case self.MediaType != "":
		return a.body, self.MediaType, nil
	case len(self.Manifests) > 0 && len(self.Layers) == 0:
		return a.body, types.OCIImageIndex, nil
	}
	return a.body, a.kind, nil
}

// answer is a small thing that a registry sent.
type answer struct {
	body []byte
	kind types.MediaType
}

// small fetches something whole and checks its digest, when the id is one or the
// registry tells it.
func (r *Registry) small(ctx context.Context, e *endpoint, where, id string, limit int64) (answer, error) {
	var a answer
	err := r.retry(ctx, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Stall, errStalled)
		defer cancel()
		resp, err := e.get(ctx, where, id, 0, 0)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
		if err != nil {
			return fmt.Errorf("read %s of %s: %w", id, e, stalled(ctx, err))
		}
		if int64(len(body)) > limit {
			return fmt.Errorf("%s of %s is longer than %d bytes: %w", id, e, limit, errdefs.ErrResourceExhausted)
		}
		want := id
		if !strings.HasPrefix(id, "sha256:") {
			want = resp.Header.Get("Docker-Content-Digest")
		}
		if got := digestOf(body); strings.HasPrefix(want, "sha256:") && got != want {
			return fmt.Errorf("%s of %s has digest %s, want %s: %w", id, e, got, printable(want), errdefs.ErrDataLoss)
		}
		a = answer{body, types.MediaType(resp.Header.Get("Content-Type"))}
		return nil
	})
	return a, err
}

// stalled replaces the error of a context that ended for that reason.
func stalled(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// get asks for something of the repository, from byte number from on to the end
// at size if from is not 0. The answer is a success.
func (e *endpoint) get(ctx context.Context, where, id string, from, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url(where, id), nil)
	if err != nil {
		return nil, err
	}
	if where == "manifests" {
		req.Header.Set("Accept", manifestTypes)
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, size-1))
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, explain(stalled(ctx, err), e.String())
	}
	if resp.StatusCode == http.StatusOK || from > 0 && resp.StatusCode == http.StatusPartialContent {
		return resp, nil
	}
	defer resp.Body.Close()
	status := &statusError{what: e.String() + " " + id, code: resp.StatusCode}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		status.after = time.Duration(min(s, 3600)) * time.Second
	}
	// What it says more is taken if it is short.
	resp.Body = io.NopCloser(io.LimitReader(resp.Body, 1<<14))
	var te *transport.Error
	if errors.As(transport.CheckError(resp, http.StatusOK), &te) {
		status.detail = diagnose(te)
	}
	return nil, status
}

// fetchLayer fetches a layer that is not there yet. A part that an earlier
// attempt left is not fetched again.
func (r *Registry) fetchLayer(ctx context.Context, e *endpoint, l Layer, into Layers, report func(Progress)) error {
	for first := true; ; first = false {
		b, err := into.Begin(ctx, l.Digest)
		if err != nil {
			return err
		}
		if b == nil {
			report(Progress{l.Digest, l.Size, l.Size})
			return nil
		}
		resumed := b.Size() > 0
		if err := r.fill(ctx, e, l, b, report); err != nil {
			if err = fmt.Errorf("fetch layer %s: %w", l.Digest, err); errdefs.IsDataLoss(err) {
				err = errors.Join(err, b.Reset()) // nothing of it is worth keeping
			}
			return errors.Join(err, b.Close())
		}
		err = b.Commit(ctx)
		if resumed && first && errdefs.IsDataLoss(err) {
			continue // the part was a bad one
		}
		return err
	}
}

// fill fetches what a blob lacks. Attempts count while nothing new comes.
func (r *Registry) fill(ctx context.Context, e *endpoint, l Layer, b Blob, report func(Progress)) error {
	if b.Size() > l.Size {
		if err := b.Reset(); err != nil {
			return err
		}
	}
	most := b.Size()
	for n := 0; b.Size() < l.Size; {
		err := r.fillOnce(ctx, e, l, b, report)
		if err == nil {
			continue
		}
		if n++; b.Size() > most {
			most, n = b.Size(), 0
		}
		if n >= attempts || !temporary(err) {
			return err
		}
		if err := r.pause(ctx, n, err); err != nil {
			return err
		}
	}
	report(Progress{l.Digest, l.Size, l.Size})
	return nil
}

func (r *Registry) fillOnce(ctx context.Context, e *endpoint, l Layer, b Blob, report func(Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(r.opts.Stall, func() { cancel(errStalled) })
	defer idle.Stop()
	resp, err := e.get(ctx, "blobs", l.Digest, b.Size(), l.Size)
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusRequestedRangeNotSatisfiable {
		return errors.Join(io.ErrUnexpectedEOF, b.Reset())
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !continues(resp, b.Size()) {
		if err := b.Reset(); err != nil {
			return err
		}
		if resp.StatusCode == http.StatusPartialContent {
			return fmt.Errorf("the registry sent another part than the one asked for: %w", io.ErrUnexpectedEOF)
		}
	}
	if n := resp.ContentLength; n >= 0 && b.Size()+n != l.Size {
		return fmt.Errorf("the registry has %d bytes of it, the manifest says %d: %w", b.Size()+n, l.Size, errdefs.ErrDataLoss)
	}
	body := &countedBody{r: resp.Body, each: func() { idle.Reset(r.opts.Stall) }}
	dst := &reported{b, func() { report(Progress{l.Digest, b.Size(), l.Size}) }}
	if _, err := io.Copy(dst, io.LimitReader(body, l.Size-b.Size())); err != nil {
		return stalled(ctx, err)
	}
	if b.Size() < l.Size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// continues reports whether an answer goes on behind the first have bytes.
func continues(resp *http.Response, have int64) bool {
	if have == 0 {
		return resp.StatusCode == http.StatusOK
	}
	return resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have))
}

// countedBody calls each after each read.
type countedBody struct {
	r    io.Reader
	each func()
}

// Read implements io.Reader.
func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.each()
	return n, err
}

// reported calls each after each write.
type reported struct {
	w    io.Writer
	each func()
}

// Write implements io.Writer.
func (r *reported) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	r.each()
	return n, err
}
