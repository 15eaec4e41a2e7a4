//go:build linux

#include "textflag.h"

#define SYS_rt_sigaction 13
#define SYS_rt_sigprocmask 14
#define SYS_prlimit64 302
#define RLIMIT_NOFILE 7

TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVQ $1, R12
action:
	MOVQ R12, DI
	XORL SI, SI
	MOVQ R12, AX
	SHLQ $5, AX
	LEAQ ·entryActions(SB), DX
	ADDQ AX, DX
	MOVQ $8, R10
	MOVQ $SYS_rt_sigaction, AX
	SYSCALL
	INCQ R12
	CMPQ R12, $64
	JLE  action

	XORL DI, DI
	XORL SI, SI
	LEAQ ·entryMask(SB), DX
	MOVQ $8, R10
	MOVQ $SYS_rt_sigprocmask, AX
	SYSCALL

	XORL DI, DI
	MOVQ $RLIMIT_NOFILE, SI
	XORL DX, DX
	LEAQ ·entryNofile(SB), R10
	MOVQ $SYS_prlimit64, AX
	SYSCALL

	JMP _rt0_amd64_linux(SB)
