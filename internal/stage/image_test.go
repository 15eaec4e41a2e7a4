package stage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// linked links p for an architecture, with code that is never run.
func linked(t *testing.T, p *Program, arch Arch) []byte {
	t.Helper()
	image, err := p.link(arch, bytes.Repeat([]byte{0xcc}, 301), nil)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func opsAddr(image []byte) uint64  { return binary.LittleEndian.Uint64(image[headerOff:]) }
func dataAddr(image []byte) uint64 { return binary.LittleEndian.Uint64(image[headerOff+8:]) }

// constant returns what lies at an address in the read-only part.
func constant(image []byte, addr uint64) []byte { return image[addr-imageBase:] }

func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }

// parseELF checks what every image promises about its segments.
func parseELF(t *testing.T, image []byte, arch Arch) *elf.File {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	if want := [arches]elf.Machine{AMD64: elf.EM_X86_64, ARM64: elf.EM_AARCH64}[arch]; f.Machine != want {
		t.Errorf("machine %v, want %v", f.Machine, want)
	}
	if f.Type != elf.ET_EXEC || f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || len(f.Sections) != 0 {
		t.Errorf("not a plain 64-bit executable without sections: %+v", f.FileHeader)
	}
	if len(f.Progs) != 3 {
		t.Fatalf("%d program headers, want 3", len(f.Progs))
	}
	data, text, stack := f.Progs[0], f.Progs[1], f.Progs[2]
	if text.Type != elf.PT_LOAD || text.Flags != elf.PF_R|elf.PF_X || text.Off != 0 ||
		text.Filesz != uint64(len(image)) || text.Memsz != text.Filesz {
		t.Errorf("text segment %+v", text.ProgHeader)
	}
	if data.Type != elf.PT_LOAD || data.Flags != elf.PF_R|elf.PF_W || data.Filesz != 0 {
		t.Errorf("data segment %+v", data.ProgHeader)
	}
	if stack.Type != elf.PT_GNU_STACK || stack.Flags&elf.PF_X != 0 {
		t.Errorf("stack %+v", stack.ProgHeader)
	}
	for _, s := range f.Progs[:2] {
		if s.Align < 64<<10 || s.Vaddr%s.Align != 0 || s.Off%s.Align != 0 {
			t.Errorf("segment is not aligned to the largest page size: %+v", s.ProgHeader)
		}
	}
	if end := data.Vaddr + data.Memsz; end > text.Vaddr {
		t.Errorf("data ends at %#x, behind the start of text at %#x", end, text.Vaddr)
	}
	if f.Entry < text.Vaddr || f.Entry >= text.Vaddr+text.Memsz {
		t.Errorf("entry %#x lies outside of the text", f.Entry)
	}
	return f
}

func TestLayout(t *testing.T) {
	for arch := range arches {
		t.Run(arch.String(), func(t *testing.T) {
			var b Builder
			m := b.Mem(100_001)
			b.Sys(Step{"write", ""}, Write, Imm(1), m, Imm(1))
			b.Place(&b.Fail)
			b.Sys(Step{"exit", ""}, ExitGroup, Imm(0))
			image := linked(t, b.Program(), arch)
			f := parseELF(t, image, arch)
			if got, want := f.Progs[0].Memsz, uint64(numSlots*8+100_008); got != want {
				t.Errorf("%d bytes of writable memory, want %d", got, want)
			}
			if code := constant(image, f.Entry)[:301]; string(code) != strings.Repeat("\xcc", 301) {
				t.Errorf("code at the entry point is %x", code)
			}
			if opsAddr(image)%OpSize != 0 {
				t.Errorf("operations begin at %#x", opsAddr(image))
			}
			if got := word(encodedOp(image, 0), 2); got != dataAddr(image)+numSlots*8 {
				t.Errorf("memory is at %#x, slots at %#x", got, dataAddr(image))
			}
		})
	}
}

