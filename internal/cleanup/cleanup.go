// Package cleanup undoes half-done work in order.
package cleanup

import (
	"errors"
	"slices"
)

// Stack holds what must be undone if a multi-step operation fails:
//
//	var undo cleanup.Stack
//	defer undo.Run()
//	…; undo.Add(func() error { return os.Remove(path) })
//	undo.Release() // all went well
//
// The zero value is ready to use. A Stack is not safe for concurrent use.
type Stack struct{ undo []func() error }

// Add pushes f, to be run before everything that was added earlier.
func (s *Stack) Add(f func() error) { s.undo = append(s.undo, f) }

// Run undoes what was added, last first, and forgets it. All functions run;
// their errors are joined.
func (s *Stack) Run() error {
	var err error
	for _, f := range slices.Backward(s.undo) {
		err = errors.Join(err, f())
	}
	s.undo = nil
	return err
}

// Release forgets what was added: the operation succeeded.
func (s *Stack) Release() { s.undo = nil }
