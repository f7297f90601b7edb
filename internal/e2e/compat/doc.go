// Package compat runs the test suites of real programs in sandboxes: programs
// that nobody here wrote, from Debian's packages, offline.
//
// testdata/units.txt lists the suites, testdata/expected.txt the tests in them
// that are known to fail, with the cause. A test that fails and is not on the
// list breaks the run; so does one that is on the list and passes.
package compat
