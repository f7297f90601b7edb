package pump_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"agentbox/internal/pump"
)

// source gives as much as is asked for, up to what it has for each read, and notes
// how much was asked for.
type source struct {
	has   []int
	asked []int
	end   error
}

func (s *source) Read(p []byte) (int, error) {
	if len(s.has) == 0 {
		return 0, s.end
	}
	s.asked = append(s.asked, len(p))
	n := min(len(p), s.has[0])
	s.has = s.has[1:]
	for i := range p[:n] {
		p[i] = byte(len(s.has))
	}
	return n, nil
}

func TestPiecesFollowWhatComes(t *testing.T) {
	t.Parallel()
	const much = 10 * pump.Large
	src := &source{has: []int{10, much, much, much, pump.Small, much, 1}, end: io.EOF}
	var got bytes.Buffer
	if err := pump.New(1).Copy(&got, src); err != nil {
		t.Fatal(err)
	}
	want := []int{pump.Small, pump.Small, pump.Large, pump.Large, pump.Large, pump.Small, pump.Large}
	if !slices.Equal(src.asked, want) {
		t.Errorf("asked for %v, want %v", src.asked, want)
	}
	if n := 10 + 2*pump.Small + 2*pump.Large + pump.Small + 1; got.Len() != n {
		t.Errorf("%d bytes came, want %d", got.Len(), n)
	}
}

func TestLargePiecesAreBounded(t *testing.T) {
	t.Parallel()
	pool := pump.New(1)
	src := func() *source { return &source{has: []int{pump.Small, pump.Large, pump.Large}, end: io.EOF} }
	first, second := pool.Piece(), pool.Piece()
	a, b := src(), src()
	for range 2 {
		_, _ = first.Read(a)
		_, _ = second.Read(b)
	}
	if a.asked[1] != pump.Large || b.asked[1] != pump.Small {
		t.Errorf("the second piece: %d and %d, want %d for one only", a.asked[1], b.asked[1], pump.Large)
	}
	first.Release()
	_, _ = second.Read(b)
	if b.asked[2] != pump.Large {
		t.Errorf("after the other one's release: %d", b.asked[2])
	}
	second.Release()
	none := src()
	_ = pump.New(0).Copy(io.Discard, none)
	if !slices.Equal(none.asked, []int{pump.Small, pump.Small, pump.Small}) {
		t.Errorf("without large ones: %v", none.asked)
	}
}

func TestCopyEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := pump.New(0).Copy(io.Discard, &source{end: broken}); !errors.Is(err, broken) {
		t.Errorf("a reader that breaks: %v", err)
	}
	r, w := io.Pipe()
	_ = r.CloseWithError(broken)
	if err := pump.New(0).Copy(w, &source{has: []int{1}, end: io.EOF}); !errors.Is(err, broken) {
		t.Errorf("a writer that breaks: %v", err)
	}
}
