package seccompbpf

import (
	"math/rand/v2"
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
		filter := compile(t, p)
		for range 2000 {
			d := randomData(r, p)
			if got, want := filter.Verdict(d), p.Evaluate(d); got != want {
				t.Fatalf("%+v: filter %v, policy %v\n%s", d, got, want, p)
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

// Ceilings with room for new rules: a filter is copied into the kernel at every launch.
func TestFilterSizeAndPathLength(t *testing.T) {
	for _, c := range []struct {
		p                Policy
		insns, path, max int
	}{
		{Baseline(), 232, 15, 20}, // 232 is what libseccomp needs
		{Hardened(), 1024, 18, 32},
	} {
		f := compile(t, c.p)
		if len(f) > c.insns {
			t.Errorf("%s: %d instructions, more than %d", c.p.Name, len(f), c.insns)
		}
		for _, abi := range ABIs() {
			calls, total, longest := 0, 0, 0
			for _, e := range abis[abi].table {
				if a, steps := f.run(Data{Arch: abi.AuditArch(), Nr: e.nr}); a == Allow {
					calls++
					total += steps
					longest = max(longest, steps)
				}
			}
			mean := float64(total) / float64(calls)
			t.Logf("%s, %s: %d instructions, an allowed call runs %.1f of them, at most %d", c.p.Name, abi, len(f), mean, longest)
			if mean > float64(c.path) || longest > c.max {
				t.Errorf("%s, %s: mean %.1f, longest %d", c.p.Name, abi, mean, longest)
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
