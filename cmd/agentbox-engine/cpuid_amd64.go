package main

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// archSetCPUID is ARCH_SET_CPUID of Linux's asm/prctl.h.
const archSetCPUID = 0x1012

// keepCPUID lets guest programs run the CPUID instruction as it is. Where the
// processor can trap it gVisor has it emulated, which costs 50 µs and more each
// time, and the C library runs it some 80 times in each program that starts:
// measured at 4.5 of the 5.4 ms that /bin/true took. gVisor asks for the trap
// with a system call that may fail, as it does on most processors of AMD; here
// it always fails. What a guest learns is what any process of the host may.
//
// The filter holds for this process and its children. It stays in force when
// boot executes itself again, where one more does no harm.
func keepCPUID() error {
	const (
		nr, arch, arg0 = 0, 4, 16 // offsets in struct seccomp_data; the low half of the argument
		load           = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal          = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		end            = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: load, K: arch},
		{Code: equal, K: unix.AUDIT_ARCH_X86_64, Jf: 5},
		{Code: load, K: nr},
		{Code: equal, K: unix.SYS_ARCH_PRCTL, Jf: 3},
		{Code: load, K: arg0},
		{Code: equal, K: archSetCPUID, Jf: 1},
		{Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENODEV)},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("keep the processor's own CPUID: %w", errno)
	}
	return nil
}
