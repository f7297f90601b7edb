// Package e2e tests agentbox as its users meet it: the real binary, real
// sandboxes, real programs in them. Tests are named by the ids of the cases that
// they stand for; testdata/cases.tsv lists every case with its test, or with what
// it waits for.
package e2e
