package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gVisor's request for a trap at each CPUID fails in every thread of the
// process, and nothing else does.
func TestKeepCPUID(t *testing.T) {
	const child = "AGENTBOX_TEST_CPUID"
	if os.Getenv(child) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKeepCPUID$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1") // the filter can't be taken back
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	ready, other := make(chan struct{}), make(chan unix.Errno)
	runtime.LockOSThread()
	go func() { // on a thread from before
		runtime.LockOSThread()
		ready <- struct{}{}
		<-ready
		other <- setCPUID(1)
	}()
	<-ready
	if e := setCPUID(1); e != 0 && e != unix.ENODEV {
		t.Fatalf("ARCH_SET_CPUID before: %v", e)
	}
	if err := keepCPUID(); err != nil {
		t.Fatal(err)
	}
	close(ready)
	if e := <-other; e != unix.ENODEV {
		t.Errorf("ARCH_SET_CPUID in another thread: %v", e)
	}
	if e := setCPUID(0); e != unix.ENODEV {
		t.Errorf("ARCH_SET_CPUID: %v", e)
	}
	const archGetFS = 0x1003
	var base uintptr
	if _, _, e := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archGetFS, uintptr(unsafe.Pointer(&base)), 0); e != 0 || base == 0 {
		t.Errorf("ARCH_GET_FS: %v, %#x", e, base)
	}
}

func setCPUID(on uintptr) unix.Errno {
	_, _, e := unix.RawSyscall(unix.SYS_ARCH_PRCTL, archSetCPUID, on, 0)
	return e
}
