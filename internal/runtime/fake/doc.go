// Package fake is a back end that isolates nothing because nothing real runs in
// it: its sandboxes are the real guest agent on a toy Unix in memory (package
// toyos), reached over a pipe in memory. It is for tests of everything above
// the Runtime seam, and it passes the same conformance suite as the others.
//
// A [Host] stands for the machine. Each [Runtime] that is opened on it stands
// for a process of the daemon: closing one and opening the next is a restart,
// and the sandboxes live on.
package fake
