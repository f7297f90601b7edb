// Package store keeps what must outlive the daemon in one SQLite file: the
// sandboxes and what is left of them, their events, the keys of idempotent
// requests, and API keys. It decides nothing: what may follow what is its users'
// concern, what must be unique is the schema's.
//
// # Durability
//
// One connection writes, in transactions, with a write-ahead log and
// synchronous=FULL: when a call returns, its change survives the end of the
// process and of the machine. A call that fails has changed nothing.
//
// # Errors
//
// Of the classes of containerd/errdefs: NotFound, AlreadyExists for what the
// schema holds unique, ResourceExhausted for a disk that is full, Unavailable
// for a file that somebody else holds locked, Internal for the rest. The domain's
// own errors (sandbox.ClashError and others) are of these classes, too.
package store
