package erofs

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// Limits bound what one image may cost while it is made. Layers come from
// strangers. A zero field takes its value from DefaultLimits: a limit that is
// not set is a hole.
type Limits struct {
	// MaxEntries counts the names that are added, over all layers, missing
	// parents included, and, apart from them, the records of the layers. One
	// name costs about 700 bytes of memory.
	MaxEntries int64
	// MaxBytes is the size of the image file. What an upper layer replaces
	// counts too, because it is written before it is known to be dead.
	MaxBytes int64
	// MaxText is the sum of the lengths of all names and link targets, which
	// are held in memory.
	MaxText int64
	// MaxDepth is how deep directories may nest. At most 4096: the writer
	// recurses.
	MaxDepth int
}

// DefaultLimits fit every image that is still useful in a sandbox.
var DefaultLimits = Limits{
	MaxEntries: 2_000_000,
	MaxBytes:   64 << 30,
	MaxText:    512 << 20,
	MaxDepth:   1024,
}

// deepest is what MaxDepth may be at most.
const deepest = 4096

func (l Limits) withDefaults() Limits {
	def := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.MaxEntries, DefaultLimits.MaxEntries)
	def(&l.MaxBytes, DefaultLimits.MaxBytes)
	def(&l.MaxText, DefaultLimits.MaxText)
	if l.MaxDepth <= 0 {
		l.MaxDepth = DefaultLimits.MaxDepth
	}
	l.MaxDepth = min(l.MaxDepth, deepest)
	return l
}

// Every record of a layer grants stepsPerRecord tree nodes that may be visited,
// on top of stepsToBegin. Honest layers need about ten. Without it a few
// thousand links through links, or opaque markers over one big directory, keep
// a core busy for hours.
const (
	stepsPerRecord = 64
	stepsToBegin   = 1 << 20
)

// budget is what is left of Limits.
type budget struct {
	limits  Limits
	records int64
	entries int64
	text    int64
	steps   int64
}

func newBudget(l Limits) budget { return budget{limits: l, steps: stepsToBegin} }

// record pays for one record of a layer and grants its steps.
func (b *budget) record() error {
	b.steps += stepsPerRecord
	if b.records++; b.records > b.limits.MaxEntries {
		return b.tooMany()
	}
	return nil
}

func (b *budget) tooMany() error {
	return fmt.Errorf("image has more than %d entries: %w", b.limits.MaxEntries, errdefs.ErrResourceExhausted)
}

// step pays for visiting one tree node.
func (b *budget) step() error {
	if b.steps--; b.steps < 0 {
		return fmt.Errorf("image is too entangled: %w", errdefs.ErrResourceExhausted)
	}
	return nil
}

// name pays for one more name with text bytes of name and link target.
func (b *budget) name(text int) error {
	if b.entries++; b.entries > b.limits.MaxEntries {
		return b.tooMany()
	}
	if b.text += int64(text); b.text > b.limits.MaxText {
		return fmt.Errorf("names and link targets of the image are longer than %d bytes: %w", b.limits.MaxText, errdefs.ErrResourceExhausted)
	}
	return nil
}

// invalid is the error for an entry that can't be in an image.
func invalid(path, why string) error {
	return fmt.Errorf("image entry %s: %s: %w", quote(path), why, errdefs.ErrInvalidArgument)
}

// quote makes a hostile path fit for a message.
func quote(path string) string {
	const longest = 200
	if len(path) > longest {
		return fmt.Sprintf("%q…", path[:longest])
	}
	return fmt.Sprintf("%q", path)
}
