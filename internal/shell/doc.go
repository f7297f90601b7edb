// Package shell has the named shell sessions of sandboxes: a session is a shell
// that stays, so that directory, variables and functions last from one command
// to the next.
//
// A session is a background command of the sandbox's agent and nothing else: it
// is found again by an id that follows from its name, also by the next daemon.
// Its shell reads commands from a pipe. Where the output of one command ends is
// told by a mark that is drawn anew for each, never by looking for a prompt.
package shell
