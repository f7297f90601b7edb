// Package sandbox is the domain of agentbox: what a sandbox is, what may be
// asked of it and what a command in it can end as. It does no I/O and imports
// the standard library only, so that every other package may speak its types.
package sandbox
