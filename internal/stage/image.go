package stage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// ErrUnsupportedArch says that no stage exists for this machine.
var ErrUnsupportedArch = errors.New("postern has no launch stage for this architecture (it has amd64 and arm64)")

// The image is one zeroed, writable segment (slots, then memory) and behind it
// a read-only, executable one (ELF header, code, operations, constants). Both
// lie in the same 2 MiB so that one page of page table maps them, and the
// constant part is one mapping of page cache so that a single fault maps 64 KiB
// of it: on a virtual machine a page touched costs more than ten system calls.
const (
	imageBase = 0x10100000
	headerOff = 0x100 // two words: the first operation, the slots
	codeOff   = headerOff + 16

	// HeadSize is how much of an image [Program.FailedStep] and [MemAddr] need.
	HeadSize = codeOff
	// segmentAlign is the largest page size the supported architectures have.
	segmentAlign = 0x10000
)

var machineCode = sync.OnceValues(machine)

// Image links the program for the architecture this process runs on and
// returns an ELF executable.
func (p *Program) Image() ([]byte, error) { return p.image(nil) }

func (p *Program) image(in *Room) ([]byte, error) {
	arch, ok := Host()
	code, found := machineCode()
	if !ok || !found {
		return nil, ErrUnsupportedArch
	}
	return p.link(arch, code, in)
}

const defaultMaxImage = 256 << 20

// maxImage bounds an image; a program that needs more is refused.
var maxImage = defaultMaxImage

func (p *Program) link(arch Arch, code []byte, in *Room) ([]byte, error) {
	dataSize := uint64(numSlots*8 + p.mem)
	l := linker{
		arch:  arch,
		base:  imageBase,
		opOff: (codeOff + len(code) + OpSize - 1) &^ (OpSize - 1),
		data:  imageBase - (dataSize+segmentAlign-1)&^(segmentAlign-1),
	}
	if dataSize > imageBase/2 {
		return nil, fmt.Errorf("stage: a program with %d MiB of memory is too large", dataSize>>20)
	}
	pool := l.opOff + len(p.Ops)*OpSize
	if in != nil && cap(in.image) >= pool+poolGuess {
		l.out, l.strs, l.blobs = in.image[:pool], in.strs, in.blobs
		clear(l.out)
	} else {
		l.out = make([]byte, pool, pool+poolGuess)
		l.strs, l.blobs = make(map[string]uint64, min(len(p.Ops)/2, typicalStrs)), map[Blob]uint64{}
	}
	copy(l.out[codeOff:], code)
	for i := range p.Ops {
		if err := l.op(p, i); err != nil {
			return nil, fmt.Errorf("stage: operation %d (%s): %w", i, p.Ops[i].Step, err)
		}
	}
	if len(l.out) > maxImage {
		return nil, fmt.Errorf("stage: a program of %d MiB is too large", len(l.out)>>20)
	}
	le := binary.LittleEndian
	le.PutUint64(l.out[headerOff:], imageBase+uint64(l.opOff))
	le.PutUint64(l.out[headerOff+8:], l.data)
	elfHeader(l.out, arch, l.data, dataSize)
	return l.out, nil
}

type linker struct {
	arch  Arch
	base  uint64 // where out will lie
	out   []byte
	opOff int
	data  uint64
	strs  map[string]uint64
	blobs map[Blob]uint64
	table uint64
}

func (l *linker) op(p *Program, i int) error {
	op := &p.Ops[i]
	if len(op.Args) > 6 || (op.Target != nil && len(op.Args) > 5) {
		return errors.New("too many operands")
	}
	var mask byte
	var words [6]uint64
	args := op.Args
	if op.Target == nil && op.Kind >= Fork && op.Kind <= Jset {
		to, ok := Discard, false
		if op.Kind == Jmp && len(args) == 1 {
			to, ok = args[0].(Slot)
		}
		if !ok {
			return errors.New("has nowhere to jump to")
		}
		args, mask, words[5] = nil, 1<<5, uint64(to)
	}
	for j, a := range args {
		if s, ok := a.(Slot); ok {
			mask |= 1 << j
			words[j] = uint64(s)
			continue
		}
		v, err := l.value(p, a)
		if err != nil {
			return err
		}
		words[j] = v
	}
	onErr, err := l.label(p, op.OnErr)
	if err != nil {
		return err
	}
	if op.Target != nil {
		if words[5], err = l.label(p, op.Target); err != nil {
			return err
		}
	}
	le := binary.LittleEndian
	b := l.out[l.opOff+i*OpSize:][:OpSize]
	b[0], b[1], b[2] = byte(op.Kind), byte(op.Dst), mask
	if op.Kind == Sys || op.Kind == Fork {
		le.PutUint32(b[4:], op.Call.number(l.arch))
	}
	for j, w := range words {
		le.PutUint64(b[8+8*j:], w)
	}
	le.PutUint64(b[56:], onErr)
	return nil
}

