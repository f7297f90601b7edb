//go:build linux

package volume

// Bounded is for tests that write as root to what has a quota.
var Bounded = bounded
