package seccompbpf

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseIsInverseOfBytes(t *testing.T) {
	f := compile(t, Hardened())
	raw := f.Bytes()
	if len(raw) != 8*len(f) {
		t.Errorf("%d instructions in %d bytes", len(f), len(raw))
	}
	back, err := Parse(raw)
	if err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("Parse(Bytes): %v", err)
	}
}

func TestBytesAreLittleEndianSockFilter(t *testing.T) {
	f := Filter{{Code: 0x1234, Jt: 0x56, Jf: 0x78, K: 0x9abcdef0}}
	if got, want := f.Bytes(), []byte{0x34, 0x12, 0x56, 0x78, 0xf0, 0xde, 0xbc, 0x9a}; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	ret := Filter{{Code: opRet, K: uint32(Allow)}}.Bytes()
	for want, raw := range map[string][]byte{
		"empty":                     nil,
		"7 bytes, must be a":        ret[:7],
		"9 bytes":                   append(bytes.Clone(ret), 0),
		"4097 instructions":         bytes.Repeat(ret, 4097),
		"instruction 0: code 0x1":   append([]byte{0x30, 0, 0, 0, 0, 0, 0, 0}, ret...),
		"does not end in a return":  append(bytes.Clone(ret), Filter{{Code: opLoad}}.Bytes()...),
		"multiple of 4 below 64":    append(Filter{{Code: opLoad, K: 64}}.Bytes(), ret...),
		"loads at 2":                append(Filter{{Code: opLoad, K: 2}}.Bytes(), ret...),
		"jumps past the end":        append(Filter{{Code: opJeq, Jt: 1}}.Bytes(), ret...),
		"instruction 0: jumps past": append(Filter{{Code: opJa, K: 1 << 31}}.Bytes(), ret...),
		"divides by zero":           append(Filter{{Code: opDiv}}.Bytes(), ret...),
		"shifts by 32":              append(Filter{{Code: opLsh, K: 32}}.Bytes(), ret...),
		"memory word 16":            append(Filter{{Code: opStore, K: 16}}.Bytes(), ret...),
		"before it is written":      append(Filter{{Code: opLoadMem, K: 3}}.Bytes(), ret...),
	} {
		if want == "instruction 0: code 0x1" {
			want = "code 0x30"
		}
		f, err := Parse(raw)
		if !errors.Is(err, ErrInvalidFilter) || f != nil {
			t.Errorf("%q: %v, %v", want, f, err)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("the error should say %q: %v", want, err)
		}
	}
	if _, err := Parse(bytes.Repeat(ret, 4096)); err != nil {
		t.Errorf("4096 instructions: %v", err)
	}
}

func TestVerdictOfEachInstruction(t *testing.T) {
	d := Data{Nr: 1, Arch: 2, IP: 3<<32 | 4, Args: [6]uint64{5<<32 | 6, 0, 0, 0, 0, 7<<32 | 8}}
	load := func(k uint32) Insn { return Insn{Code: opLoad, K: k} }
	imm := func(k uint32) Insn { return Insn{Code: opLoadImm, K: k} }
	ximm := func(k uint32) Insn { return Insn{Code: opLoadXImm, K: k} }
	retA := Insn{Code: opRetA}
	for _, c := range []struct {
		f    Filter
		want uint32
	}{
		{Filter{load(0), retA}, 1},
		{Filter{load(4), retA}, 2},
		{Filter{load(8), retA}, 4},
		{Filter{load(12), retA}, 3},
		{Filter{load(16), retA}, 6},
		{Filter{load(20), retA}, 5},
		{Filter{load(56), retA}, 8},
		{Filter{load(60), retA}, 7},
		{Filter{{Code: opLoadLen}, retA}, 64},
		{Filter{{Code: opLoadXLen}, {Code: opTxa}, retA}, 64},
		{Filter{imm(9), {Code: opTax}, imm(0), {Code: opTxa}, retA}, 9},
		{Filter{imm(9), {Code: opStore, K: 15}, imm(0), {Code: opLoadMem, K: 15}, retA}, 9},
		{Filter{ximm(9), {Code: opStoreX}, {Code: opLoadMem}, retA}, 9},
		{Filter{imm(9), {Code: opStore}, {Code: opLoadXMem}, {Code: opTxa}, retA}, 9},
		{Filter{imm(7), {Code: opAdd, K: 0xffffffff}, retA}, 6},
		{Filter{imm(7), {Code: opSub, K: 8}, retA}, 0xffffffff},
		{Filter{imm(7), {Code: opMul, K: 6}, retA}, 42},
		{Filter{imm(7), {Code: opDiv, K: 2}, retA}, 3},
		{Filter{imm(7), {Code: opDiv | srcX}, retA}, 0},
		{Filter{imm(7), {Code: opNeg}, retA}, 0xfffffff9},
		{Filter{imm(0xf0), ximm(0x3c), {Code: opAnd | srcX}, retA}, 0x30},
		{Filter{imm(0xf0), ximm(0x3c), {Code: opOr | srcX}, retA}, 0xfc},
		{Filter{imm(0xf0), ximm(0x3c), {Code: opXor | srcX}, retA}, 0xcc},
		{Filter{imm(0xf0), {Code: opLsh, K: 28}, retA}, 0},
		{Filter{imm(0xf0), ximm(33), {Code: opLsh | srcX}, retA}, 0x1e0},
		{Filter{imm(0xf0), {Code: opRsh, K: 4}, retA}, 0xf},
		{Filter{{Code: opJa, K: 1}, {Code: opRet, K: 1}, {Code: opRet, K: 2}}, 2},
		{Filter{imm(5), {Code: opJgt, K: 5, Jt: 1}, {Code: opRet, K: 1}, {Code: opRet, K: 2}}, 1},
		{Filter{imm(5), {Code: opJge, K: 5, Jt: 1}, {Code: opRet, K: 1}, {Code: opRet, K: 2}}, 2},
		{Filter{imm(5), {Code: opJset, K: 10, Jt: 1}, {Code: opRet, K: 1}, {Code: opRet, K: 2}}, 1},
		{Filter{imm(5), ximm(5), {Code: opJeq | srcX, Jf: 1}, {Code: opRet, K: 1}, {Code: opRet, K: 2}}, 1},
	} {
		if err := c.f.Check(); err != nil {
			t.Errorf("%v\n%s", err, c.f)
		}
		if got := c.f.Verdict(d); got != Action(c.want) {
			t.Errorf("%#x, want %#x:\n%s", uint32(got), c.want, c.f)
		}
	}
}

