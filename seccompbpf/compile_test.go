package seccompbpf

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A random policy, compiled, must decide every call as the policy itself does.
func FuzzFilterDecidesAsPolicy(f *testing.F) {
	for seed := range uint64(64) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := randomPolicy(r, r.IntN(200))
		filter, x86, arm := compile(t, p), compileFor(t, p, "amd64"), compileFor(t, p, "arm64")
		for range 2000 {
			d := randomData(r, p)
			want := p.Evaluate(d)
			if got := filter.Verdict(d); got != want {
				t.Fatalf("%+v: filter %v, policy %v\n%s", d, got, want, p)
			}
			onX86, onARM := want, want
			switch d.Arch {
			case auditAMD64, auditI386:
				onARM = KillProcess
			case auditARM64, auditARM:
				onX86 = KillProcess
			}
			if got := x86.Verdict(d); got != onX86 {
				t.Fatalf("%+v: filter for amd64 %v, want %v\n%s", d, got, onX86, p)
			}
			if got := arm.Verdict(d); got != onARM {
				t.Fatalf("%+v: filter for arm64 %v, want %v\n%s", d, got, onARM, p)
			}
		}
	})
}

func TestPresetsDecideAsTheirRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range []Policy{Baseline(), Hardened(), Hardened().Without("socketcall", "chmod")} {
		f := compile(t, p)
		seen := make(map[Action]int)
		for range 100_000 {
			d := randomData(r, p)
			got, want := f.Verdict(d), p.Evaluate(d)
			if got != want {
				t.Fatalf("%q: %+v: filter %v, policy %v", p.Name, d, got, want)
			}
			seen[got]++
		}
		for _, a := range []Action{Allow, EPERM, ENOSYS, KillProcess} {
			if seen[a] < 100 {
				t.Errorf("%q: only %d random calls got %v; the test sees too little", p.Name, seen[a], a)
			}
		}
	}
}

// Every syscall with an errno and a condition of its own: no two leaves can be shared, so jumps
// get far longer than the 255 instructions a conditional one reaches.
func TestJumpsBeyond255Instructions(t *testing.T) {
	p := Policy{Default: Allow, Unlisted: ENOSYS}
	for i, e := range abis[AMD64].table[:200] {
		p.Rules = append(p.Rules, Rule{
			Syscall: e.name,
			When:    []Cond{Int(i%6, NotEqual, uint32(i))},
			Action:  Errno(uint16(i)),
		})
	}
	f := compile(t, p)
	far := 0
	for _, in := range f {
		if in.Code == opJa {
			far++
		}
	}
	if far == 0 {
		t.Fatal("no long jump in a filter of", len(f), "instructions; the test proves nothing")
	}
	for _, abi := range ABIs() {
		for _, e := range abis[abi].table {
			for _, args := range [][6]uint64{{}, {1, 2, 3, 4, 5, 6}, {^uint64(0)}} {
				d := Data{Arch: abi.AuditArch(), Nr: e.nr, Args: args}
				if got, want := f.Verdict(d), p.Evaluate(d); got != want {
					t.Fatalf("%s %s: %v, want %v", abi, e.name, got, want)
				}
			}
		}
	}
}

func TestCompileIsDeterministic(t *testing.T) {
	first := compile(t, Hardened()).String()
	for range 20 {
		if compile(t, Hardened()).String() != first {
			t.Fatal("the same policy gave two filters")
		}
	}
}

// machines are the architectures with a filter of their own, and the ABIs it covers.
var machines = map[string][]ABI{
	"amd64": {AMD64, X32, I386}, "386": {AMD64, X32, I386},
	"arm64": {ARM64, ARM}, "arm": {ARM64, ARM},
}

// Every number that means something and those around it, with arguments at the edges of its
// conditions: the filter for all machines decides as the policy, and that for one does so there and
// kills elsewhere.
func TestFilterForOneMachine(t *testing.T) {
	for _, p := range []Policy{Baseline(), Hardened(), Hardened().With(Rule{Syscall: "read", Action: Trap}), edges()} {
		whole, rules := compile(t, p), p.rulesByCall()
		filters := make(map[string]Filter)
		for arch := range machines {
			filters[arch] = compileFor(t, p, arch)
		}
		seen, killed := make(map[Action]int), make(map[string]int)
		for _, audit := range sweepArchs() {
			for _, nr := range sweepNumbers() {
				abi, name, _ := Identify(audit, nr)
				for _, args := range edgeArgs(rules[name]) {
					d := Data{Arch: audit, Nr: nr, Args: args}
					want := p.Evaluate(d)
					seen[want]++
					if got := whole.Verdict(d); got != want {
						t.Fatalf("%q: %+v: %v, policy %v", p.Name, d, got, want)
					}
					for arch, covered := range machines {
						want := want
						if want != KillProcess && !slices.Contains(covered, abi) {
							want = KillProcess
							killed[arch]++
						}
						if got := filters[arch].Verdict(d); got != want {
							t.Fatalf("%q for %s: %+v: %v, want %v", p.Name, arch, d, got, want)
						}
					}
				}
			}
		}
		for arch := range machines {
			if killed[arch] == 0 {
				t.Errorf("%q: %s covers everything; the test proves nothing", p.Name, arch)
			}
		}
		for _, r := range p.Rules {
			if seen[r.Action] == 0 {
				t.Errorf("%q: nothing got %v", p.Name, r.Action)
			}
		}
	}
}

