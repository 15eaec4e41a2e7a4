#include "textflag.h"

// func startChild(c *child) int
//
// See child_linux_amd64.s.
TEXT ·startChild(SB), NOSPLIT, $0-16
	MOVD c+0(FP), R19
	MOVD $135, R8         // rt_sigprocmask(SIG_BLOCK, &c.all, &c.blocked, 8)
	MOVD $0, R0
	ADD  $32, R19, R1
	ADD  $40, R19, R2
	MOVD $8, R3
	SVC
	MOVD 8(R19), R8       // c.clone
	MOVD 16(R19), R0
	MOVD 24(R19), R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SVC
	CBZ  R0, child
	MOVD R0, R20
	MOVD $135, R8         // rt_sigprocmask(SIG_SETMASK, &c.blocked, 0, 8)
	MOVD $2, R0
	ADD  $40, R19, R1
	MOVD $0, R2
	MOVD $8, R3
	SVC
	MOVD R20, ret+8(FP)
	RET

child:
	MOVD 0(R19), R20      // c.calls

call:
	MOVD 0(R20), R8
	MOVD 8(R20), R0
	MOVD 16(R20), R1
	MOVD 24(R20), R2
	MOVD 32(R20), R3
	MOVD 40(R20), R4
	MOVD 48(R20), R5
	SVC
	ADD  $56, R20
	CMN  $4095, R0
	BCC  call
	MOVD R0, 48(R19)      // c.failed
	MOVD $94, R8          // exit_group(127)
	MOVD $127, R0
	SVC
	UNDEF
