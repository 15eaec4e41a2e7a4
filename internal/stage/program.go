package stage

import "fmt"

// A Kind is what an operation does. Add one only when a program cannot be
// written without it.
type Kind uint8

const (
	Sys  Kind = iota // dst = syscall(args...); on error jump to OnErr, or carry on if that is nil
	Fork             // as Sys, but the child of a clone continues at Target and stores nothing
	Jmp              // jump to Target, or to the operation whose address is args[0]
	Jeq              // if args[0] == args[1] jump to Target
	Jne              // if args[0] != args[1] jump to Target
	Jlt              // if args[0] < args[1], signed, jump to Target
	Jset             // if args[0] & args[1] != 0 jump to Target
	Add              // dst = args[0] + args[1]
	And              // dst = args[0] & args[1]
	Shr              // dst = args[0] >> args[1]
	Ld32             // dst = the 32-bit word at args[0] + args[1]
	Ld64             // dst = the 64-bit word at args[0] + args[1]
	kinds
)

var kindNames = [kinds]string{"sys", "fork", "jmp", "jeq", "jne", "jlt", "jset", "add", "and", "shr", "ld32", "ld64"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Step names what an operation is for, in the words of an error message:
// what is done, and on which path or object. A failed launch reports it.
type Step struct {
	Do string // "open bind source"
	On string // "/usr"; may be empty
}

func (s Step) String() string {
	if s.On == "" {
		return s.Do
	}
	return s.Do + " " + s.On
}

// An Arg is one operand of an operation.
type Arg interface{ isArg() }

type (
	// Imm is a number.
	Imm int64
	// Slot is the value a slot holds when the operation runs.
	Slot uint8
	// SlotAddr is the address of a slot, for calls that write into one.
	SlotAddr Slot
	// Str is the address of a NUL-terminated string in read-only memory.
	Str string
	// Blob is the address of these bytes in read-only memory, 8-byte aligned.
	Blob string
	// Vec is the address of an array of 64-bit words in read-only memory:
	// an argv, an iovec, a struct with pointers.
	Vec []Arg
	// Mem is the address of zeroed writable memory got from [Builder.Mem].
	Mem struct{ Off, Size int }
	// At is a place inside another operand's memory.
	At struct {
		Base Arg
		Off  int
	}
	// OpTable finds the text of a failed operation's step, as
	// [Builder.Texts] phrases it: OpTable plus a sixteenth of the operation's
	// address, as in FailedOp, is where a 32-bit word lies, the address of six
	// more, which are the addresses and the lengths of the text's parts.
	OpTable struct{}
)

func (Imm) isArg()      {}
func (Slot) isArg()     {}
func (SlotAddr) isArg() {}
func (Str) isArg()      {}
func (Blob) isArg()     {}
func (Vec) isArg()      {}
func (Mem) isArg()      {}
func (At) isArg()       {}
func (OpTable) isArg()  {}

const (
	// Discard takes results nobody reads.
	Discard Slot = 0
	// FailedOp holds the address of the last operation that failed and jumped.
	FailedOp Slot = 1
	// FailedErrno holds that operation's result, a negative errno.
	FailedErrno Slot = 2
	// FailedWhy may be set to the address of an operation whose step says what
	// has failed, while that of FailedOp is on what. It is 0 otherwise.
	FailedWhy Slot = 3

	firstFreeSlot = 4
	numSlots      = 256
)

// OpSize is the size of one encoded operation in bytes.
const OpSize = 64

// A Label is a place in a program that operations jump to.
type Label struct{ index int }

// An Op is one operation of a program, before linking.
type Op struct {
	Kind   Kind
	Dst    Slot
	Call   Call // the system call of Sys and Fork
	Args   []Arg
	OnErr  *Label // where a failing Sys or Fork goes; nil carries on
	Target *Label // where jumps go, and the child of a Fork
	Step   Step
}

// A Text says that a step has failed, in three parts: the first and the last go
// with many steps, and the one in the middle is what the step is on.
type Text struct{ Before, On, After string }

// A Program is a launch, ready to be linked, printed or compared. It is data:
// a test may copy it, swap an operation and run the result.
type Program struct {
	Ops   []Op
	mem   int // bytes of writable memory behind the slots
	texts func(Step) Text
}

// Outline returns p with nothing left of its operations but their steps, which
// is what [Program.FailedStep] is for.
func (p *Program) Outline() *Program {
	ops := make([]Op, len(p.Ops))
	for i := range ops {
		ops[i].Step = p.Ops[i].Step
	}
	return &Program{Ops: ops}
}
