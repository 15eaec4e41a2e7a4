package seccompbpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// ErrInvalidFilter is wrapped by the errors of Parse and Filter.Check.
var ErrInvalidFilter = errors.New("invalid seccomp filter")

// MaxInsns is the greatest length of a filter that the kernel takes.
const MaxInsns = 4096

const insnSize = 8

// An Insn is one instruction of classic BPF, as in struct sock_filter.
type Insn struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// A Filter is a program for seccomp(2). Compile makes one, Parse takes one from elsewhere.
type Filter []Insn

// Parse reads an array of struct sock_filter, little-endian, as bwrap's --seccomp takes it and
// libseccomp exports it. It returns an error, which wraps ErrInvalidFilter, for a length that is
// zero, no multiple of 8 or above MaxInsns instructions, and for a program that the kernel
// would refuse. It does not judge what the filter lets through.
func Parse(raw []byte) (Filter, error) {
	if len(raw)%insnSize != 0 {
		return nil, fmt.Errorf("seccompbpf: %w: %d bytes, must be a multiple of %d", ErrInvalidFilter, len(raw), insnSize)
	}
	// Before anything of that size is allocated.
	if err := checkLen(len(raw) / insnSize); err != nil {
		return nil, err
	}
	f := make(Filter, len(raw)/insnSize)
	for i := range f {
		b := raw[i*insnSize:]
		f[i] = Insn{
			Code: binary.LittleEndian.Uint16(b),
			Jt:   b[2],
			Jf:   b[3],
			K:    binary.LittleEndian.Uint32(b[4:]),
		}
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	return f, nil
}

// Bytes returns the array of struct sock_filter for the kernel, little-endian like all covered
// ABIs.
func (f Filter) Bytes() []byte {
	raw := make([]byte, 0, len(f)*insnSize)
	for _, in := range f {
		raw = binary.LittleEndian.AppendUint16(raw, in.Code)
		raw = append(raw, in.Jt, in.Jf)
		raw = binary.LittleEndian.AppendUint32(raw, in.K)
	}
	return raw
}

// String returns a listing of the filter, one instruction a line, with jump targets as
// line numbers.
func (f Filter) String() string {
	var b strings.Builder
	for pc, in := range f {
		fmt.Fprintf(&b, "%4d  %s\n", pc, in.listing(pc))
	}
	return b.String()
}

func (in Insn) listing(pc int) string {
	src := fmt.Sprintf("%#x", in.K)
	if in.Code&srcX != 0 {
		src = "x"
	}
	name := opName(in.Code)
	switch in.Code {
	case opLoad:
		return "ld   " + fieldName(in.K)
	case opLoadLen, opLoadXLen, opTax, opTxa, opNeg, opRetA:
		return name
	case opLoadMem, opLoadXMem, opStore, opStoreX:
		return fmt.Sprintf("%s m[%d]", name, in.K)
	case opRet:
		return "ret  " + Action(in.K).String()
	case opJa:
		return fmt.Sprintf("ja   -> %d", pc+1+int(in.K))
	}
	switch {
	case name == "":
		return fmt.Sprintf("bad instruction {%#x, %d, %d, %#x}", in.Code, in.Jt, in.Jf, in.K)
	case in.Code&classMask == classJmp:
		return fmt.Sprintf("%s %s -> %d, else %d", name, src, pc+1+int(in.Jt), pc+1+int(in.Jf))
	}
	return name + " " + src
}

func fieldName(off uint32) string {
	switch {
	case off == offNr:
		return "nr"
	case off == offArch:
		return "arch"
	case off == offIP:
		return "ip"
	case off == offIP+4:
		return "ip.high"
	case off%8 == 0 && off < dataSize:
		return fmt.Sprintf("arg%d", (off-offArgs)/8)
	case off%4 == 0 && off < dataSize:
		return fmt.Sprintf("arg%d.high", (off-offArgs)/8)
	}
	return fmt.Sprintf("[%d]", off)
}
