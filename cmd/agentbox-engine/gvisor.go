package main

import (
	"slices"
	"time"
	_ "unsafe" // linkname

	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/runsc/boot/filter"
)

//go:generate go run ./genseccomp

// precompiledPrograms is gVisor's table of compiled seccomp filters. The
// module is published without any, so that each sandbox would compile its own
// at its start, which takes longer than everything else in it.
//
//go:linkname precompiledPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var precompiledPrograms map[string]precompiledseccomp.Program

// useCompiledFilters hands gVisor the filters of this program. One that does
// not fit is not used: the start is slow then, not wrong.
func useCompiledFilters() {
	filter.GetPrecompiled("") // fills the table once, with nothing; ours must come later
	precompiledPrograms = compiledFilters()
}

// tmpfsOptions are the mount options of tmpfs that gVisor passes on.
//
//go:linkname tmpfsOptions gvisor.dev/gvisor/runsc/boot.tmpfsAllowedData
var tmpfsOptions []string

// allowInodeLimits lets mounts of tmpfs carry nr_inodes, which gVisor's tmpfs
// knows and its list forgets.
func allowInodeLimits() {
	if !slices.Contains(tmpfsOptions, "nr_inodes") {
		tmpfsOptions = append(slices.Clone(tmpfsOptions), "nr_inodes")
	}
}

// stubThreads is how many threads each of the guest's address spaces may have,
// which gVisor's platform takes from the number of processors when it is made.
//
//go:linkname stubThreads gvisor.dev/gvisor/pkg/sentry/platform/systrap.maxSysmsgThreads
var stubThreads int

// useSpareProcessor gives the sentry's goroutines one processor more than the
// guest has. With as many, one that becomes ready while all others wait for the
// guest is not run until the runtime looks for it, up to 10 ms later: measured
// at a quarter of a start. It comes after the platform, whose threads would take
// 2.5 MB more.
func useSpareProcessor() {
	go func() {
		for stubThreads == 0 {
			time.Sleep(time.Millisecond)
		}
		gomaxprocs.Add(1)
	}()
}
