#include "textflag.h"

#define SYS_EXIT_GROUP 94

// func clone(args *cloneArgs, size uintptr, first *step, n uintptr, f *failure) uintptr
//
// The child never touches the stack, which it shares with its parent.
TEXT ·clone(SB), NOSPLIT, $0-48
	MOVD	first+16(FP), R19
	MOVD	n+24(FP), R20
	MOVD	f+32(FP), R21
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	$435, R8 // clone3
	SVC
	CBZ	R0, child
	MOVD	R0, ret+40(FP)
	RET
child:
	MOVD	$0, R22
next:
	MOVD	0(R19), R8
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	SVC
	CMN	$4095, R0
	BCS	failed
	ADD	$40, R19
	ADD	$1, R22
	CMP	R20, R22
	BLO	next
	MOVD	$0, R0 // no step replaced the program
failed:
	MOVD	R22, 0(R21)
	NEG	R0, R0
	MOVD	R0, 8(R21)
exit:
	MOVD	$SYS_EXIT_GROUP, R8
	MOVD	$127, R0
	SVC
	JMP	exit
