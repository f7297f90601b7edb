// Package wording has the numbers and texts in which sandbox.v1 and the process API
// in a sandbox tell how commands ended and why files could not be read or written.
// Clients match on them, so both have them from here: the daemon's door about a
// sandbox, and the agent inside about itself. How output becomes text is the same at
// every door.
package wording

// Texts that clients match on.
const (
	TimedOut       = "Command timed out"
	MissingCommand = "Missing 'command' field"
	PathNotAllowed = "Path not allowed"
	FileNotFound   = "File not found"
	NoText         = "File is not valid UTF-8 text"
	InvalidMode    = "Invalid mode"
)
