package seccompbpf

// Data is what a filter sees of a syscall: struct seccomp_data.
type Data struct {
	Nr   uint32
	Arch uint32
	IP   uint64
	Args [6]uint64
}

// Verdict runs the filter as the kernel would and returns its result, on any machine and for any
// ABI. A program that Check refuses gets KillProcess when it goes wrong.
func (f Filter) Verdict(d Data) Action {
	a, _ := f.run(d)
	return a
}

// run also counts the executed instructions.
func (f Filter) run(d Data) (result Action, steps int) {
	var a, x uint32
	var m [memWords]uint32
	for pc := 0; pc >= 0 && pc < len(f); pc++ {
		steps++
		in := f[pc]
		switch in.Code {
		case opLoad:
			v, ok := d.word(in.K)
			if !ok {
				return KillProcess, steps
			}
			a = v
		case opLoadLen:
			a = dataSize
		case opLoadImm:
			a = in.K
		case opLoadXLen:
			x = dataSize
		case opLoadXImm:
			x = in.K
		case opLoadMem, opLoadXMem, opStore, opStoreX:
			if in.K >= memWords {
				return KillProcess, steps
			}
			switch in.Code {
			case opLoadMem:
				a = m[in.K]
			case opLoadXMem:
				x = m[in.K]
			case opStore:
				m[in.K] = a
			case opStoreX:
				m[in.K] = x
			}
		case opTax:
			x = a
		case opTxa:
			a = x
		case opNeg:
			a = -a
		case opRet:
			return Action(in.K), steps
		case opRetA:
			return Action(a), steps
		case opJa:
			pc += int(in.K)
		default:
			operand := in.K
			if in.Code&srcX != 0 {
				operand = x
			}
			op := in.Code &^ srcX
			switch in.Code & classMask {
			case classAlu:
				if op == opDiv && operand == 0 {
					return KillThread, steps // the kernel makes the filter return zero
				}
				v, ok := alu(op, a, operand)
				if !ok {
					return KillProcess, steps
				}
				a = v
			case classJmp:
				taken, ok := compare(op, a, operand)
				if !ok {
					return KillProcess, steps
				}
				if taken {
					pc += int(in.Jt)
				} else {
					pc += int(in.Jf)
				}
			default:
				return KillProcess, steps
			}
		}
	}
	return KillProcess, steps
}

func alu(op uint16, a, operand uint32) (v uint32, ok bool) {
	switch op {
	case opAdd:
		return a + operand, true
	case opSub:
		return a - operand, true
	case opMul:
		return a * operand, true
	case opDiv:
		return a / operand, true
	case opOr:
		return a | operand, true
	case opAnd:
		return a & operand, true
	case opLsh:
		return a << (operand & 31), true
	case opRsh:
		return a >> (operand & 31), true
	case opXor:
		return a ^ operand, true
	}
	return 0, false
}

func compare(op uint16, a, operand uint32) (taken, ok bool) {
	switch op {
	case opJeq:
		return a == operand, true
	case opJgt:
		return a > operand, true
	case opJge:
		return a >= operand, true
	case opJset:
		return a&operand != 0, true
	}
	return false, false
}

// word returns the 32 bits at a byte offset.
func (d Data) word(off uint32) (v uint32, ok bool) {
	switch {
	case off%4 != 0 || off >= dataSize:
		return 0, false
	case off == offNr:
		return d.Nr, true
	case off == offArch:
		return d.Arch, true
	}
	v64 := d.IP
	if off >= offArgs {
		v64 = d.Args[(off-offArgs)/8]
	}
	if off%8 == 4 {
		v64 >>= 32
	}
	return uint32(v64), true
}
