#include "textflag.h"

#define SYS_EXIT_GROUP 231

// func clone(args *cloneArgs, size uintptr, first *step, n uintptr, f *failure) uintptr
//
// The child never touches the stack, which it shares with its parent.
TEXT ·clone(SB), NOSPLIT, $0-48
	MOVQ	first+16(FP), R12
	MOVQ	n+24(FP), R13
	MOVQ	f+32(FP), BX
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX // clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, ret+40(FP)
	RET
child:
	XORQ	R15, R15
next:
	MOVQ	0(R12), AX
	MOVQ	8(R12), DI
	MOVQ	16(R12), SI
	MOVQ	24(R12), DX
	MOVQ	32(R12), R10
	SYSCALL
	CMPQ	AX, $-4095
	JCC	failed
	ADDQ	$40, R12
	INCQ	R15
	CMPQ	R15, R13
	JCS	next
	XORQ	AX, AX // no step replaced the program
failed:
	MOVQ	R15, 0(BX)
	NEGQ	AX
	MOVQ	AX, 8(BX)
exit:
	MOVQ	$SYS_EXIT_GROUP, AX
	MOVQ	$127, DI
	SYSCALL
	JMP	exit
