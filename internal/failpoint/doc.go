// Package failpoint lets a test make a step of the daemon fail, wait or kill the
// daemon, so that what a crash leaves behind can be seen for each step.
//
// A point that is not armed costs one load of a pointer. Points are armed once,
// before the daemon begins, from the environment variable [Variable], and the
// daemon says so in its log as an error. The program that tests break is therefore
// the one that users run; nobody arms a point by an option, a file or a request.
package failpoint
