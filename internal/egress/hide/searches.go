package hide

import (
	"errors"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"weak"
)

const (
	// maxOwner and maxAll bound what searches in use take in memory, in bytes: those of
	// one owner, which are at least 25 of 8 KiB, and all.
	maxOwner, maxAll = 32 << 20, 128 << 20
	// perByte, perValue and perSearch are what a search takes at most for each byte of
	// its values, for each of them, and besides.
	perByte, perValue, perSearch = 160, 512, 12 << 10
)

var (
	errOwner = errors.New("too many different sets of secrets are in use at once by sandboxes of the same owner; try again when other requests have ended")
	errAll   = errors.New("too many different sets of secrets are in use at once by the server's sandboxes; try again when other requests have ended")
)

// Searches makes scrubbers. Those of one owner that hide the same values share their
// search, whose making takes long and whose memory is many times that of the values.
// Nothing is kept of what no scrubber uses: it is found again only as long as the
// garbage collector has not come by. Any number of goroutines may use it.
type Searches struct {
	maxOwner, maxAll int64

	mu     sync.Mutex
	sets   map[setKey]*set
	owners map[string]int64 // what is in use of theirs
	all    int64            // in use
}

// setKey names the values of a set without having them. That owners share none keeps
// them from telling by the time that it takes which values others have.
type setKey struct {
	owner string
	hash  uint64
}

// set is some values that are hidden together.
type set struct {
	weight int64
	users  int // guarded by Searches.mu

	making sync.Mutex
	sought weak.Pointer[sought] // guarded by making, and by Searches.mu while there are no users
}

// NewSearches has none.
func NewSearches() *Searches {
	return &Searches{maxOwner: maxOwner, maxAll: maxAll, sets: map[setKey]*set{}, owners: map[string]int64{}}
}

// Scrubber makes one that hides an owner's values and counts guesses at them. It is nil
// if there is nothing to hide. An error, whose text is for the owner, means that there
// is no room for another set of values now.
func (s *Searches) Scrubber(owner string, values []string, g *Guesses) (*Scrubber, error) {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
	if len(values) == 0 {
		return nil, nil //nolint:nilnil // it is one that changes nothing
	}
	k := keyOf(owner, values)
	in, err := s.join(k, weightOf(values))
	if err != nil {
		return nil, err
	}
	return newScrubber(s.sought(k, in, values), g, func() { s.leave(k, in) }), nil
}

func keyOf(owner string, values []string) setKey {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, v := range values {
		_, _ = h.WriteString(v) // never fails
		_ = h.WriteByte(0)
	}
	return setKey{owner, h.Sum64()}
}

func weightOf(values []string) int64 {
	n := int64(perSearch)
	for _, v := range values {
		n += perValue + perByte*int64(len(v))
	}
	return n
}

// join makes one more user of a set.
func (s *Searches) join(k setKey, weight int64) (*set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.sets[k]
	if in == nil {
		in = &set{weight: weight}
	}
	if in.users == 0 {
		switch {
		case s.owners[k.owner]+in.weight > s.maxOwner:
			return nil, errOwner
		case s.all+in.weight > s.maxAll:
			return nil, errAll
		}
		s.sets[k] = in
		s.owners[k.owner] += in.weight
		s.all += in.weight
	}
	in.users++
	return in, nil
}

func (s *Searches) leave(k setKey, in *set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.users--; in.users > 0 {
		return
	}
	s.all -= in.weight
	if s.owners[k.owner] -= in.weight; s.owners[k.owner] == 0 {
		delete(s.owners, k.owner)
	}
}

// sought is that of a set with users, made if it is not there. The values tell it from
// one that has the same hash by chance.
func (s *Searches) sought(k setKey, in *set, values []string) *sought {
	in.making.Lock()
	defer in.making.Unlock()
	t := in.sought.Value()
	if t == nil || !slices.Equal(t.values, values) {
		hide := make([][]string, len(values))
		for i, v := range values {
			hide[i] = forms(v)
		}
		t = newSought(hide)
		in.sought = weak.Make(t)
		runtime.AddCleanup(t, s.forget, k)
	}
	return t
}

// forget drops a set whose search is gone.
func (s *Searches) forget(k setKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.sets[k]; in != nil && in.users == 0 && in.sought.Value() == nil {
		delete(s.sets, k)
	}
}
