package manager

import (
	"testing"
	"time"
)

// Impatient makes changes of limits wait hardly at all for the agent.
func Impatient(t *testing.T) {
	before := resizeTimeout
	resizeTimeout = 100 * time.Millisecond
	t.Cleanup(func() { resizeTimeout = before })
}

// Reencode reads a cursor and writes it again.
func Reencode(cursor string) (string, error) {
	p, err := parseCursor(cursor)
	if err != nil {
		return "", err
	}
	return p.cursor(), nil
}
