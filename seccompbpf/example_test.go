package seccompbpf_test

import (
	"fmt"

	"github.com/populationgenomics/postern-go/seccompbpf"
)

func Example() {
	filter, err := seccompbpf.Hardened().Compile()
	if err != nil {
		panic(err)
	}
	abi, err := seccompbpf.ForArch("aarch64")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"read", "mount", "clone3"} {
		nr, _ := abi.Number(name)
		fmt.Println(name, filter.Verdict(seccompbpf.Data{Arch: abi.AuditArch(), Nr: nr}))
	}
	// Output:
	// read allow
	// mount EPERM
	// clone3 ENOSYS
}

// A guest that runs a debugger.
func ExamplePolicy_Without() {
	policy := seccompbpf.Hardened().Without("ptrace", "personality")
	_, err := policy.Compile()
	fmt.Println(err)
	// Output: <nil>
}

// A workspace whose directories are shared by a Unix group needs the setgid bit. Setuid
// stays denied.
func ExamplePolicy_With() {
	policy := seccompbpf.Hardened()
	for syscall, arg := range map[string]int{"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2} {
		policy = policy.With(seccompbpf.Rule{
			Syscall: syscall,
			When:    []seccompbpf.Cond{{Arg: arg, Mask: 0o6000, Value: 0o2000}},
			Action:  seccompbpf.Allow,
			Why:     "group-shared directories",
		})
	}
	filter, err := policy.Compile()
	if err != nil {
		panic(err)
	}
	nr, _ := seccompbpf.AMD64.Number("chmod")
	for _, mode := range []uint64{0o2775, 0o4755} {
		d := seccompbpf.Data{Arch: seccompbpf.AMD64.AuditArch(), Nr: nr, Args: [6]uint64{0, mode}}
		fmt.Printf("%o %v\n", mode, filter.Verdict(d))
	}
	// Output:
	// 2775 allow
	// 4755 EPERM
}

func ExampleIdentify() {
	abi, name, _ := seccompbpf.Identify(0xc000003e, 272)
	fmt.Println(abi, name)
	// Output: x86_64 unshare
}
