#include "textflag.h"

// func startHolder(m *holderMemory) int
//
// The child has its parent's stack and must not touch it.
TEXT ·startHolder(SB), NOSPLIT, $0-16
	MOVQ m+0(FP), R12
	MOVQ $218, AX         // set_tid_address(&m.held)
	MOVQ R12, DI
	SYSCALL
	MOVQ $14, AX          // rt_sigprocmask(SIG_BLOCK, &m.all, &m.before, 8)
	MOVQ $0, DI
	LEAQ 24(R12), SI
	LEAQ 32(R12), DX
	MOVQ $8, R10
	SYSCALL
	MOVQ $56, AX          // clone(CLONE_VM | SIGCHLD)
	MOVQ $0x111, DI
	MOVQ $0, SI
	MOVQ $0, DX
	MOVQ $0, R10
	MOVQ $0, R8
	SYSCALL
	CMPQ AX, $0
	JEQ  child
	MOVQ AX, R13
	MOVQ $14, AX          // rt_sigprocmask(SIG_SETMASK, &m.before, 0, 8)
	MOVQ $2, DI
	LEAQ 32(R12), SI
	MOVQ $0, DX
	MOVQ $8, R10
	SYSCALL
	MOVQ R13, ret+8(FP)
	RET

child:
	MOVQ $202, AX         // futex(&m.held, FUTEX_WAIT, 1, &m.limit)
	MOVQ R12, DI
	MOVQ $0, SI
	MOVQ $1, DX
	LEAQ 8(R12), R10
	SYSCALL
	MOVQ $231, AX         // exit_group(0)
	MOVQ $0, DI
	SYSCALL
	UNDEF
