package seccompbpf

// Instruction codes of classic BPF that the kernel allows in a seccomp filter; see bpf(4) of
// any BSD or the kernel's filter.rst. No others exist here: the table below is the list.
const (
	classMask = 0x07
	classJmp  = 0x05
	classAlu  = 0x04
	srcX      = 0x08 // the operand is X instead of K, in classes ALU and JMP

	opLoad     = 0x20 // A = data[k]
	opLoadLen  = 0x80 // A = size of the data
	opLoadImm  = 0x00 // A = k
	opLoadMem  = 0x60 // A = m[k]
	opLoadXLen = 0x81
	opLoadXImm = 0x01
	opLoadXMem = 0x61
	opStore    = 0x02 // m[k] = A
	opStoreX   = 0x03 // m[k] = X

	opAdd = 0x04
	opSub = 0x14
	opMul = 0x24
	opDiv = 0x34
	opOr  = 0x44
	opAnd = 0x54
	opLsh = 0x64
	opRsh = 0x74
	opNeg = 0x84
	opXor = 0xa4

	opJa   = 0x05
	opJeq  = 0x15
	opJgt  = 0x25
	opJge  = 0x35
	opJset = 0x45

	opRet  = 0x06 // return k
	opRetA = 0x16 // return A
	opTax  = 0x07
	opTxa  = 0x87
)

// opNames is by code. An instruction without a name is none.
var opNames = [...]string{
	opLoad: "ld  ", opLoadLen: "ld   len", opLoadImm: "ld  ", opLoadMem: "ld  ",
	opLoadXLen: "ldx  len", opLoadXImm: "ldx ", opLoadXMem: "ldx ",
	opStore: "st  ", opStoreX: "stx ",
	opAdd: "add ", opAdd | srcX: "add ", opSub: "sub ", opSub | srcX: "sub ",
	opMul: "mul ", opMul | srcX: "mul ", opDiv: "div ", opDiv | srcX: "div ",
	opOr: "or  ", opOr | srcX: "or  ", opAnd: "and ", opAnd | srcX: "and ",
	opLsh: "lsh ", opLsh | srcX: "lsh ", opRsh: "rsh ", opRsh | srcX: "rsh ",
	opXor: "xor ", opXor | srcX: "xor ", opNeg: "neg",
	opJa: "ja  ", opJeq: "jeq ", opJeq | srcX: "jeq ", opJgt: "jgt ", opJgt | srcX: "jgt ",
	opJge: "jge ", opJge | srcX: "jge ", opJset: "jset", opJset | srcX: "jset",
	opRet: "ret ", opRetA: "ret  a", opTax: "tax", opTxa: "txa",
}

func opName(code uint16) string {
	if int(code) < len(opNames) {
		return opNames[code]
	}
	return ""
}