func (l *linker) label(p *Program, t *Label) (uint64, error) {
	switch {
	case t == nil:
		return 0, nil
	case t.index == 0:
		return 0, errors.New("jumps to a label that was never placed")
	case t.index > len(p.Ops):
		return 0, errors.New("jumps behind the last operation")
	}
	return imageBase + uint64(l.opOff+(t.index-1)*OpSize), nil
}

func (l *linker) value(p *Program, a Arg) (uint64, error) {
	switch a := a.(type) {
	case Imm:
		return uint64(a), nil
	case SlotAddr:
		return l.data + 8*uint64(a), nil
	case Mem:
		return l.data + numSlots*8 + uint64(a.Off), nil
	case At:
		v, err := l.value(p, a.Base)
		return v + uint64(a.Off), err
	case Str:
		if strings.IndexByte(string(a), 0) >= 0 {
			return 0, fmt.Errorf("NUL byte in %q", string(a))
		}
		return l.str(string(a)), nil
	case Blob:
		if v, ok := l.blobs[a]; ok {
			return v, nil
		}
		v := l.align()
		l.blobs[a] = v
		l.out = append(l.out, a...)
		return v, nil
	case Vec:
		return l.vec(p, a)
	case OpTable:
		return l.opTable(p)
	}
	return 0, fmt.Errorf("operand of type %T", a)
}

func (l *linker) vec(p *Program, a Vec) (uint64, error) {
	words := make([]uint64, len(a))
	for i, e := range a {
		v, err := l.value(p, e)
		if err != nil {
			return 0, err
		}
		words[i] = v
	}
	v := l.align()
	for _, w := range words {
		l.out = binary.LittleEndian.AppendUint64(l.out, w)
	}
	return v, nil
}

func (l *linker) opTable(p *Program) (uint64, error) {
	if l.table != 0 {
		return l.table, nil
	}
	if p.texts == nil {
		return 0, errors.New("uses OpTable, but the builder has no Texts")
	}
	v := l.align()
	rows := len(l.out)
	l.out = append(l.out, make([]byte, 4*len(p.Ops))...)
	last := Step{Do: "\x00"} // no step's
	var row uint32
	for i := range p.Ops {
		if p.Ops[i].OnErr == nil { // nobody will ask
			continue
		}
		if s := p.Ops[i].Step; s != last { // neighbours share theirs
			last, row = s, l.text(p.texts(s))
		}
		binary.LittleEndian.PutUint32(l.out[rows+4*i:], row)
	}
	// A word is a sixteenth of an operation's size, so the shift alone scales.
	l.table = v - (imageBase+uint64(l.opOff))/(OpSize/4)
	return l.table, nil
}

// text stores a text and returns where. Addresses fit in 32 bits.
func (l *linker) text(t Text) uint32 {
	var words [6]uint32
	for i, part := range []string{t.Before, t.On, t.After} {
		if part != "" {
			words[2*i], words[2*i+1] = uint32(l.str(part)), uint32(len(part))
		}
	}
	v := l.align()
	for _, w := range words {
		l.out = binary.LittleEndian.AppendUint32(l.out, w)
	}
	return uint32(v)
}

// str stores a string, once, with a NUL behind it.
func (l *linker) str(s string) uint64 {
	if v, ok := l.strs[s]; ok {
		return v
	}
	v := l.here()
	l.strs[s] = v
	l.out = append(append(l.out, s...), 0)
	return v
}

func (l *linker) here() uint64 { return l.base + uint64(len(l.out)) }

func (l *linker) align() uint64 {
	for len(l.out)%8 != 0 {
		l.out = append(l.out, 0)
	}
	return l.here()
}

func elfHeader(out []byte, arch Arch, dataAddr, dataSize uint64) {
	const (
		execFlags = 5 // R+X
		dataFlags = 6 // R+W
		ptLoad    = 1
		ptStack   = 0x6474e551 // without it the stack would be executable on some kernels
	)
	le := binary.LittleEndian
	copy(out, "\x7fELF\x02\x01\x01")
	le.PutUint16(out[16:], 2) // ET_EXEC
	le.PutUint16(out[18:], arch.elfMachine())
	le.PutUint32(out[20:], 1)
	le.PutUint64(out[24:], imageBase+codeOff)
	le.PutUint64(out[32:], 64) // program headers
	le.PutUint16(out[52:], 64)
	le.PutUint16(out[54:], 56)
	le.PutUint16(out[56:], 3)
	ph := func(i int, typ, flags uint32, addr, filesz, memsz uint64) {
		b := out[64+56*i:]
		le.PutUint32(b, typ)
		le.PutUint32(b[4:], flags)
		le.PutUint64(b[16:], addr)
		le.PutUint64(b[24:], addr)
		le.PutUint64(b[32:], filesz)
		le.PutUint64(b[40:], memsz)
		le.PutUint64(b[48:], segmentAlign)
	}
	ph(0, ptLoad, dataFlags, dataAddr, 0, dataSize)
	ph(1, ptLoad, execFlags, imageBase, uint64(len(out)), uint64(len(out)))
	ph(2, ptStack, dataFlags, 0, 0, 0)
}
