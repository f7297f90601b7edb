package runtimetest

import (
	"testing"

	"agentbox/internal/runtime"
)

// Factory makes the back end under test.
type Factory struct {
	// Name is unique in one test binary.
	Name string
	// Open opens the back end on dir. It is called again with the same dir by
	// what stands for a restarted process: in this process after Close, in
	// another process at any time after the death of the one before.
	Open func(dir string) (runtime.Runtime, error)
	// Image is the root file system. It has sh, the usual small tools and a
	// user "user" with uid 1000.
	Image func() (runtime.Image, error)
	// EchoServer is a command to which a port is appended: a server that sends
	// back what it is sent, to several clients at once. Empty: the image has
	// Python, and one is written in that.
	EchoServer string
	// Netcat is a command to which a port is appended: it connects there, sends
	// its input, closes its direction, and prints what comes back. Empty: the
	// image has Python, and one is written in that.
	Netcat string
	// Crash ends the process of a running sandbox as a crash would. Nil: kill
	// it by its pid.
	Crash func(dir, id string) error
	// Residue lists what is left of sandboxes after all were destroyed, beyond
	// what the suite finds by itself. Nil: nothing more to look at.
	Residue func(dir string) ([]string, error)
	// Keeps are paths below dir that may stay behind, such as logs of crashes.
	Keeps []string
}

// RunSeam checks the contract of runtime.Runtime.
func RunSeam(t *testing.T, f Factory) {
	for _, c := range []struct {
		name string
		run  func(*env)
	}{
		{"Life", testLife},
		{"WrongState", testWrongState},
		{"UnknownID", testUnknownID},
		{"BadID", testBadID},
		{"PrefixNeverMatches", testPrefix},
		{"DestroyFromEveryState", testDestroy},
		{"CreateAtOnce", testCreateAtOnce},
		{"DestroyAtOnce", testDestroyAtOnce},
		{"CanceledContext", testCanceled},
		{"Require", testRequire},
		{"SecondAttachReplacesFirst", testSecondAttach},
		{"Reopen", testReopen},
		{"Close", testClose},
		{"Resize", testResize},
		{"StopKeepsFiles", testStop},
		{"StopCycles", testStopCycles},
		{"StopThenCrash", testStopThenCrash},
		{"StopOfFullDisk", testStopFull},
		{"StopCanceled", testStopCanceled},
		{"StopAtOnce", testStopAtOnce},
		{"MountRefused", testMountRefused},
		{"MountShared", testMountShared},
		{"MountLasts", testMountLasts},
		{"MountDestroy", testMountDestroy},
		{"WatchTellsOfDeath", testWatch},
		{"WatchLosesNothing", testWatchAll},
		{"WatchAfterReopen", testWatchReopened},
		{"WatchIsSilentWhenAsked", testWatchSilent},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newEnv(t, f)) })
	}
}

// RunGuest checks what the guest agent does for its host. What needs a real
// Linux guest is left out, with a word, where there is none.
func RunGuest(t *testing.T, f Factory) {
	for _, part := range []struct {
		name  string
		linux bool
		cases []guestCase
	}{
		{"Exec", false, execCases},
		{"Output", false, outputCases},
		{"Jobs", false, jobCases},
		{"Terminal", false, terminalCases},
		{"Files", false, fileCases},
		{"Trees", false, treeCases},
		{"Search", false, searchCases},
		{"Watch", false, watchCases},
		{"Ports", false, portCases},
		{"Session", false, sessionCases},
		{"Tunnel", false, tunnelCases},
		{"Network", true, networkCases},
		{"Linux", true, linuxCases},
	} {
		t.Run(part.name, func(t *testing.T) {
			e := newEnv(t, f)
			if part.linux {
				e.needGuest()
			}
			g := e.guest()
			for _, c := range part.cases {
				t.Run(c.name, func(t *testing.T) { g.run(t, c.run) })
			}
		})
	}
	t.Run("Stop", func(t *testing.T) { testStops(t, f) })
	t.Run("Suspend", func(t *testing.T) { testSuspend(newEnv(t, f)) })
	t.Run("SuspendTunnel", func(t *testing.T) { testSuspendTunnel(newEnv(t, f)) })
	t.Run("Mounts", func(t *testing.T) { testMounts(t, f) })
	t.Run("HostCrash", func(t *testing.T) { testHostCrash(t, f) })
}

// guestCase is one test in a running sandbox, which the cases of one part share.
type guestCase struct {
	name string
	run  func(*guest)
}
