package hide

import (
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// guessed is how many bytes of a text are no chance: what begins with fewer, and
	// is none, is no guess.
	guessed = 6
	// maxGuessed is of how many lengths the beginnings of a value may be that were
	// none of it: more than are common to it and to others of its kind, such as
	// tokens of one maker. Of a short value it is a part, but minGuessed at least.
	minGuessed, maxGuessed, guessedPart = 2, 16, 4
)

// Guesses bounds what a sandbox finds out of a secret by having a server repeat
// what it guesses. What begins like a hidden text is held back until it is known
// whether it is one, and that can be seen. So a guess that is good for one byte more
// is told from the others, each in its turn; of how many lengths there were is how
// many bytes of the value are known by now, in whichever of its forms. Any number of
// goroutines may use it. Nil bounds nothing.
type Guesses struct {
	over atomic.Bool

	mu   sync.Mutex
	seen map[uint64][]int // by the id of the value: lengths of what was guessed of it
}

// NewGuesses has seen none.
func NewGuesses() *Guesses {
	return &Guesses{seen: map[uint64][]int{}}
}

// TooMany reports whether nothing of the hosts of secrets is to be shown any more.
func (g *Guesses) TooMany() bool { return g != nil && g.over.Load() }

// note counts a beginning of n bytes of a value.
func (g *Guesses) note(v valueID, n int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Contains(g.seen[v.hash], n) {
		return
	}
	g.seen[v.hash] = append(g.seen[v.hash], n)
	if len(g.seen[v.hash]) > max(minGuessed, min(maxGuessed, v.size/guessedPart)) {
		g.over.Store(true)
	}
}
