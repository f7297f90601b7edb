// Package nearest finds what somebody meant who misspelt a name.
package nearest

// maxName bounds the work for a hostile name: longer ones resemble nothing.
const maxName = 64

// Name returns the one of known that is most like word, or "" when none is
// close: more than a third of the letters, or more than three, would have to
// change. Of equally close ones the first counts.
func Name(word string, known []string) string {
	best, found := min(3, (len(word)+2)/3)+1, ""
	if len(word) > maxName {
		return ""
	}
	for _, k := range known {
		if d := distance(word, k); d < best {
			best, found = d, k
		}
	}
	return found
}

// distance is the number of letters to insert, remove or exchange.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
