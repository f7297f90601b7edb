// Package peercred tells who is at the other end of a local socket. The kernel
// vouches for it; the peer can't lie.
package peercred
