// Package arch holds the tests that keep the architecture in force: which
// package may import which, that packages are documented, and that the modules
// which must not move have not moved. It has no code of its own.
package arch
