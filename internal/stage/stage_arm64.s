#include "textflag.h"

// The machine; see stage_amd64.s for its rules.
//
// R19 is the current operation, R20 the slots.

DATA ·stageText(SB)/8, $·stage(SB)
GLOBL ·stageText(SB), RODATA, $8

#define ARG(i, reg) \
	MOVD (8+8*i)(R19), reg; \
	TBZ  $i, R22, 2(PC);    \
	MOVD (R20)(reg<<3), reg

TEXT ·stage(SB), NOSPLIT|NOFRAME, $0
	MOVD $0x10100100, R21 // imageBase + headerOff
	MOVD 0(R21), R19
	MOVD 8(R21), R20

loop:
	MOVBU 2(R19), R22
	ARG(0, R0)
	ARG(1, R1)
	ARG(2, R2)
	ARG(3, R3)
	ARG(4, R4)
	ARG(5, R5)
	MOVBU 0(R19), R8
	MOVBU 1(R19), R23
	CMP   $0, R8
	BEQ   sys
	CMP   $1, R8
	BEQ   fork
	CMP   $2, R8
	BEQ   jmp
	CMP   $3, R8
	BEQ   jeq
	CMP   $4, R8
	BEQ   jne
	CMP   $5, R8
	BEQ   jlt
	CMP   $6, R8
	BEQ   jset
	CMP   $7, R8
	BEQ   add
	CMP   $8, R8
	BEQ   and
	CMP   $9, R8
	BEQ   shr
	CMP   $10, R8
	BEQ   ld32
	CMP   $11, R8
	BEQ   ld64
	BRK              // no such kind

fork:
	MOVWU 4(R19), R8
	SVC
	CBNZ  R0, result
	MOVD  48(R19), R19 // the child stores nothing: its parent may share the slots
	B     loop

sys:
	MOVWU 4(R19), R8
	SVC

result:
	MOVD R0, (R20)(R23<<3)
	CMN  $4096, R0
	BLS  next
	MOVD 56(R19), R6
	CBZ  R6, next
	MOVD R19, 8(R20)
	MOVD R0, 16(R20)
	MOVD R6, R19
	B    loop

jmp:
	MOVD R5, R19
	B    loop

jeq:
	CMP R1, R0
	BEQ jmp
	B   next

jne:
	CMP R1, R0
	BNE jmp
	B   next

jlt:
	CMP R1, R0
	BLT jmp
	B   next

jset:
	TST R1, R0
	BNE jmp
	B   next

add:
	ADD R1, R0, R0
	B   store

and:
	AND R1, R0, R0
	B   store

shr:
	LSR R1, R0, R0
	B   store

ld32:
	ADD   R1, R0, R0
	MOVWU (R0), R0
	B     store

ld64:
	ADD  R1, R0, R0
	MOVD (R0), R0

store:
	MOVD R0, (R20)(R23<<3)

next:
	ADD  $64, R19, R19
	B    loop
	WORD $0x52545350 // PSTR
	WORD $0x444e454e // NEND
