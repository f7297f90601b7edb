package hide

import "strings"

// search looks for all of some texts at once, in one pass that is linear in the
// stream, whatever is in it (Aho and Corasick). It takes large and small letters of
// ASCII for the same: some servers change them.
type search struct {
	nodes   []searchNode // the first is where nothing has matched
	first   [256]int32   // its children, by the small letter
	longest int          // text
}

// searchNode is a beginning of one or more texts.
type searchNode struct {
	back        int32 // the longest shorter beginning that it ends with
	child, next int32 // its first one, and the next of its parent; 0: none
	depth       int32 // its length
	match       int32 // the length of the longest text that it ends with; 0: none
	text        int32 // one that it begins
	c           byte  // its last byte
	most        bool  // it is most of a text, see cutText
}

func newSearch(texts []string) *search {
	s := &search{nodes: make([]searchNode, 1, 1+len(strings.Join(texts, "")))}
	for k, t := range texts {
		at := int32(0)
		for i := range len(t) {
			at = s.add(at, small(t[i]), int32(k))
			if n := i + 1; n >= cutText && 2*n >= len(t) {
				s.nodes[at].most = true
			}
		}
		s.nodes[at].match = s.nodes[at].depth
		s.longest = max(s.longest, len(t))
	}
	s.link()
	return s
}

// small is the small letter of one of ASCII.
func small(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// add gives the child of a node, a new one of a text if there is none.
func (s *search) add(at int32, c byte, text int32) int32 {
	if n := s.child(at, c); n != 0 {
		return n
	}
	n, parent := int32(len(s.nodes)), &s.nodes[at]
	if at == 0 {
		s.first[c] = n
	}
	next := parent.child
	parent.child = n
	s.nodes = append(s.nodes, searchNode{c: c, text: text, depth: parent.depth + 1, next: next})
	return n
}

// link finds where to go on when the next byte does not fit, shorter beginnings
// first.
func (s *search) link() {
	todo := make([]int32, 1, len(s.nodes))
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		for n := s.nodes[at].child; n != 0; n = s.nodes[n].next {
			node := &s.nodes[n]
			if at != 0 {
				node.back = s.step(s.nodes[at].back, node.c)
			}
			node.match = max(node.match, s.nodes[node.back].match)
			todo = append(todo, n)
		}
	}
}

func (s *search) child(at int32, c byte) int32 {
	if at == 0 {
		return s.first[c]
	}
	n := s.nodes[at].child
	for n != 0 && s.nodes[n].c != c {
		n = s.nodes[n].next
	}
	return n
}

// step is the longest beginning of a text behind c, if it was at before.
func (s *search) step(at int32, c byte) int32 {
	c = small(c)
	for {
		if n := s.child(at, c); n != 0 || at == 0 {
			return n
		}
		at = s.nodes[at].back
	}
}
