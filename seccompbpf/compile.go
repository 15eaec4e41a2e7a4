package seccompbpf

import (
	"fmt"
	"math"
	"math/bits"
)

// Compile turns the policy into one filter for all covered ABIs. The result depends on the policy
// only, not on the machine. All errors wrap ErrInvalidPolicy and list everything that is
// wrong: a syscall name that no ABI has, a condition that cannot be tested, an action that a
// filter alone cannot carry out.
func (p Policy) Compile() (Filter, error) { return p.compile(ABIs()) }

// CompileFor turns the policy into a filter for machines of one architecture, named as ForArch
// takes it. It decides as the filter of Compile about the ABIs that a kernel of such a machine can
// have: AMD64, X32 and I386, or ARM64 and ARM. It covers no others, and kills on them.
//
// It is shorter, which every launch gains by. Errors are those of Compile, and that of ForArch.
func (p Policy) CompileFor(arch string) (Filter, error) {
	native, err := ForArch(arch)
	if err != nil {
		return nil, err
	}
	return p.compile(native.machine())
}

// compile covers the ABIs given; those with the same AuditArch are neighbours.
func (p Policy) compile(covered []ABI) (Filter, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("seccompbpf: %w %q: %w", ErrInvalidPolicy, p.Name, err)
	}
	// The emitter works from the end: what runs for every call comes last here and first in the
	// filter, close to what it leads to.
	e := newEmitter()
	archs := e.archs(p, covered)
	for i := len(archs) - 1; i >= 0; i-- {
		archs[i].decide = e.load(offNr, e.search(blocks(archs[i].spans)))
	}
	start := e.ret(KillProcess)
	for i := len(archs) - 1; i >= 0; i-- {
		start = e.jump(opJeq, archs[i].audit, archs[i].decide, start)
	}
	e.load(offArch, start)

	f := e.filter()
	if err := f.Check(); err != nil {
		return nil, fmt.Errorf("seccompbpf: %w %q: %w", ErrInvalidPolicy, p.Name, err)
	}
	return f, nil
}

// Where the kernel puts the parts of struct seccomp_data, in bytes.
const (
	offNr    = 0
	offArch  = 4
	offIP    = 8
	offArgs  = 16
	dataSize = 64
)

// An arch is what the ABIs with one AuditArch amount to.
type arch struct {
	audit  uint32
	spans  []span // of all numbers, ascending
	decide node
}

// A span is a run of syscall numbers with the same fate.
type span struct {
	first, last uint32
	to          node
}

// archs emits what becomes of each number once it is known.
func (e *emitter) archs(p Policy, covered []ABI) []arch {
	rules := p.rulesByCall()
	unlisted, otherwise := e.ret(p.Unlisted), e.ret(p.Default)
	var all []arch
	for i := 0; i < len(covered); {
		a := arch{audit: covered[i].AuditArch()}
		next := uint32(0)
		for ; i < len(covered) && covered[i].AuditArch() == a.audit; i++ {
			for _, s := range p.table(covered[i]) {
				if s.nr > next {
					a.add(span{next, s.nr - 1, unlisted})
				}
				to := otherwise
				if r := rules[s.name]; len(r) > 0 {
					to = e.rules(r, otherwise)
				}
				a.add(span{s.nr, s.nr, to})
				next = s.nr + 1
			}
		}
		a.add(span{next, math.MaxUint32, unlisted})
		all = append(all, a)
	}
	return all
}

func (a *arch) add(s span) {
	if n := len(a.spans); n > 0 && a.spans[n-1].to == s.to {
		a.spans[n-1].last = s.last
		return
	}
	a.spans = append(a.spans, s)
}

// rulesByCall returns the rules that bear on each syscall which any rule bears on.
func (p Policy) rulesByCall() map[string][]Rule {
	by := make(map[string][]Rule)
	for _, r := range p.Rules {
		if by[r.Syscall] == nil {
			by[r.Syscall] = p.rulesFor(r.Syscall)
		}
	}
	for _, m := range multiplexers {
		by[m.name] = p.rulesFor(m.name)
	}
	return by
}

// An operand is 32 bits of a call's data, under a mask. The zero operand is none.
type operand struct{ off, mask uint32 }

const allBits = 0xffffffff

// A step is a place in the filter that is entered with an operand in A.
type step struct {
	at    node
	reads operand
}

// enter returns a place that leads to the step when A holds what it holds. A test
// after another of the same argument loads nothing.
func (e *emitter) enter(s step, holds operand) node {
	if s.reads == (operand{}) || s.reads == holds {
		return s.at
	}
	at := s.at
	if s.reads.mask != allBits {
		at = e.and(s.reads.mask, at)
		if holds == (operand{s.reads.off, allBits}) {
			return at
		}
	}
	return e.load(s.reads.off, at)
}

// rules emits the rules of one syscall.
func (e *emitter) rules(rules []Rule, otherwise node) node {
	return e.enter(e.rule(rules, otherwise), operand{})
}

// rule emits the rules in order, ending in the default.
func (e *emitter) rule(rules []Rule, otherwise node) step {
	if len(rules) == 0 {
		return step{at: otherwise}
	}
	r := rules[0]
	yes := step{at: e.ret(r.Action)}
	if len(r.When) == 0 {
		return yes
	}
	no := e.rule(rules[1:], otherwise)
	for i := len(r.When) - 1; i >= 0; i-- {
		yes = e.cond(r.When[i], yes, no)
	}
	return yes
}

func (e *emitter) cond(c Cond, yes, no step) step {
	if c.Op == NotEqual {
		yes, no = no, yes
	}
	off := uint32(offArgs + 8*c.Arg)
	equal := e.half(off+4, uint32(c.Mask>>32), uint32(c.Value>>32), yes, no)
	return e.half(off, uint32(c.Mask), uint32(c.Value), equal, no)
}

// half emits the comparison of 32 bits of an argument. A mask of zero is always equal.
func (e *emitter) half(off, mask, value uint32, equal, differ step) step {
	if mask == 0 || equal == differ {
		return equal
	}
	op, k, reads := uint16(opJeq), value, operand{off, mask}
	switch {
	case mask == allBits:
	case value == 0:
		op, k, reads.mask = opJset, mask, allBits
		equal, differ = differ, equal
	case value == mask && bits.OnesCount32(mask) == 1:
		op, k, reads.mask = opJset, mask, allBits
	}
	return step{e.jump(op, k, e.enter(equal, reads), e.enter(differ, reads)), reads}
}
