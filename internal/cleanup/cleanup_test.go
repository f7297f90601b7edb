package cleanup_test

import (
	"errors"
	"slices"
	"testing"

	"agentbox/internal/cleanup"
)

func TestStackUndoesInReverse(t *testing.T) {
	var got []int
	boom := errors.New("boom")
	var s cleanup.Stack
	for i := range 3 {
		s.Add(func() error {
			got = append(got, i)
			if i == 1 {
				return boom
			}
			return nil
		})
	}
	if err := s.Run(); !errors.Is(err, boom) {
		t.Errorf("Run = %v, want the step's error", err)
	}
	if !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("order %v", got)
	}
	if err := s.Run(); err != nil || len(got) != 3 {
		t.Error("a second Run undid again")
	}
}

func TestStackReleased(t *testing.T) {
	var s cleanup.Stack
	s.Add(func() error { t.Error("undone although released"); return nil })
	s.Release()
	if err := s.Run(); err != nil {
		t.Error(err)
	}
}
