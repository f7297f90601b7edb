package hide

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"agentbox/internal/pump"
)

// valueOf draws a value of n bytes.
func valueOf(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + rand.IntN('~'-'!'+1))
	}
	return string(b)
}

func scrubberOf(t testing.TB, s *Searches, owner string, values ...string) *Scrubber {
	t.Helper()
	one, err := s.Scrubber(owner, values, NewGuesses())
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSearchIsShared: any number of answers at once cost the memory of one search,
// which other values and other owners have no part in, and of which nothing is left
// when they have ended.
func TestSearchIsShared(t *testing.T) {
	const answers = 256
	s, values := NewSearches(), []string{valueOf(4 << 10), valueOf(4 << 10)}
	before, made := heap(), make([]*Scrubber, answers)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			made[i] = scrubberOf(t, s, "acme", strings.Clone(values[0]), strings.Clone(values[1]))
			made[i].Next([]byte("an answer that goes on"))
		})
	}
	all.Wait()
	grown := heap() - before
	t.Logf("%d KiB for %d answers", grown>>10, answers)
	if grown > 16<<20 {
		t.Errorf("%d answers take %d bytes", answers, grown)
	}
	for _, one := range made {
		if one.sought != made[0].sought {
			t.Fatal("two answers have a search each")
		}
	}
	for name, other := range map[string]*Scrubber{
		"another owner": scrubberOf(t, s, "zeta", values...), "one of the values": scrubberOf(t, s, "acme", values[0]), "another order": scrubberOf(t, s, "acme", values[1], values[0]),
	} {
		if other.sought == made[0].sought {
			t.Errorf("%s: the search is shared", name)
		}
		other.Close()
	}
	for _, one := range made {
		one.Close()
	}
	clear(made)
	if s.all != 0 || len(s.owners) != 0 {
		t.Errorf("%d bytes are still counted, of %v", s.all, s.owners)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		s.mu.Lock()
		left := len(s.sets)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sets are kept", left)
		}
	}
}

// TestSearchAgain: one that ended a moment ago is not made anew.
func TestSearchAgain(t *testing.T) {
	s, value := NewSearches(), valueOf(100)
	first := scrubberOf(t, s, "acme", value)
	first.Close()
	second := scrubberOf(t, s, "acme", value)
	if second.sought != first.sought || s.all != weightOf([]string{value}) {
		t.Errorf("it is made anew, or not counted: %d bytes", s.all)
	}
	second.Close()
}

// TestSearchesAreBounded: who uses too many different sets is refused, not those who
// use one that is there, nor another owner until all have too many.
func TestSearchesAreBounded(t *testing.T) {
	s, few := NewSearches(), []string{valueOf(8)}
	s.maxOwner, s.maxAll = 3*weightOf(few), 4*weightOf(few)
	var in []*Scrubber
	for range 3 {
		few = []string{valueOf(8)}
		in = append(in, scrubberOf(t, s, "acme", few...))
	}
	in = append(in, scrubberOf(t, s, "acme", few...))
	if _, err := s.Scrubber("acme", []string{valueOf(8)}, nil); !errors.Is(err, errOwner) {
		t.Errorf("one more of the owner: %v", err)
	}
	in = append(in, scrubberOf(t, s, "zeta", few...))
	if _, err := s.Scrubber("zeta", []string{valueOf(8)}, nil); !errors.Is(err, errAll) {
		t.Errorf("one more of all: %v", err)
	}
	for _, one := range in {
		one.Close()
	}
	scrubberOf(t, s, "acme", valueOf(8)).Close()
	if len(s.owners) != 0 || s.all != 0 {
		t.Errorf("%d bytes are counted, of %v", s.all, s.owners)
	}
}

// TestWeight: what a search takes is no more than what is counted.
func TestWeight(t *testing.T) {
	for _, c := range [][]int{{8}, {51}, {4096, 4096}, {100, 100, 100, 100, 100, 100}, {5462}} {
		values, made := make([]string, len(c)), make([]*sought, 32)
		for i, n := range c {
			values[i] = valueOf(n)
		}
		before := heap()
		for i := range made {
			hide := make([][]string, len(c))
			for k, v := range values {
				hide[k] = forms(strings.Clone(v))
			}
			made[i] = newSought(hide)
		}
		each := (heap() - before) / int64(len(made))
		t.Logf("values of %v bytes take %d bytes, are counted as %d", c, each, weightOf(values))
		if each > weightOf(values) {
			t.Errorf("values of %v bytes take %d bytes, are counted as %d", c, each, weightOf(values))
		}
		runtime.KeepAlive(made)
	}
}

// TestLongValue: one that is longer than most is hidden in all of its length, spelled
// in two ways, and nothing of what it took is kept.
func TestLongValue(t *testing.T) {
	value := strings.NewReplacer("*", "x", `\`, "y").Replace(valueOf(4 << 10))
	in := "a " + value + " b " + spelled(value, only("", "\\u%04x")) + " c"
	for _, size := range []byte{0, 6, 255} {
		out := scrubbed([]byte(in), forms(value), []byte{size})
		// Three characters of each may be gone before anybody could know.
		if left := strings.ReplaceAll(string(out), "*", ""); len(out) != len(in) || len(left) > len("a  b  c")+chance+6*chance {
			t.Errorf("in parts of %d are left %.80q", int(size)+1, left)
		}
	}
	s := scrubberOf(t, NewSearches(), "acme", value)
	defer s.Close()
	s.Next(append(make([]byte, pump.Large), in...))
	s.Next([]byte("\n")) // which begins no form of a value, as the last letter may by chance
	if cap(s.held) > 2*pump.Small {
		t.Errorf("%d bytes are kept of a large part", cap(s.held))
	}
	for _, r := range s.readings {
		if len(r.starts.ring) > manyStarts {
			t.Errorf("%d places are kept of a long value", len(r.starts.ring))
		}
	}
}

// BenchmarkScrubber is a request whose answer is small.
func BenchmarkScrubber(b *testing.B) {
	for name, values := range map[string][]string{"51": {valueOf(51)}, "4096+4096": {valueOf(4 << 10), valueOf(4 << 10)}} {
		b.Run(name, func(b *testing.B) {
			s := NewSearches()
			b.ReportAllocs()
			for b.Loop() {
				one := scrubberOf(b, s, "acme", values...)
				one.Next([]byte("hello"))
				one.Rest()
				one.Close()
			}
		})
	}
}
