package agent

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	guestv1 "agentbox/internal/gen/guest/v1"
)

func searchText(t *testing.T, text string, q *guestv1.SearchRequest) *guestv1.SearchResponse {
	t.Helper()
	s, err := newSearcher(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.file(t.Context(), "f", strings.NewReader(text)); err != nil && !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	return &s.a
}

func TestSearchLines(t *testing.T) {
	text := "one\r\ntwo\nthree one\n\nlast one"
	a := searchText(t, text, &guestv1.SearchRequest{Pattern: "one$", Context: 1})
	if len(a.Matches) != 3 {
		t.Fatalf("got %v", a)
	}
	for i, want := range []struct {
		line, offset        uint64
		start               uint32
		text, before, after string
	}{{1, 0, 0, "one", "", "two"}, {3, 9, 6, "three one", "two", ""}, {5, 20, 5, "last one", "", ""}} {
		m := a.Matches[i]
		if m.Line != want.line || m.Offset != want.offset || m.Start != want.start || string(m.Text) != want.text ||
			string(bytes.Join(m.Before, nil)) != want.before || string(bytes.Join(m.After, nil)) != want.after {
			t.Errorf("got %v, want %+v", m, want)
		}
	}
}

// Lines are cut, and what lies far inside one is shown.
func TestSearchLongLines(t *testing.T) {
	text := strings.Repeat("a", 30_000) + "needle" + strings.Repeat("b", 200_000) + "needle\nneedle\n"
	a := searchText(t, text, &guestv1.SearchRequest{Pattern: "needle", MaxLine: 40})
	if len(a.Matches) != 2 || a.LongLines != 1 {
		t.Fatalf("got %v", a)
	}
	m := a.Matches[0]
	if !m.Cut || len(m.Text) != 40 || !bytes.Contains(m.Text, []byte("needle")) || m.Start != 30_000 || m.TextStart != 29_990 {
		t.Errorf("got %v", m)
	}
	if m := a.Matches[1]; m.Line != 2 || m.Offset != uint64(len(text)-7) || m.Cut {
		t.Errorf("got %v", m)
	}
}

func TestSearchLimits(t *testing.T) {
	text := strings.Repeat("x\n", 50)
	if a := searchText(t, text, &guestv1.SearchRequest{Pattern: "x", Limit: 7}); len(a.Matches) != 7 || a.Truncated != truncatedCount {
		t.Errorf("got %d, %q", len(a.Matches), a.Truncated)
	}
	if a := searchText(t, text, &guestv1.SearchRequest{Pattern: "x", LimitPerFile: 1}); len(a.Matches) != 1 || a.Truncated != "" {
		t.Errorf("got %d, %q", len(a.Matches), a.Truncated)
	}
	if a := searchText(t, "x\x00", &guestv1.SearchRequest{Pattern: "x"}); len(a.Matches) != 0 || a.Binary != 1 {
		t.Errorf("got %v", a)
	}
	if a := searchText(t, "a.b\nA.B\naxb\n", &guestv1.SearchRequest{Pattern: "a.b", Literal: true, IgnoreCase: true}); len(a.Matches) != 2 {
		t.Errorf("got %v", a)
	}
	for _, q := range []*guestv1.SearchRequest{
		{}, {Pattern: "("}, {Pattern: strings.Repeat("x", 2000)}, {Pattern: "((x{100}){10}y{900}){1}(z{1000})(z{1000})(z{1000})(z{1000})"}, {Pattern: "x", MaxLine: 1 << 20},
		{Pattern: "x", Context: 100}, {Pattern: "x", Include: []string{"["}}, {Pattern: "x", MaxFileSize: -1}, {Pattern: `(?<!x)y`},
	} {
		if _, err := newSearcher(q); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%.60v: %v", q, err)
		}
	}
}

// FuzzSearch: whatever the pattern and the file, a match says where it is.
func FuzzSearch(f *testing.F) {
	f.Add("a+", []byte("x\naa\r\n"), uint8(1), false)
	f.Add("$", []byte("\n\n"), uint8(0), false)
	f.Add("[^x]", bytes.Repeat([]byte("y"), 70_000), uint8(3), true)
	f.Fuzz(func(t *testing.T, pattern string, text []byte, around uint8, literal bool) {
		s, err := newSearcher(&guestv1.SearchRequest{Pattern: pattern, Literal: literal, Context: uint32(around % 11), MaxLine: 50})
		if err != nil {
			return
		}
		if err := s.file(t.Context(), "f", bytes.NewReader(text)); err != nil && !errors.Is(err, errStop) {
			t.Fatal(err)
		}
		for _, m := range s.a.Matches {
			at := m.Offset + uint64(m.TextStart)
			if !bytes.HasPrefix(text[at:], m.Text) || m.Start > m.End || len(m.Text) > 50 || len(m.Before) > 10 || len(m.After) > 10 {
				t.Fatalf("%v is not in the file", m)
			}
			if bytes.Count(text[:m.Offset], []byte("\n")) != int(m.Line)-1 {
				t.Fatalf("%v is in line %d", m, bytes.Count(text[:m.Offset], []byte("\n"))+1)
			}
		}
	})
}