// encodedOp returns the encoded operation i of an image.
func encodedOp(image []byte, i int) []byte {
	return constant(image, opsAddr(image))[i*OpSize:][:OpSize]
}

// TestEncoding spells out one operation of each shape for both architectures.
func TestEncoding(t *testing.T) {
	for arch := range arches {
		t.Run(arch.String(), func(t *testing.T) {
			var b Builder
			var child Label
			pid := b.Slots(6)
			b.Fork(pid, Step{"fork", ""}, 17, &child)
			b.SysTo(pid+5, Step{"all", ""}, Sendmsg, Imm(-1), pid+1, SlotAddr(pid), pid+3, Imm(1<<40), pid+5)
			b.Place(&child)
			b.If(Jlt, Imm(1), pid, &child)
			b.Place(&b.Fail)
			b.Add(pid, pid, Imm(1))
			image := linked(t, b.Program(), arch)
			at := func(i uint64) uint64 { return opsAddr(image) + i*OpSize }
			minusOne := ^uint64(0)
			for i, want := range []struct {
				kind   Kind
				dst    Slot
				mask   byte
				number uint32
				args   [6]uint64
				onErr  uint64
			}{
				{Fork, pid, 0, Clone.number(arch), [6]uint64{17, 0, 0, 0, 0, at(2)}, at(3)},
				{Sys, pid + 5, 0b101010, [arches]uint32{46, 211}[arch], [6]uint64{minusOne, 5, dataAddr(image) + 32, 7, 1 << 40, 9}, at(3)},
				{Jlt, 0, 0b10, 0, [6]uint64{1, 4, 0, 0, 0, at(2)}, 0},
				{Add, pid, 0b01, 0, [6]uint64{4, 1}, 0},
			} {
				op := encodedOp(image, i)
				got := want
				got.kind, got.dst, got.mask = Kind(op[0]), Slot(op[1]), op[2]
				got.number = binary.LittleEndian.Uint32(op[4:])
				for j := range got.args {
					got.args[j] = word(op, 1+j)
				}
				got.onErr = word(op, 7)
				if got != want {
					t.Errorf("operation %d:\n got %+v\nwant %+v", i, got, want)
				}
			}
		})
	}
}

// TestOperandsOfAnySize links programs with random operands and reads every
// one of them back from the address the linker gave it.
func TestOperandsOfAnySize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	bytesOf := func(n int) string {
		b := make([]byte, rnd.IntN(n))
		for i := range b {
			b[i] = byte(1 + rnd.IntN(255))
		}
		return string(b)
	}
	var arg func(depth int) Arg
	arg = func(depth int) Arg {
		switch n := rnd.IntN(60); {
		case n < 15:
			return Str(bytesOf(2000))
		case n < 30:
			return Blob(bytesOf(2000))
		case n < 40:
			return At{Blob(bytesOf(100) + "0123456789"), rnd.IntN(10)}
		case n < 46:
			return Imm(rnd.Int64())
		case n < 47 || depth > 2:
			return OpTable{}
		}
		var v Vec
		for range rnd.IntN(5) {
			v = append(v, arg(depth+1))
		}
		return v
	}
	for arch := range arches {
		for range 300 {
			var b Builder
			b.Texts = func(s Step) Text { return Text{"cannot " + s.Do, s.On, s.On + s.Do} }
			for i := range 1 + rnd.IntN(5) {
				b.Sys(Step{fmt.Sprint("step ", i), bytesOf(50)}, Write, arg(0), arg(0))
			}
			b.Place(&b.Fail)
			b.Try(Discard, Step{"exit", ""}, ExitGroup)
			p := b.Program()
			image := linked(t, p, arch)
			parseELF(t, image, arch)
			for i, op := range p.Ops {
				for j, a := range op.Args {
					if err := readBack(p, image, a, word(encodedOp(image, i), 1+j)); err != nil {
						t.Fatalf("operation %d, operand %d: %v", i, j, err)
					}
				}
			}
		}
	}
}

