package seccompbpf

import (
	"fmt"
	"math/bits"
)

// Compile turns the policy into one filter for all covered ABIs. The result depends on the policy
// only, not on the machine. All errors wrap ErrInvalidPolicy and list everything that is
// wrong: a syscall name that no ABI has, a condition that cannot be tested, an action that a
// filter alone cannot carry out.
func (p Policy) Compile() (Filter, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("seccompbpf: %w %q: %w", ErrInvalidPolicy, p.Name, err)
	}
	// The emitter works from the end: what runs for every call comes last here and first in the
	// filter, close to what it leads to.
	e := newEmitter()
	rules := p.rulesByCall()
	arm := e.load(offNr, e.abi(p, rules, ARM))
	i386 := e.load(offNr, e.abi(p, rules, I386))
	arm64 := e.load(offNr, e.abi(p, rules, ARM64))
	x32 := e.abi(p, rules, X32)
	amd64 := e.load(offNr, e.jump(opJset, x32Bit, x32, e.abi(p, rules, AMD64)))
	start := e.ret(KillProcess)
	start = e.jump(opJeq, auditARM, arm, start)
	start = e.jump(opJeq, auditI386, i386, start)
	start = e.jump(opJeq, auditARM64, arm64, start)
	start = e.jump(opJeq, auditAMD64, amd64, start)
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

// A span is a run of syscall numbers with the same fate, up to the start of the next span.
type span struct {
	start uint32
	to    node
}

// rulesByCall returns the rules that bear on each syscall which any rule bears on.
func (p Policy) rulesByCall() map[string][]Rule {
	by := make(map[string][]Rule)
	for _, r := range p.Rules {
		if by[r.Syscall] == nil {
			by[r.Syscall] = p.rulesFor(r.Syscall)
		}
	}
	for name := range multiplexers {
		by[name] = p.rulesFor(name)
	}
	return by
}

// abi emits the decision about the number in A, by one ABI's table.
func (e *emitter) abi(p Policy, rules map[string][]Rule, abi ABI) node {
	unlisted, otherwise := e.ret(p.Unlisted), e.ret(p.Default)
	spans := []span{{0, unlisted}}
	add := func(start uint32, to node) {
		last := &spans[len(spans)-1]
		switch {
		case last.to == to:
		case last.start == start:
			last.to = to
		default:
			spans = append(spans, span{start, to})
		}
	}
	next := uint32(0)
	for _, s := range abis[abi].table {
		if s.nr > next {
			add(next, unlisted)
		}
		if r := rules[s.name]; len(r) > 0 {
			add(s.nr, e.rules(r, otherwise))
		} else {
			add(s.nr, otherwise)
		}
		next = s.nr + 1
	}
	add(next, unlisted)
	return e.search(spans)
}

// search emits a balanced search for the span that A is in.
func (e *emitter) search(s []span) node {
	if len(s) == 1 {
		return s[0].to
	}
	if len(s) == 3 && s[0].to == s[2].to && s[2].start == s[1].start+1 {
		return e.jump(opJeq, s[1].start, s[1].to, s[0].to)
	}
	mid := len(s) / 2
	low := e.search(s[:mid])
	return e.jump(opJge, s[mid].start, e.search(s[mid:]), low)
}

// rules emits the rules of one syscall, in order, ending in the default.
func (e *emitter) rules(rules []Rule, otherwise node) node {
	if len(rules) == 0 {
		return otherwise
	}
	r := rules[0]
	if len(r.When) == 0 {
		return e.ret(r.Action)
	}
	no := e.rules(rules[1:], otherwise)
	yes := e.ret(r.Action)
	for i := len(r.When) - 1; i >= 0; i-- {
		yes = e.cond(r.When[i], yes, no)
	}
	return yes
}

func (e *emitter) cond(c Cond, yes, no node) node {
	if c.Op == NotEqual {
		yes, no = no, yes
	}
	off := uint32(offArgs + 8*c.Arg)
	equal := e.half(off+4, uint32(c.Mask>>32), uint32(c.Value>>32), yes, no)
	return e.half(off, uint32(c.Mask), uint32(c.Value), equal, no)
}

// half emits the comparison of 32 bits of an argument. A mask of zero is always equal.
func (e *emitter) half(off, mask, value uint32, equal, differ node) node {
	switch {
	case mask == 0:
		return equal
	case mask == 0xffffffff:
		return e.load(off, e.jump(opJeq, value, equal, differ))
	case value == 0:
		return e.load(off, e.jump(opJset, mask, differ, equal))
	case value == mask && bits.OnesCount32(mask) == 1:
		return e.load(off, e.jump(opJset, mask, equal, differ))
	}
	return e.load(off, e.and(mask, e.jump(opJeq, value, equal, differ)))
}
