// Package manager is the core of the service: it decides which sandboxes there
// are, who may use them and when they end. Doors translate their protocols to its
// calls, back ends and the store do what it says.
//
// # Whose is what
//
// Every call is made for a sandbox.Caller and sees the things of its owner only;
// what belongs to somebody else is not found, as if it did not exist. A sandbox
// is found by each of its ids, by equality: the door's own form first, then uid,
// short id, label, aliases and name.
//
// # States
//
// sandbox.State has the machine; transition.go performs all changes of it. They
// are serialized per sandbox, and in the store before anything is done because of
// them. No lock is held for more than one sandbox while a back end works.
//
// # Activity
//
// A sandbox is idle when nothing is done with it: no command runs, no stream or
// connection is open, no file is on its way. Looking at it (Get, List, Stats,
// lists of commands and ports) is no activity.
//
// # Durability
//
// The store has what is needed to go on after a kill at any moment: Open brings
// it and the back end to agreement. Sandboxes that run are taken over with their
// commands, half-made ones are undone, and of those that ended meanwhile a
// tombstone is left. Close lets go of sandboxes without ending them.
//
// # Errors
//
// Of the classes of containerd/errdefs. Those that carry more than a text are in
// package sandbox: InvalidError, GoneError, StateError, LimitError, ClashError,
// ReplayError, DrainingError.
package manager
