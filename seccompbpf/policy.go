package seccompbpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrInvalidPolicy is wrapped by every error of Policy.Compile.
var ErrInvalidPolicy = errors.New("invalid seccomp policy")

// A Policy says what happens to each syscall. It is a plain value: copy it, compare it with
// reflect.DeepEqual or go-cmp, print it. The zero Policy kills whatever makes a syscall.
//
// A policy names syscalls and applies to every covered ABI alike; a call that an ABI does not
// have is no concern there. Architectures that are not covered are always KillProcess.
type Policy struct {
	// Name is for people: it heads the listing and the error texts.
	Name string

	// Rules are tried in order. The first that matches decides.
	Rules []Rule

	// Default decides about syscalls that no rule matches.
	Default Action

	// Unlisted decides about numbers that the ABI's table does not have: calls newer than this
	// package, and numbers that were never used.
	Unlisted Action

	// NoX32 makes every number of x32 one that no table has, so that Unlisted decides whatever
	// the rules say: with ENOSYS, as a kernel without x32. Only programs built for x32 notice.
	// Unlisted must be a denial then.
	NoX32 bool
}

// A Rule gives one syscall an Action, always or under conditions on its arguments.
//
// The name is the one in the kernel's headers and means just this call. Relatives are calls of
// their own: a rule for "chmod" says nothing about "fchmodat".
//
// On x86 the kernel also offers socket and System V IPC calls through two multiplexers,
// socketcall(2) and ipc(2). A rule for such a call covers that way in as well, unless an earlier
// rule names the multiplexer itself. There the arguments lie in memory where no filter can see
// them, so a conditional rule is taken the strict way: it denies whatever the arguments are, and
// allows nothing.
type Rule struct {
	Syscall string
	When    []Cond // all must hold; none means always
	Action  Action
	Why     string // shown in the listing, no effect
}

// A Cond compares one argument: (args[Arg] & Mask) == Value, or != Value.
//
// Registers are 64 bits wide, but the kernel truncates most arguments: an int to 32 bits, a
// mode_t to 16. A Mask wider than what the kernel looks at lets a guest pass the check
// by setting bits that do not count. Use Int and AnyBit unless the argument is really 64 bits.
type Cond struct {
	Arg   int // 0 to 5
	Op    Op
	Mask  uint64
	Value uint64 // within Mask
}

// An Op is a comparison.
type Op uint8

// The comparisons.
const (
	Equal Op = iota
	NotEqual
)

// Int compares an argument which the kernel declares as int or unsigned int.
func Int(arg int, op Op, value uint32) Cond {
	return Cond{Arg: arg, Op: op, Mask: 0xffffffff, Value: uint64(value)}
}

// AnyBit holds when at least one of bits is set in the argument.
func AnyBit(arg int, bits uint32) Cond {
	return Cond{Arg: arg, Op: NotEqual, Mask: uint64(bits)}
}

// Holds reports whether the condition is true of a syscall's arguments.
func (c Cond) Holds(args [6]uint64) bool {
	return (args[c.Arg]&c.Mask == c.Value) == (c.Op == Equal)
}

// String returns the condition as a C expression.
func (c Cond) String() string {
	op := "=="
	if c.Op == NotEqual {
		op = "!="
	}
	switch c.Mask {
	case 1<<64 - 1:
		return fmt.Sprintf("arg%d %s %#x", c.Arg, op, c.Value)
	case 1<<32 - 1:
		return fmt.Sprintf("(int)arg%d %s %#x", c.Arg, op, c.Value)
	}
	return fmt.Sprintf("(arg%d & %#x) %s %#x", c.Arg, c.Mask, op, c.Value)
}

// With returns a copy of the policy with the rules placed before its own, so that they win.
func (p Policy) With(rules ...Rule) Policy {
	p.Rules = slices.Concat(rules, p.Rules)
	return p
}

// Without returns a copy of the policy in which the named syscalls are allowed whatever their
// arguments: a weaker wall. Its listing begins with what was given up.
func (p Policy) Without(syscalls ...string) Policy {
	var rules []Rule
	for _, name := range syscalls {
		rules = append(rules, Rule{Syscall: name, Action: Allow, Why: "given up by Without"})
	}
	for _, r := range p.Rules {
		if !slices.Contains(syscalls, r.Syscall) {
			rules = append(rules, r)
		}
	}
	p.Rules = rules
	return p
}

// Evaluate returns the policy's decision about one syscall. It is the definition of what the
// filter made by Compile does. The policy must be one that Compile accepts.
func (p Policy) Evaluate(d Data) Action {
	abi, name, ok := Identify(d.Arch, d.Nr)
	switch {
	case !ok:
		return KillProcess
	case name == "", p.NoX32 && abi == X32:
		return p.Unlisted
	}
	for _, r := range p.rulesFor(name) {
		if r.matches(d.Args) {
			return r.Action
		}
	}
	return p.Default
}

