package wire

import "testing"

// The daemon leaves CPUs to the sandboxes, and has one on every machine.
func TestProcessors(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		if got := processors(n); got != want {
			t.Errorf("of %d CPUs it takes %d, want %d", n, got, want)
		}
	}
}