// readBack compares an operand with what v refers to in the image.
func readBack(p *Program, image []byte, a Arg, v uint64) error {
	same := func(want string) error {
		if got := string(constant(image, v)[:len(want)]); got != want {
			return fmt.Errorf("%T at %#x reads %.100q, want %.100q", a, v, got, want)
		}
		return nil
	}
	switch a := a.(type) {
	case Imm:
		if uint64(a) != v {
			return fmt.Errorf("%#x, want %#x", v, uint64(a))
		}
	case Str:
		return same(string(a) + "\x00")
	case Blob:
		if v%8 != 0 {
			return fmt.Errorf("blob at %#x", v)
		}
		return same(string(a))
	case At:
		return readBack(p, image, a.Base, v-uint64(a.Off))
	case Vec:
		if v%8 != 0 {
			return fmt.Errorf("vector at %#x", v)
		}
		for i, e := range a {
			if err := readBack(p, image, e, word(constant(image, v), i)); err != nil {
				return err
			}
		}
	case OpTable: // is so far off that a sixteenth of an operation's address leads to its word
		v += opsAddr(image) / 16
		for i, op := range p.Ops {
			at := binary.LittleEndian.Uint32(constant(image, v)[4*i:])
			if op.OnErr == nil { // nobody reads it
				if at != 0 {
					return fmt.Errorf("operation %d cannot fail and has a text at %#x", i, at)
				}
				continue
			}
			row := constant(image, uint64(at))
			text := p.texts(op.Step)
			for j, part := range []string{text.Before, text.On, text.After} {
				at, size := binary.LittleEndian.Uint32(row[8*j:]), binary.LittleEndian.Uint32(row[8*j+4:])
				if size != uint32(len(part)) {
					return fmt.Errorf("part %d of the text of operation %d has %d bytes, want %d", j, i, size, len(part))
				}
				if part == "" {
					continue
				}
				if err := readBack(p, image, Str(part), uint64(at)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func TestEqualStringsAreStoredOnce(t *testing.T) {
	var b Builder
	for range 10 {
		b.Sys(Step{"open", ""}, Openat, Imm(0), Str("/some/path"), Imm(0))
	}
	b.Place(&b.Fail)
	b.Try(Discard, Step{"exit", ""}, ExitGroup, Imm(0))
	if n := bytes.Count(linked(t, b.Program(), AMD64), []byte("/some/path")); n != 1 {
		t.Errorf("stored %d times", n)
	}
}

func TestLinkErrors(t *testing.T) {
	type foreign struct{ Imm }
	huge := Blob(strings.Repeat("x", 1<<20))
	maxImage = 4 << 20
	defer func() { maxImage = defaultMaxImage }()
	for name, test := range map[string]struct {
		build func(b *Builder)
		want  string
	}{
		"unplaced label": {
			func(b *Builder) { b.Jump(&Label{}) },
			"stage: operation 1 (): jumps to a label that was never placed",
		},
		"unplaced failure label": {
			func(b *Builder) { b.SysOr(&Label{}, Discard, Step{"open", "/x"}, Openat) },
			"stage: operation 1 (open /x): jumps to a label that was never placed",
		},
		"label behind the end": {
			func(b *Builder) {
				var end Label
				b.If(Jeq, Imm(0), Imm(0), &end)
				b.Place(&end)
			},
			"stage: operation 1 (): jumps behind the last operation",
		},
		"jump without a label": {
			func(b *Builder) { b.Emit(Op{Kind: Jset, Args: []Arg{Imm(0), Imm(0)}}) },
			"stage: operation 1 (): has nowhere to jump to",
		},
		"fork without a label": {
			func(b *Builder) { b.Fork(Discard, Step{"fork", ""}, 0, nil) },
			"stage: operation 1 (fork): has nowhere to jump to",
		},
		"NUL in a string": {
			func(b *Builder) { b.Try(Discard, Step{"open", "bind source"}, Openat, Str("/a\x00b")) },
			`stage: operation 1 (open bind source): NUL byte in "/a\x00b"`,
		},
		"NUL in a vector": {
			func(b *Builder) {
				b.Try(Discard, Step{"exec", "sh"}, Execve, Str("sh"), Strings([]string{"ok", "\x00"}))
			},
			`stage: operation 1 (exec sh): NUL byte in "\x00"`,
		},
		"seven operands": {
			func(b *Builder) {
				b.Try(Discard, Step{"write", ""}, Write, Imm(0), Imm(0), Imm(0), Imm(0), Imm(0), Imm(0), Imm(0))
			},
			"stage: operation 1 (write): too many operands",
		},
		"six operands and a target": {
			func(b *Builder) {
				b.Emit(Op{Kind: Fork, Target: &b.Fail, Args: slices.Repeat([]Arg{Imm(0)}, 6), Step: Step{"fork", ""}})
			},
			"stage: operation 1 (fork): too many operands",
		},
		"slot in a vector": {
			func(b *Builder) { b.Try(Discard, Step{"write", ""}, Write, Vec{b.Slot()}) },
			"stage: operation 1 (write): operand of type stage.Slot",
		},
		"no operand": {
			func(b *Builder) { b.Try(Discard, Step{"write", ""}, Write, nil) },
			"stage: operation 1 (write): operand of type <nil>",
		},
		"foreign operand": {
			func(b *Builder) { b.Try(Discard, Step{"write", ""}, Write, foreign{}) },
			"stage: operation 1 (write): operand of type stage.foreign",
		},
		"table without texts": {
			func(b *Builder) { b.Try(Discard, Step{"write", ""}, Write, OpTable{}) },
			"stage: operation 1 (write): uses OpTable, but the builder has no Texts",
		},
		"too large": {
			func(b *Builder) {
				for i := range 5 {
					b.Try(Discard, Step{"write", ""}, Write, huge[i:])
				}
			},
			"stage: a program of 5 MiB is too large",
		},
		"too much memory": {
			func(b *Builder) { b.Try(Discard, Step{"read", ""}, Read, Imm(0), b.Mem(200<<20), Imm(1)) },
			"stage: a program with 200 MiB of memory is too large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b Builder
			b.Place(&b.Fail)
			b.Try(Discard, Step{"exit", ""}, ExitGroup, Imm(0))
			test.build(&b)
			for arch := range arches {
				if _, err := b.Program().link(arch, []byte{0xcc}, nil); err == nil || err.Error() != test.want {
					t.Errorf("%s:\n got %v\nwant %s", arch, err, test.want)
				}
			}
		})
	}
}

// TestNoRuntimeInImage bounds what a launch costs beside its own operations
// and constants.
func TestNoRuntimeInImage(t *testing.T) {
	if _, ok := Host(); !ok {
		t.Skip("no stage for this architecture")
	}
	var b Builder
	constants := 0
	for i := range 200 {
		path := fmt.Sprintf("/some/typical/path/%03d", i)
		constants += len(path) + 1
		b.Sys(Step{"open bind source", path}, OpenTree, Imm(-100), Str(path), Imm(1))
	}
	b.Place(&b.Fail)
	b.Try(Discard, Step{"exit", ""}, ExitGroup, Imm(0))
	p := b.Program()
	image, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	if overhead := len(image) - len(p.Ops)*OpSize - constants; overhead > 1024 {
		t.Errorf("%d bytes beside operations and constants, want at most 1024", overhead)
	}
	code, _ := machineCode()
	if len(code) == 0 || len(code) > 512 {
		t.Errorf("the machine has %d bytes, want at most 512", len(code))
	}
	for _, s := range []string{"runtime.", "Go build", "open bind source", "PSTRNEND"} {
		if bytes.Contains(image, []byte(s)) {
			t.Errorf("%q is in the image", s)
		}
	}
}
