package store

import "testing"

// LimitPages lets the file be little larger than it is.
func (s *Store) LimitPages(t *testing.T) { s.pragma(t, "max_page_count = 60") }

// Impatient makes the store wait hardly at all for a lock.
func (s *Store) Impatient(t *testing.T) { s.pragma(t, "busy_timeout = 10") }

func (s *Store) pragma(t *testing.T, text string) {
	if _, err := s.w.ExecContext(t.Context(), "PRAGMA "+text); err != nil {
		t.Fatal(err)
	}
}
