package hide

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// found finds a text whose first bytes are known, as far as it can: a server
// repeats guesses, and of a good one more is held back than of the others.
func found(text string, known int, g *Guesses) string {
	got := text[:known]
	for len(got) < len(text) {
		before := got
		for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-" {
			try := got + string(c)
			s := hiding(each([]string{text}), g)
			// A good last byte makes stars of it all.
			if out := string(s.Next([]byte(try))); len(out) < len(try) || len(try) == len(text) && strings.HasSuffix(out, "*") {
				got = try
				break
			}
			s.Rest()
		}
		if got == before {
			break
		}
	}
	return got
}

// TestGuesses: a sandbox that has a server repeat guesses finds a few bytes of a
// secret; with nothing against it, all.
func TestGuesses(t *testing.T) {
	const text, known = "sk-live-q8w7e6r5t4y3u2i1o0p9a8s7d6f5g4h3j2k1", len("sk-live-")
	if all := found(text, known, nil); all != text {
		t.Fatalf("control: found %q", all)
	}
	if got := found(text, known, NewGuesses()); len(got) > known+len(text)/guessedPart+1 {
		t.Errorf("found %q", got)
	}
}

// TestGuessesInAllForms: what is found of a value in one form counts for the others,
// which begin where it ended.
func TestGuessesInAllForms(t *testing.T) {
	const value = "q8w7e6r5t4y3u2i1o0p9a8s7d6f5g4h3j2k1"
	encoded := base64.RawStdEncoding.EncodeToString([]byte(value))
	few := max(minGuessed, min(maxGuessed, len(value)/guessedPart))
	for name, hide := range map[string][][]string{"one value": {{value, encoded}}, "two": {{value}, {encoded}}} {
		g := NewGuesses()
		miss := func(text string, n int) {
			s := hiding(hide, g)
			s.Next([]byte(text[:n] + "!"))
			s.Rest()
		}
		for n := range few {
			miss(value, guessed+n)
			miss(encoded, (guessed+n)*len(encoded)/len(value)+1) // tells nothing new
		}
		if name == "one value" && g.TooMany() {
			t.Error("the same bytes count twice")
		}
		miss(encoded, (guessed+few+1)*len(encoded)/len(value)+1)
		if over := name == "one value"; g.TooMany() != over {
			t.Errorf("%s: it goes on in base64: %v", name, g.TooMany())
		}
	}
}

// TestGuessesOfNobody: what many texts have in common with one of their kind, again
// and again, is no guessing; nor is what is read of it in one piece.
func TestGuessesOfNobody(t *testing.T) {
	const text = "sk-live-q8w7e6r5t4y3u2i1o0p9"
	g := NewGuesses()
	for i := range 10_000 {
		s := hiding(each([]string{text}), g)
		in := fmt.Sprintf("keys look like sk-live-%d or sk-liver or sk-livq, and yours is %s.", i, text)
		if got := string(s.Next([]byte(in))) + string(s.Rest()); got != strings.ReplaceAll(in, text, strings.Repeat("*", len(text))) {
			t.Fatalf("%q", got)
		}
	}
	if g.TooMany() {
		t.Error("it is taken for guessing")
	}
}

// TestTooManyWhileHeld: who guessed too much meanwhile does not see what was held back,
// and what follows is not held for the sake of it.
func TestTooManyWhileHeld(t *testing.T) {
	const text = "sk-live-q8w7e6r5t4y3u2i1o0p9"
	g := NewGuesses()
	s := hiding(each([]string{text}), g)
	got := string(s.Next([]byte("it is " + text[:12])))
	g.over.Store(true)
	part := []byte(strings.Repeat("x", 1<<10))
	for range 100 {
		got += string(s.Next(part))
	}
	if n := len(s.held) - s.passed; n != 0 {
		t.Errorf("%d bytes are held", n)
	}
	got += string(s.Rest())
	if want := "it is sk-" + strings.Repeat("*", 9+100*len(part)); got != want {
		t.Errorf("%d bytes beginning with %.40q, want %d with %.40q", len(got), got, len(want), want)
	}
}
