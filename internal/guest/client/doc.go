// Package client is the host's side of the guest protocol: a session with the
// agent in one sandbox, commands and files in it.
//
// Nothing that the guest says is trusted: every read is bounded in size, every
// wait ends with its context, and the limits of a command hold whether the guest
// keeps them or not.
package client
