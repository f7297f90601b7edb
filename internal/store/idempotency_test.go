package store_test

import (
	"errors"
	"testing"

	"github.com/containerd/errdefs"

	"agentbox/internal/sandbox"
)

func TestIdempotency(t *testing.T) {
	s := open(t, path(t))
	a := admission(box("acme", 1))
	a.Key, a.Request = "k", []byte{1}
	if before, err := s.Admit(t.Context(), a, nil); err != nil || before != "" {
		t.Fatal(before, err)
	}
	again := func(sb sandbox.Sandbox, request byte) (string, error) {
		a := admission(sb)
		a.Key, a.Request = "k", []byte{request}
		return s.Admit(t.Context(), a, nil)
	}
	if before, err := again(box("acme", 2), 1); err != nil || before != a.Sandbox.UID {
		t.Errorf("the same request: %q, %v", before, err)
	}
	var replay *sandbox.ReplayError
	if _, err := again(box("acme", 2), 2); !errors.As(err, &replay) || !errdefs.IsConflict(err) {
		t.Errorf("another request: %v", err)
	}
	if before, err := again(box("other", 3), 2); err != nil || before != "" {
		t.Errorf("another owner: %q, %v", before, err)
	}
	// The answer outlives the sandbox, but not one that never came to be.
	if err := s.Bury(t.Context(), grave(a.Sandbox), nil); err != nil {
		t.Fatal(err)
	}
	if before, err := again(box("acme", 4), 1); err != nil || before != a.Sandbox.UID {
		t.Errorf("after the end: %q, %v", before, err)
	}
	if err := s.Forget(t.Context(), box("", 3).UID); err != nil {
		t.Fatal(err)
	}
	if before, err := again(box("other", 5), 1); err != nil || before != "" {
		t.Errorf("after a failure: %q, %v", before, err)
	}
	late := box("acme", 6)
	late.Created = t0.Add(sandbox.KeepIdempotency)
	if before, err := again(late, 9); err != nil || before != "" {
		t.Errorf("a day later: %q, %v", before, err)
	}
}

// TestRepeatables: what was begun stays known, in whatever order those who ask for
// it are done.
func TestRepeatables(t *testing.T) {
	s := open(t, path(t))
	r := sandbox.Repeatable{Owner: "acme", Key: "k", Request: []byte{1}, Made: "e1", Created: t0}
	look := func() *sandbox.Repeatable {
		t.Helper()
		before, err := s.Recall(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return before
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	remember := func() {
		t.Helper()
		if before, err := s.Remember(t.Context(), r); err != nil || before != nil {
			t.Fatal(before, err)
		}
	}
	remember()
	do(s.Unlearn(t.Context(), r))
	if look() != nil {
		t.Error("what failed is known")
	}
	remember()
	do(s.Unlearn(t.Context(), r)) // one of two failed, before the other one could tell
	do(s.Answer(t.Context(), r))
	do(s.Unlearn(t.Context(), r)) // or after
	if b := look(); b == nil || !b.Begun || b.Made != "e1" || len(b.Answer) != 0 {
		t.Errorf("what was begun is known as %+v", b)
	}
	answered := r
	answered.Answer = []byte("a")
	do(s.Answer(t.Context(), answered))
	do(s.Answer(t.Context(), r))
	if b := look(); b == nil || string(b.Answer) != "a" {
		t.Errorf("what was answered is known as %+v", b)
	}
	other := r
	other.Request, other.Answer = []byte{2}, []byte("b")
	do(s.Answer(t.Context(), other))
	if b := look(); b == nil || string(b.Answer) != "a" {
		t.Errorf("after another request with the key: %+v", b)
	}
}
