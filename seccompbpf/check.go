package seccompbpf

import "fmt"

const memWords = 16

// Check returns nil if the kernel would accept the filter, and else an error that says which
// instruction is wrong and wraps ErrInvalidFilter.
func (f Filter) Check() error {
	if err := checkLen(len(f)); err != nil {
		return err
	}
	for pc, in := range f {
		if err := in.check(len(f) - pc - 1); err != nil {
			return fmt.Errorf("seccompbpf: %w: instruction %d: %w", ErrInvalidFilter, pc, err)
		}
	}
	if last := f[len(f)-1].Code; last != opRet && last != opRetA {
		return fmt.Errorf("seccompbpf: %w: does not end in a return", ErrInvalidFilter)
	}
	return f.checkMemory()
}

func checkLen(n int) error {
	switch {
	case n == 0:
		return fmt.Errorf("seccompbpf: %w: it is empty", ErrInvalidFilter)
	case n > MaxInsns:
		return fmt.Errorf("seccompbpf: %w: %d instructions, the kernel takes at most %d", ErrInvalidFilter, n, MaxInsns)
	}
	return nil
}

// check looks at an instruction with after others behind it.
func (in Insn) check(after int) error {
	if opName(in.Code) == "" {
		return fmt.Errorf("code %#x is not allowed in a seccomp filter", in.Code)
	}
	switch in.Code {
	case opLoad:
		if in.K >= dataSize || in.K%4 != 0 {
			return fmt.Errorf("loads at %d, must be a multiple of 4 below %d", in.K, dataSize)
		}
	case opLoadMem, opLoadXMem, opStore, opStoreX:
		if in.K >= memWords {
			return fmt.Errorf("memory word %d, there are %d", in.K, memWords)
		}
	case opDiv:
		if in.K == 0 {
			return fmt.Errorf("divides by zero")
		}
	case opLsh, opRsh:
		if in.K >= 32 {
			return fmt.Errorf("shifts by %d, must be below 32", in.K)
		}
	case opJa:
		if uint64(in.K) >= uint64(after) {
			return fmt.Errorf("jumps past the end")
		}
	case opRet, opRetA:
	default:
		if in.Code&classMask == classJmp && (int(in.Jt) >= after || int(in.Jf) >= after) {
			return fmt.Errorf("jumps past the end")
		}
	}
	return nil
}

// checkMemory refuses reads of memory words that some path there has not written.
func (f Filter) checkMemory() error {
	const all = 1<<memWords - 1
	arriving := make([]uint16, len(f)) // words written on every jump to an instruction
	for i := range arriving {
		arriving[i] = all
	}
	written := uint16(0)
	for pc, in := range f {
		written &= arriving[pc]
		switch in.Code {
		case opStore, opStoreX:
			written |= 1 << in.K
			continue
		case opLoadMem, opLoadXMem:
			if written&(1<<in.K) == 0 {
				return fmt.Errorf("seccompbpf: %w: instruction %d: reads memory word %d before it is written",
					ErrInvalidFilter, pc, in.K)
			}
			continue
		case opJa:
			arriving[pc+1+int(in.K)] &= written
			written = all
			continue
		}
		if in.Code&classMask == classJmp {
			arriving[pc+1+int(in.Jt)] &= written
			arriving[pc+1+int(in.Jf)] &= written
			written = all
		}
	}
	return nil
}
