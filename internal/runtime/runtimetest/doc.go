// Package runtimetest is what every back end must do, as tests. A back end
// passes a [Factory] to [RunSeam], which checks the contract of
// runtime.Runtime, and to [RunGuest], which checks commands and files through
// the guest agent and, where programs really run, that sandboxes outlive the
// death of their host process.
//
// The host process that is to die is the test's own binary, started again: see
// [Child].
//
// Every test has a directory of its own and ends with a look for what was left
// behind: processes, mounts, control groups, files and descriptors.
package runtimetest
