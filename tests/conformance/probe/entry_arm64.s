//go:build linux

#include "textflag.h"

#define SYS_rt_sigaction 134
#define SYS_rt_sigprocmask 135
#define SYS_prlimit64 261
#define RLIMIT_NOFILE 7

TEXT ·entry(SB), NOSPLIT|NOFRAME|TOPFRAME, $0
	MOVD $1, R20
action:
	MOVD R20, R0
	MOVD $0, R1
	MOVD $·entryActions(SB), R2
	ADD  R20<<5, R2, R2
	MOVD $8, R3
	MOVD $SYS_rt_sigaction, R8
	SVC
	ADD  $1, R20
	CMP  $64, R20
	BLE  action

	MOVD $0, R0
	MOVD $0, R1
	MOVD $·entryMask(SB), R2
	MOVD $8, R3
	MOVD $SYS_rt_sigprocmask, R8
	SVC

	MOVD $0, R0
	MOVD $RLIMIT_NOFILE, R1
	MOVD $0, R2
	MOVD $·entryNofile(SB), R3
	MOVD $SYS_prlimit64, R8
	SVC

	JMP _rt0_arm64_linux(SB)