// edges is a policy whose conditions share operands in every way that a filter can make use of.
func edges() Policy {
	wide := Cond{Arg: 0, Mask: 1<<64 - 1, Value: 5<<32 | 7}
	masked := func(value uint64) Cond { return Cond{Arg: 0, Mask: 0xff00ff, Value: value} }
	return Policy{Name: "edges", Default: Allow, Unlisted: ENOSYS, Rules: []Rule{
		{Syscall: "read", When: []Cond{wide}, Action: EPERM},
		{Syscall: "read", When: []Cond{Int(0, Equal, 7), Int(1, NotEqual, 7)}, Action: Trap},
		{Syscall: "write", When: []Cond{masked(7)}, Action: EPERM},
		{Syscall: "write", When: []Cond{masked(5), Int(0, NotEqual, 5)}, Action: Trap},
		{Syscall: "write", When: []Cond{masked(0x50005), AnyBit(0, 0xff)}, Action: ENOSYS},
		{Syscall: "close", When: []Cond{AnyBit(0, 4), masked(7)}, Action: EPERM},
		{Syscall: "close", When: []Cond{{Arg: 0, Mask: 8, Value: 8}, AnyBit(1, 6)}, Action: Trap},
		{Syscall: "close", When: []Cond{Int(1, Equal, 7)}, Action: Allow}, // decides nothing
	}}
}

// edgeArgs has, for each argument, the values that the conditions of the rules tell apart.
func edgeArgs(rules []Rule) [][6]uint64 {
	all := [][6]uint64{{}, {1, 2, 3, 4, 5, 6}}
	for _, r := range rules {
		for _, c := range r.When {
			for _, v := range []uint64{c.Value, c.Value | ^c.Mask, c.Mask, c.Value ^ 1, c.Value ^ 1<<32} {
				every := [6]uint64{v, v, v, v, v, v}
				all = append(all, every)
				for arg := range 6 {
					one, others := [6]uint64{}, every
					one[arg], others[arg] = v, 0
					all = append(all, one, others)
				}
			}
		}
	}
	return all
}

// The kernel does not run the filter for calls that it allows whatever their arguments, if it can
// see that at install. It looks as alwaysAllows does.
func TestCallsAllowedByNumberAreDecidedByNumber(t *testing.T) {
	for _, p := range []Policy{Baseline(), Hardened()} {
		conditional := make(map[string]bool)
		for call, rules := range p.rulesByCall() {
			conditional[call] = slices.ContainsFunc(rules, func(r Rule) bool { return len(r.When) > 0 })
		}
		for arch, covered := range machines {
			f := compileFor(t, p, arch)
			for _, abi := range covered {
				n := 0
				for _, e := range p.table(abi) {
					d := Data{Arch: abi.AuditArch(), Nr: e.nr}
					want := p.Evaluate(d) == Allow && !conditional[e.name]
					if got := alwaysAllows(f, d); got != want {
						t.Errorf("%s, %s: %s is allowed by its number alone: %v, want %v", p.Name, abi, e.name, got, want)
					}
					if want {
						n++
					}
				}
				if n < 200 && len(p.table(abi)) > 0 {
					t.Errorf("%s, %s: only %d calls are allowed by number", p.Name, abi, n)
				}
			}
		}
	}
}

// A condition between two equal fates would make the kernel run the filter for nothing.
func TestConditionThatDecidesNothingIsLeftOut(t *testing.T) {
	p := Policy{Default: Allow, Unlisted: ENOSYS}
	without := compile(t, p)
	p.Rules = []Rule{{Syscall: "read", When: []Cond{Int(0, Equal, 1), {Arg: 1, Mask: 1<<64 - 1, Value: 2}}, Action: Allow}}
	if with := compile(t, p); with.String() != without.String() {
		t.Errorf("got\n%s\nwant\n%s", with, without)
	}
}

