#include "textflag.h"

// func int80(nr uintptr, args [6]uintptr) uintptr
TEXT ·int80(SB), NOSPLIT, $0-64
	MOVQ nr+0(FP), AX
	MOVQ args_0+8(FP), BX
	MOVQ args_1+16(FP), CX
	MOVQ args_2+24(FP), DX
	MOVQ args_3+32(FP), SI
	MOVQ args_4+40(FP), DI
	INT  $0x80
	MOVQ AX, ret+56(FP)
	RET
