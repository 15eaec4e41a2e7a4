#include "textflag.h"

// func startHolder(m *holderMemory) int
//
// See hold_linux_amd64.s.
TEXT ·startHolder(SB), NOSPLIT, $0-16
	MOVD m+0(FP), R19
	MOVD $96, R8          // set_tid_address(&m.held)
	MOVD R19, R0
	SVC
	MOVD $135, R8         // rt_sigprocmask(SIG_BLOCK, &m.all, &m.before, 8)
	MOVD $0, R0
	ADD  $24, R19, R1
	ADD  $32, R19, R2
	MOVD $8, R3
	SVC
	MOVD $220, R8         // clone(CLONE_VM | SIGCHLD)
	MOVD $0x111, R0
	MOVD $0, R1
	MOVD $0, R2
	MOVD $0, R3
	MOVD $0, R4
	SVC
	CBZ  R0, child
	MOVD R0, R20
	MOVD $135, R8         // rt_sigprocmask(SIG_SETMASK, &m.before, 0, 8)
	MOVD $2, R0
	ADD  $32, R19, R1
	MOVD $0, R2
	MOVD $8, R3
	SVC
	MOVD R20, ret+8(FP)
	RET

child:
	MOVD $98, R8          // futex(&m.held, FUTEX_WAIT, 1, &m.limit)
	MOVD R19, R0
	MOVD $0, R1
	MOVD $1, R2
	ADD  $8, R19, R3
	SVC
	MOVD $94, R8          // exit_group(0)
	MOVD $0, R0
	SVC
	UNDEF