// table returns the calls of an ABI that the rules are about.
func (p Policy) table(abi ABI) []syscallEntry {
	if p.NoX32 && abi == X32 {
		return nil
	}
	return abis[abi].table
}

func (r Rule) matches(args [6]uint64) bool {
	for _, c := range r.When {
		if !c.Holds(args) {
			return false
		}
	}
	return true
}

// rulesFor returns the rules that bear on one syscall, in order.
func (p Policy) rulesFor(syscall string) []Rule {
	var rules []Rule
	mux := slices.IndexFunc(multiplexers, func(m multiplexer) bool { return m.name == syscall })
	for _, r := range p.Rules {
		if r.Syscall == syscall {
			rules = append(rules, r)
		} else if mux >= 0 {
			if r, ok := multiplexers[mux].translate(r); ok {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// String returns a listing of the policy in the order it is applied, with what its rules mean for
// the multiplexers of x86.
func (p Policy) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seccomp policy %q\n", p.Name)
	line := func(a Action, what, why string) {
		fmt.Fprintf(&b, "%-16s %s", a, what)
		if why != "" {
			fmt.Fprintf(&b, "  # %s", why)
		}
		b.WriteByte('\n')
	}
	rules := p.withMultiplexed()
	for i := 0; i < len(rules); {
		r := rules[i]
		what := r.Syscall
		i++
		if len(r.When) > 0 {
			what += " if " + joinConds(r.When)
		} else {
			for ; i < len(rules) && rules[i].sameFate(r); i++ {
				what += " " + rules[i].Syscall
			}
		}
		line(r.Action, what, r.Why)
	}
	line(p.Default, "any other call", "")
	unlisted := "numbers in no table"
	if p.NoX32 {
		unlisted += " and all of x32"
	}
	line(p.Unlisted, unlisted, "")
	line(KillProcess, "other architectures", "")
	return b.String()
}

// withMultiplexed returns the rules, each followed by what it says about a multiplexer.
func (p Policy) withMultiplexed() []Rule {
	var rules []Rule
	for _, r := range p.Rules {
		rules = append(rules, r)
		for _, mux := range multiplexers {
			m, ok := mux.translate(r)
			decided := func(earlier Rule) bool {
				return earlier.Syscall == mux.name && (len(earlier.When) == 0 || slices.Equal(earlier.When, m.When))
			}
			if ok && !slices.ContainsFunc(rules, decided) {
				rules = append(rules, m)
			}
		}
	}
	return rules
}

// sameFate reports whether both rules can share a line of the listing.
func (r Rule) sameFate(as Rule) bool {
	return len(r.When) == 0 && r.Action == as.Action && r.Why == as.Why
}

func joinConds(conds []Cond) string {
	var s []string
	for _, c := range conds {
		s = append(s, c.String())
	}
	return strings.Join(s, " && ")
}

// check returns all that is wrong with the policy.
func (p Policy) check() error {
	var errs []error
	for i, r := range p.Rules {
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("rule %d, %q: %w", i, r.Syscall, err))
		}
	}
	if err := p.Default.check(); err != nil {
		errs = append(errs, fmt.Errorf("field Default: %w", err))
	}
	if err := p.Unlisted.check(); err != nil {
		errs = append(errs, fmt.Errorf("field Unlisted: %w", err))
	}
	if p.NoX32 && p.Unlisted.permits() {
		errs = append(errs, fmt.Errorf("field NoX32: would let all of x32 through, as Unlisted is %v; deny one or clear the other", p.Unlisted))
	}
	return errors.Join(errs...)
}

func (r Rule) check() error {
	if !knownSyscall(r.Syscall) {
		return errors.New("no covered ABI has a syscall of this name; check the spelling")
	}
	for _, c := range r.When {
		switch {
		case c.Arg < 0 || c.Arg > 5:
			return fmt.Errorf("condition on argument %d: syscalls have arguments 0 to 5", c.Arg)
		case c.Op > NotEqual:
			return fmt.Errorf("condition on argument %d: unknown comparison %d", c.Arg, c.Op)
		case c.Mask == 0:
			return fmt.Errorf("condition on argument %d: empty Mask looks at nothing", c.Arg)
		case c.Value&^c.Mask != 0:
			return fmt.Errorf("condition on argument %d: Value %#x has bits outside Mask %#x and is never equal",
				c.Arg, c.Value, c.Mask)
		}
	}
	return r.Action.check()
}

func (a Action) check() error {
	switch a & actionMask {
	case actionErrno:
		if n, _ := a.Errno(); n > maxErrno {
			return fmt.Errorf("errno %d: the kernel allows at most %d", n, maxErrno)
		}
		return nil
	case Allow, Log, KillProcess, KillThread, Trap:
		return nil
	}
	return fmt.Errorf("action %s needs a supervisor that a policy cannot name", a)
}

func knownSyscall(name string) bool {
	for _, abi := range ABIs() {
		if _, ok := abi.Number(name); ok {
			return true
		}
	}
	return false
}
