#include "textflag.h"

// The machine. It is never called: image.go copies it out of this program's
// text into an ELF file of its own, so it must not refer to any symbol, and it
// must not use the stack, which a child may share with its parent.
//
// R12 is the current operation, R13 the slots.

DATA ·stageText(SB)/8, $·stage(SB)
GLOBL ·stageText(SB), RODATA, $8

#define ARG(i, reg) \
	MOVQ (8+8*i)(R12), reg; \
	BTL  $i, BX;            \
	JCC  2(PC);             \
	MOVQ (R13)(reg*8), reg

TEXT ·stage(SB), NOSPLIT|NOFRAME, $0
	MOVQ $0x10100100, AX // imageBase + headerOff
	MOVQ 0(AX), R12
	MOVQ 8(AX), R13

loop:
	MOVBLZX 2(R12), BX
	ARG(0, DI)
	ARG(1, SI)
	ARG(2, DX)
	ARG(3, R10)
	ARG(4, R8)
	ARG(5, R9)
	MOVBLZX 0(R12), AX
	MOVBLZX 1(R12), BX
	CMPL    AX, $0
	JEQ     sys
	CMPL    AX, $1
	JEQ     fork
	CMPL    AX, $2
	JEQ     jmp
	CMPL    AX, $3
	JEQ     jeq
	CMPL    AX, $4
	JEQ     jne
	CMPL    AX, $5
	JEQ     jlt
	CMPL    AX, $6
	JEQ     jset
	CMPL    AX, $7
	JEQ     add
	CMPL    AX, $8
	JEQ     and
	CMPL    AX, $9
	JEQ     shr
	CMPL    AX, $10
	JEQ     ld32
	CMPL    AX, $11
	JEQ     ld64
	BYTE    $0x0F; BYTE $0x0B // UD2: no such kind

fork:
	MOVL  4(R12), AX
	SYSCALL
	TESTQ AX, AX
	JNE   result
	MOVQ  48(R12), R12 // the child stores nothing: its parent may share the slots
	JMP   loop

sys:
	MOVL 4(R12), AX
	SYSCALL

result:
	MOVQ  AX, (R13)(BX*8)
	CMPQ  AX, $0xfffffffffffff001
	JCS   next
	MOVQ  56(R12), CX
	TESTQ CX, CX
	JEQ   next
	MOVQ  R12, 8(R13)
	MOVQ  AX, 16(R13)
	MOVQ  CX, R12
	JMP   loop

jmp:
	MOVQ R9, R12
	JMP  loop

jeq:
	CMPQ DI, SI
	JEQ  jmp
	JMP  next

jne:
	CMPQ DI, SI
	JNE  jmp
	JMP  next

jlt:
	CMPQ DI, SI
	JLT  jmp
	JMP  next

jset:
	TESTQ DI, SI
	JNE   jmp
	JMP   next

add:
	ADDQ SI, DI
	JMP  store

and:
	ANDQ SI, DI
	JMP  store

shr:
	MOVQ SI, CX
	SHRQ CX, DI
	JMP  store

ld32:
	MOVL (DI)(SI*1), DI
	JMP  store

ld64:
	MOVQ (DI)(SI*1), DI

store:
	MOVQ DI, (R13)(BX*8)

next:
	ADDQ $64, R12
	JMP  loop
	BYTE $'P'; BYTE $'S'; BYTE $'T'; BYTE $'R'; BYTE $'N'; BYTE $'E'; BYTE $'N'; BYTE $'D'
