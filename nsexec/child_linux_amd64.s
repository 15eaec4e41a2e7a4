#include "textflag.h"

// func startChild(c *child) int
//
// The child has its parent's stack and must not touch it.
TEXT ·startChild(SB), NOSPLIT, $0-16
	MOVQ c+0(FP), R12
	MOVQ $14, AX          // rt_sigprocmask(SIG_BLOCK, &c.all, &c.blocked, 8)
	MOVQ $0, DI
	LEAQ 32(R12), SI
	LEAQ 40(R12), DX
	MOVQ $8, R10
	SYSCALL
	MOVQ 8(R12), AX       // c.clone
	MOVQ 16(R12), DI
	MOVQ 24(R12), SI
	MOVQ $0, DX
	MOVQ $0, R10
	MOVQ $0, R8
	SYSCALL
	CMPQ AX, $0
	JEQ  child
	MOVQ AX, R13
	MOVQ $14, AX          // rt_sigprocmask(SIG_SETMASK, &c.blocked, 0, 8)
	MOVQ $2, DI
	LEAQ 40(R12), SI
	MOVQ $0, DX
	MOVQ $8, R10
	SYSCALL
	MOVQ R13, ret+8(FP)
	RET

child:
	MOVQ 0(R12), R13      // c.calls

call:
	MOVQ 0(R13), AX
	MOVQ 8(R13), DI
	MOVQ 16(R13), SI
	MOVQ 24(R13), DX
	MOVQ 32(R13), R10
	MOVQ 40(R13), R8
	MOVQ 48(R13), R9
	SYSCALL
	ADDQ $56, R13
	CMPQ AX, $-4096
	JLS  call
	MOVQ AX, 48(R12)      // c.failed
	MOVQ $231, AX         // exit_group(127)
	MOVQ $127, DI
	SYSCALL
	UNDEF
