package stage

import (
	"fmt"
	"strings"
)

// String prints the program one operation a line: its number, what it does,
// the step it belongs to, and where it goes when it fails.
func (p *Program) String() string {
	var b strings.Builder
	for i := range p.Ops {
		fmt.Fprintf(&b, "%4d  %s\n", i, p.Ops[i].listing(p))
	}
	return b.String()
}

func (op *Op) listing(p *Program) string {
	var b strings.Builder
	args := make([]string, len(op.Args))
	for i, a := range op.Args {
		args[i] = argString(a)
	}
	target := func(l *Label) string {
		if l == nil || l.index == 0 {
			return "nowhere"
		}
		return fmt.Sprint(l.index - 1)
	}
	switch op.Kind {
	case Sys, Fork:
		if op.Dst != Discard {
			fmt.Fprintf(&b, "%s = ", op.Dst)
		}
		fmt.Fprintf(&b, "%s(%s)", op.Call, strings.Join(args, ", "))
		if op.Kind == Fork {
			fmt.Fprintf(&b, " child at %s", target(op.Target))
		}
		b.WriteString("  \"" + op.Step.String() + "\"")
		if op.OnErr != nil {
			b.WriteString(" else " + target(op.OnErr))
		}
	case Jmp:
		if op.Target == nil && len(args) == 1 {
			b.WriteString("goto [" + args[0] + "]")
		} else {
			b.WriteString("goto " + target(op.Target))
		}
	case Jeq, Jne, Jlt, Jset:
		sign := map[Kind]string{Jeq: "==", Jne: "!=", Jlt: "<", Jset: "&"}[op.Kind]
		fmt.Fprintf(&b, "if %s %s %s goto %s", args[0], sign, args[1], target(op.Target))
	case Ld32, Ld64:
		fmt.Fprintf(&b, "%s = %s[%s + %s]", op.Dst, op.Kind, args[0], args[1])
	default:
		sign := map[Kind]string{Add: "+", And: "&", Shr: ">>"}[op.Kind]
		fmt.Fprintf(&b, "%s = %s %s %s", op.Dst, args[0], sign, args[1])
	}
	return b.String()
}

func (s Slot) String() string { return fmt.Sprintf("r%d", uint8(s)) }

const maxListed = 96 // bytes of a constant that a listing shows

func argString(a Arg) string {
	short := func(s string) string {
		if len(s) > maxListed {
			return fmt.Sprintf("%q… %d bytes", s[:maxListed], len(s))
		}
		return fmt.Sprintf("%q", s)
	}
	switch a := a.(type) {
	case Imm:
		if a > 4096 {
			return fmt.Sprintf("%#x", int64(a))
		}
		return fmt.Sprint(int64(a))
	case Slot:
		return a.String()
	case SlotAddr:
		return "&" + Slot(a).String()
	case Str:
		return short(string(a))
	case Blob:
		if len(a) > 16 {
			return fmt.Sprintf("{%x… %d bytes}", string(a[:16]), len(a))
		}
		return fmt.Sprintf("{%x}", string(a))
	case Vec:
		parts := make([]string, len(a))
		for i, e := range a {
			parts[i] = argString(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case Mem:
		return fmt.Sprintf("mem[%d:%d]", a.Off, a.Off+a.Size)
	case At:
		return fmt.Sprintf("%s+%d", argString(a.Base), a.Off)
	case OpTable:
		return "texts"
	}
	return "?"
}
