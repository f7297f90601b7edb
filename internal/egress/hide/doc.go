// Package hide keeps the secrets that a sandbox has for a host out of what the host
// answers: each byte of them becomes a star, however it is spelled.
//
// [Searches] gives a [Scrubber] for each answer. What is looked for (sought: the values
// in their forms, a search for all of them, the spellings) is made once and shared; the
// scrubber has where it is in its answer, in each spelling (reading).
package hide
