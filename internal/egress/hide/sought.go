package hide

import "hash/maphash"

// sought is what scrubbers look for. It does not change, and any number of them may
// share it.
type sought struct {
	values []string
	texts  []text
	search *search
	ways   []way
}

// text is a form of a value.
type text struct {
	size  int
	value valueID
}

// valueID stands for a value, which who has it need not keep.
type valueID struct {
	hash uint64
	size int
}

// seed is this process's: hashes tell nothing to who sees them elsewhere.
var seed = maphash.MakeSeed()

// newSought looks for values in the given forms, the first of which is the value itself.
func newSought(hide [][]string) *sought {
	s := &sought{}
	var texts []string
	for _, forms := range hide {
		s.values = append(s.values, forms[0])
		v := valueID{maphash.String(seed, forms[0]), len(forms[0])}
		for _, f := range forms {
			if f != "" {
				texts = append(texts, f)
				s.texts = append(s.texts, text{len(f), v})
			}
		}
	}
	s.search = newSearch(texts)
	for i := range spellings {
		if sp := &spellings[i]; sp.useful(texts) {
			s.ways = append(s.ways, sp.way(s.search))
		}
	}
	return s
}

// way is a spelling in which some texts are looked for.
type way struct {
	*spelling
	begins [256]bool // what may begin a text or an escape
}

func (sp *spelling) way(s *search) way {
	w := way{spelling: sp}
	for c := range w.begins {
		w.begins[c] = s.first[small(byte(c))] != 0 || sp.mark != 0 && byte(c) == sp.mark
	}
	for c, as := range sp.instead {
		w.begins[c] = s.first[small(as)] != 0
	}
	return w
}