// alwaysAllows is the kernel's seccomp_is_const_allow.
func alwaysAllows(f Filter, d Data) bool {
	a := uint32(0)
	for pc := 0; pc < len(f); pc++ {
		in := f[pc]
		switch {
		case in.Code == opLoad && in.K == offNr:
			a = d.Nr
		case in.Code == opLoad && in.K == offArch:
			a = d.Arch
		case in.Code == opRet:
			return Action(in.K) == Allow
		case in.Code == opJa:
			pc += int(in.K)
		case in.Code == opAnd:
			a &= in.K
		case in.Code&(classMask|srcX) == classJmp:
			if taken, _ := compare(in.Code, a, in.K); taken {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		default:
			return false
		}
	}
	return false
}

// Ceilings with room for new rules: every launch pays for the filter's length, and for the
// length of the way of each number, which the kernel walks at install.
func TestFilterSizeAndPathLength(t *testing.T) {
	for _, c := range []struct {
		name             string
		f                Filter
		insns, path, max int
	}{
		{"baseline", compile(t, Baseline()), 232, 15, 20}, // 232 is what libseccomp needs
		{"hardened", compile(t, Hardened()), 480, 15, 26},
		{"baseline for amd64", compileFor(t, Baseline(), "amd64"), 130, 14, 18},
		{"hardened for amd64", compileFor(t, Hardened(), "amd64"), 220, 13, 24},
		{"baseline for arm64", compileFor(t, Baseline(), "arm64"), 100, 12, 18},
		{"hardened for arm64", compileFor(t, Hardened(), "arm64"), 220, 13, 24},
	} {
		if len(c.f) > c.insns {
			t.Errorf("%s: %d instructions, more than %d", c.name, len(c.f), c.insns)
		}
		for _, abi := range ABIs() {
			calls, total, longest := 0, 0, 0
			for _, e := range abis[abi].table {
				if a, steps := c.f.run(Data{Arch: abi.AuditArch(), Nr: e.nr}); a == Allow {
					calls++
					total += steps
					longest = max(longest, steps)
				}
			}
			if calls == 0 {
				continue // another machine's, or NoX32
			}
			mean := float64(total) / float64(calls)
			t.Logf("%s, %s: %d instructions, an allowed call runs %.1f of them, at most %d", c.name, abi, len(c.f), mean, longest)
			if mean > float64(c.path) || longest > c.max {
				t.Errorf("%s, %s: mean %.1f, longest %d", c.name, abi, mean, longest)
			}
		}
	}
}

func BenchmarkCompileHardened(b *testing.B) {
	for b.Loop() {
		if _, err := Hardened().Compile(); err != nil {
			b.Fatal(err)
		}
	}
}

func randomPolicy(r *rand.Rand, rules int) Policy {
	p := Policy{Name: "random", Default: randomAction(r), Unlisted: randomAction(r)}
	p.NoX32 = !p.Unlisted.permits() && r.IntN(2) == 0
	for range rules {
		rule := Rule{Syscall: randomName(r), Action: randomAction(r)}
		for range r.IntN(4) {
			rule.When = append(rule.When, randomCond(r))
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

func randomName(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return []string{"socketcall", "ipc", "socket", "bind", "shmget", "semop"}[r.IntN(6)]
	}
	table := abis[r.IntN(numABIs)].table
	return table[r.IntN(len(table))].name
}

func randomAction(r *rand.Rand) Action {
	return []Action{
		Allow, EPERM, ENOSYS, Errno(uint16(r.IntN(maxErrno + 1))), Trap, Log, KillProcess, KillThread,
	}[r.IntN(8)]
}

func randomCond(r *rand.Rand) Cond {
	mask := []uint64{
		1<<64 - 1, 1<<32 - 1, (1<<32 - 1) << 32, 1 << r.IntN(64), r.Uint64() | 1, r.Uint64()&r.Uint64() | 1,
	}[r.IntN(6)]
	value := []uint64{0, mask, r.Uint64() & mask, uint64(r.IntN(25)) & mask}[r.IntN(4)]
	return Cond{Arg: r.IntN(6), Op: Op(r.IntN(2)), Mask: mask, Value: value}
}

// randomData makes a call that the policy is likely to care about.
func randomData(r *rand.Rand, p Policy) Data {
	abi := ABI(r.IntN(numABIs))
	d := Data{Arch: abi.AuditArch(), IP: r.Uint64()}
	name := randomName(r)
	if len(p.Rules) > 0 && r.IntN(3) > 0 {
		name = p.Rules[r.IntN(len(p.Rules))].Syscall
	}
	nr, ok := abi.Number(name)
	if !ok || r.IntN(10) == 0 {
		nr = []uint32{nr, nr + 1, nr ^ x32Bit, r.Uint32(), uint32(r.IntN(600))}[r.IntN(5)]
	}
	d.Nr = nr
	if r.IntN(50) == 0 {
		d.Arch = []uint32{r.Uint32(), auditAMD64, auditARM, 0}[r.IntN(4)]
	}
	for i := range d.Args {
		d.Args[i] = []uint64{0, r.Uint64(), uint64(r.IntN(25)), 1<<32 | uint64(r.IntN(25))}[r.IntN(4)]
	}
	for _, rule := range p.Rules {
		if rule.Syscall != name {
			continue
		}
		for _, c := range rule.When { // next to a boundary, or just over it
			switch r.IntN(4) {
			case 0:
				d.Args[c.Arg] = c.Value
			case 1:
				d.Args[c.Arg] = c.Value | r.Uint64()&^c.Mask
			case 2:
				d.Args[c.Arg] = c.Value ^ 1<<r.IntN(64)
			}
		}
	}
	return d
}
