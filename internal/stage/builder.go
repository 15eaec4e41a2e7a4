package stage

import "slices"

// A Builder writes a [Program]. Its zero value is ready for use.
type Builder struct {
	// Fail is where operations added by Sys and SysTo go when they fail. It
	// must be placed before the program is built.
	Fail Label

	// Texts, when set, phrases a step for programs that print their own failures
	// through [OpTable].
	Texts func(Step) Text

	ops  []Op
	args []Arg
	slot int
	mem  int
}

// Slot returns a slot nothing else uses. Programs have about 250; running out
// is a bug in the caller and panics.
func (b *Builder) Slot() Slot { return b.Slots(1) }

// Slots returns the first of n slots that lie next to each other in memory,
// so that together they can be a record or a C struct.
func (b *Builder) Slots(n int) Slot {
	if b.slot == 0 {
		b.slot = firstFreeSlot
	}
	s := b.slot
	b.slot += n
	if b.slot > numSlots {
		panic("stage: out of slots")
	}
	return Slot(s)
}

// Mem reserves n bytes of zeroed, writable, 8-byte aligned memory.
func (b *Builder) Mem(n int) Mem {
	m := Mem{b.mem, n}
	b.mem += (n + 7) &^ 7
	return m
}

// Place makes l stand for the next operation.
func (b *Builder) Place(l *Label) { l.index = len(b.ops) + 1 }

// Emit adds an operation as it is.
func (b *Builder) Emit(op Op) { b.emit(op, op.Args) }

// Grow makes room for n more operations, for programs that will have many.
func (b *Builder) Grow(n int) {
	b.ops = slices.Grow(b.ops, n)
	if cap(b.args)-len(b.args) < 3*n {
		b.args = make([]Arg, 0, 3*n) // operations keep the ones they have
	}
}

// emit adds an operation with these operands. They live together: a slice of
// their own for each operation would be most of the cost of building a program.
// Inlined into all that build one it would be a quarter of a launcher's code.
//
//go:noinline
func (b *Builder) emit(op Op, args []Arg) {
	if b.ops == nil {
		b.ops = make([]Op, 0, typicalOps)
	}
	if len(b.args)+len(args) > cap(b.args) {
		b.args = make([]Arg, 0, max(typicalArgs, len(args)))
	}
	from := len(b.args)
	b.args = append(b.args, args...)
	op.Args = b.args[from:len(b.args):len(b.args)]
	b.ops = append(b.ops, op)
}

// Sys adds a system call that must succeed.
func (b *Builder) Sys(s Step, c Call, args ...Arg) { b.SysTo(Discard, s, c, args...) }

// SysTo is Sys and keeps the result.
func (b *Builder) SysTo(dst Slot, s Step, c Call, args ...Arg) {
	b.emit(Op{Kind: Sys, Dst: dst, Call: c, OnErr: &b.Fail, Step: s}, args)
}

// Try adds a system call that may fail: the program carries on either way
// and can test dst, which then holds a negative errno.
func (b *Builder) Try(dst Slot, s Step, c Call, args ...Arg) {
	b.emit(Op{Kind: Sys, Dst: dst, Call: c, Step: s}, args)
}

// SysOr adds a system call that goes to onErr when it fails.
func (b *Builder) SysOr(onErr *Label, dst Slot, s Step, c Call, args ...Arg) {
	b.emit(Op{Kind: Sys, Dst: dst, Call: c, OnErr: onErr, Step: s}, args)
}

// Fork adds a clone with these flags. The child goes on at child; the parent
// goes on with the next operation and finds the child's PID in dst.
func (b *Builder) Fork(dst Slot, s Step, flags int64, child *Label) {
	b.ForkPidfd(dst, s, flags, Imm(0), child)
}

// ForkPidfd is Fork; with CLONE_PIDFD among the flags a pidfd of the child is
// stored at the address pidfd.
func (b *Builder) ForkPidfd(dst Slot, s Step, flags int64, pidfd Arg, child *Label) {
	b.emit(Op{Kind: Fork, Dst: dst, Call: Clone, OnErr: &b.Fail, Target: child, Step: s},
		[]Arg{Imm(flags), Imm(0), pidfd, Imm(0), Imm(0)})
}

// Move sets a slot.
func (b *Builder) Move(dst Slot, v Arg) { b.Add(dst, v, Imm(0)) }

// Add sets dst to x + y.
func (b *Builder) Add(dst Slot, x, y Arg) { b.emit(Op{Kind: Add, Dst: dst}, []Arg{x, y}) }

// And sets dst to x & y.
func (b *Builder) And(dst Slot, x, y Arg) { b.emit(Op{Kind: And, Dst: dst}, []Arg{x, y}) }

// Shr sets dst to x >> n.
func (b *Builder) Shr(dst Slot, x, n Arg) { b.emit(Op{Kind: Shr, Dst: dst}, []Arg{x, n}) }

// Load32 sets dst to the 32-bit word at base + off.
func (b *Builder) Load32(dst Slot, base, off Arg) {
	b.emit(Op{Kind: Ld32, Dst: dst}, []Arg{base, off})
}

// Load64 sets dst to the 64-bit word at base + off.
func (b *Builder) Load64(dst Slot, base, off Arg) {
	b.emit(Op{Kind: Ld64, Dst: dst}, []Arg{base, off})
}

// Jump goes to l.
func (b *Builder) Jump(l *Label) { b.emit(Op{Kind: Jmp, Target: l}, nil) }

// JumpTo goes to the operation whose address a slot holds, as FailedOp does. It
// lets operations in many places share what they do when they fail.
func (b *Builder) JumpTo(op Slot) { b.emit(Op{Kind: Jmp}, []Arg{op}) }

// If goes to l when the comparison k (Jeq, Jne, Jlt, Jset) of x and y holds.
func (b *Builder) If(k Kind, x, y Arg, l *Label) {
	b.emit(Op{Kind: k, Target: l}, []Arg{x, y})
}

// Program returns what was built. The builder must not be used afterwards.
func (b *Builder) Program() *Program { return &Program{b.ops, b.mem, b.Texts} }

// FD returns the operand for a descriptor number.
func FD(fd int) Imm { return Imm(fd) }

// Strings returns the operand for a NULL-terminated array of strings.
func Strings(ss []string) Vec {
	v := make(Vec, 0, len(ss)+1)
	for _, s := range ss {
		v = append(v, Str(s))
	}
	return append(v, Imm(0))
}
