package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentbox/internal/image/oci"
)

// PullOptions say how an image is fetched.
type PullOptions struct {
	// Platform, such as "linux/amd64". Empty: this machine's.
	Platform string
	Registry oci.RegistryOptions
	// Progress is told what happens, one call at a time. It may be nil.
	Progress func(Event)
}

// Pull fetches an image from its registry, also if there is one already: the new
// one takes its name, sandboxes keep what they run on. What is there of it is not
// fetched again, and a download that was cut goes on where it stopped. The image
// is called by the full form of its reference.
func (s *Store) Pull(ctx context.Context, reference string, opts PullOptions) (img Image, err error) {
	ref, err := oci.ParseRef(reference)
	if err != nil {
		return Image{}, err
	}
	load, err := LoadOptions{Platform: opts.Platform, Progress: opts.Progress}.withDefaults()
	if err != nil {
		return Image{}, err
	}
	r, err := oci.NewRegistry(opts.Registry)
	if err != nil {
		return Image{}, err
	}
	defer r.Close()
	in := s.newIntake()
	defer func() { err = errors.Join(s.explainFull(err), in.close(), s.tidy(ctx, err)) }()
	p := newPullProgress(load.Progress)
	found, err := r.Pull(ctx, ref, load.Platform, in, p.layer)
	if err != nil {
		return Image{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	all, err := s.keepImage(ctx, in, found, FromRegistry, []string{ref.String()}, load.Progress)
	if err != nil {
		return Image{}, fmt.Errorf("pull %s: %w", ref, err)
	}
	return all[0], nil
}

// pullProgress makes events of what several downloads report.
type pullProgress struct {
	mu     sync.Mutex
	report func(Event)
	layers map[string]oci.Progress
	told   time.Time
	began  time.Time
	// had are the bytes that were there before.
	had int64
}

// tellEvery keeps reports from costing more than the download.
const tellEvery = 200 * time.Millisecond

func newPullProgress(report func(Event)) *pullProgress {
	return &pullProgress{report: report, layers: map[string]oci.Progress{}, began: time.Now()}
}

func (p *pullProgress) layer(now oci.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now == p.layers[now.Digest] {
		return
	}
	if p.layers[now.Digest].Done == 0 { // what the first report has beyond it is little
		p.had += now.Done
	}
	p.layers[now.Digest] = now
	if now.Done < now.Total && (now.Done == 0 || time.Since(p.told) < tellEvery) {
		return
	}
	p.told = time.Now()
	var done, total int64
	whole := 0
	for _, l := range p.layers {
		done, total = done+l.Done, total+l.Total
		if l.Done == l.Total {
			whole++
		}
	}
	percent := packFrom
	if total > 0 {
		percent = int(done * packFrom / total)
	}
	const mb = 1e6
	rate := float64(done-p.had) / max(time.Since(p.began).Seconds(), 1e-3)
	p.report(Event{
		Phase: "download", Percent: percent, Layer: now.Digest, Done: now.Done, Total: now.Total,
		Line: fmt.Sprintf("%.1f of %.1f MB, %.1f MB/s, %d of %d layers done", float64(done)/mb, float64(total)/mb, rate/mb, whole, len(p.layers)),
	})
}