// The interpreter is exposed to programs that were never checked.
func FuzzVerdictSurvivesAnyProgram(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{opRetA, 0, 0, 0, 0, 0, 0, 0}, uint64(1))
	f.Add(bytes.Repeat([]byte{opJa, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 3), uint64(1))
	f.Add(Filter{{Code: opStore, K: 99}, {Code: opDiv, K: 0}, {Code: 0xffff}}.Bytes(), uint64(1))
	f.Fuzz(func(t *testing.T, raw []byte, arg uint64) {
		var program Filter
		for ; len(raw) >= 8; raw = raw[8:] {
			program = append(program, Insn{
				Code: uint16(raw[0]) | uint16(raw[1])<<8, Jt: raw[2], Jf: raw[3],
				K: uint32(raw[4]) | uint32(raw[5])<<8 | uint32(raw[6])<<16 | uint32(raw[7])<<24,
			})
		}
		_, steps := program.run(Data{Arch: auditAMD64, Args: [6]uint64{arg}})
		if steps > len(program) {
			t.Errorf("ran %d steps of %d instructions", steps, len(program))
		}
		_ = program.String()
		if program.Check() == nil {
			if _, err := Parse(program.Bytes()); err != nil {
				t.Errorf("Check and Parse disagree: %v", err)
			}
		}
	})
}

func TestUncheckedProgramsAreKilled(t *testing.T) {
	for name, f := range map[string]Filter{
		"empty":           {},
		"no return":       {{Code: opLoad}},
		"bad code":        {{Code: 0xffff}, {Code: opRet, K: uint32(Allow)}},
		"bad load":        {{Code: opLoad, K: 2}, {Code: opRet, K: uint32(Allow)}},
		"bad memory":      {{Code: opStore, K: 16}, {Code: opRet, K: uint32(Allow)}},
		"jump to nowhere": {{Code: opJa, K: 0xffffffff}, {Code: opRet, K: uint32(Allow)}},
		"unknown alu":     {{Code: 0x94, K: 1}, {Code: opRet, K: uint32(Allow)}},
		"unknown jump":    {{Code: 0x55, K: 1}, {Code: opRet, K: uint32(Allow)}},
	} {
		if got := f.Verdict(Data{}); got != KillProcess {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFilterListing(t *testing.T) {
	f := Filter{
		{Code: opLoad, K: 4},
		{Code: opJeq, K: 0x28, Jt: 1},
		{Code: opRet, K: uint32(KillProcess)},
		{Code: opLoad, K: 20},
		{Code: opLoad, K: 16},
		{Code: opJset | srcX, Jf: 1},
		{Code: opJa, K: 0},
		{Code: opAnd, K: 0xff},
		{Code: opStore, K: 2},
		{Code: opNeg},
		{Code: 0xffff, K: 3},
		{Code: opRetA},
	}
	const want = `   0  ld   arch
   1  jeq  0x28 -> 3, else 2
   2  ret  kill-process
   3  ld   arg0.high
   4  ld   arg0
   5  jset x -> 6, else 7
   6  ja   -> 7
   7  and  0xff
   8  st   m[2]
   9  neg
  10  bad instruction {0xffff, 0, 0, 0x3}
  11  ret  a
`
	if got := f.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
