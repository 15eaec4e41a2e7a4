package seccompbpf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:generate go run ./internal/gentables ztables.go

// An ABI is one set of syscall numbers. A kernel serves several at once: a 64-bit x86 process can
// reach AMD64, X32 and I386 calls, a 64-bit Arm one can start a 32-bit program.
type ABI uint8

// The ABIs every filter of this package covers.
const (
	AMD64   ABI = iota // x86_64
	X32                // 32-bit pointers on x86_64; its numbers have bit 30 set
	I386               // x86, also reached by "int 0x80" from 64-bit code
	ARM64              // aarch64
	ARM                // arm, EABI
	numABIs = iota
)

// ErrUnsupportedArch is the error of ForArch for an architecture without a syscall table.
var ErrUnsupportedArch = errors.New("no seccomp coverage for this architecture")

const (
	auditAMD64 = 0xc000003e
	auditI386  = 0x40000003
	auditARM64 = 0xc00000b7
	auditARM   = 0x40000028

	x32Bit = 1 << 30
)

type syscallEntry struct {
	nr   uint32
	name string
}

var abis = [numABIs]struct {
	name  string
	audit uint32
	table []syscallEntry // ascending by nr
}{
	AMD64: {"x86_64", auditAMD64, amd64Syscalls},
	X32:   {"x32", auditAMD64, x32Syscalls},
	I386:  {"x86", auditI386, i386Syscalls},
	ARM64: {"aarch64", auditARM64, arm64Syscalls},
	ARM:   {"arm", auditARM, armSyscalls},
}

// ABIs returns all covered ABIs.
func ABIs() []ABI { return []ABI{AMD64, X32, I386, ARM64, ARM} }

// machine returns the ABIs of the kernels that serve a.
func (a ABI) machine() []ABI {
	switch a {
	case ARM64, ARM:
		return []ABI{ARM64, ARM}
	}
	return []ABI{AMD64, X32, I386}
}

// String returns the name libseccomp and the kernel's tools use, such as "x86_64".
func (a ABI) String() string {
	if a >= numABIs {
		return fmt.Sprintf("ABI(%d)", uint8(a))
	}
	return abis[a].name
}

// AuditArch returns the AUDIT_ARCH_* value the kernel passes to a filter. AMD64 and X32 share one.
func (a ABI) AuditArch() uint32 { return abis[a].audit }

// Number returns the number of the named syscall; on X32 it includes bit 30.
func (a ABI) Number(name string) (nr uint32, ok bool) {
	for _, e := range abis[a].table {
		if e.name == name {
			return e.nr, true
		}
	}
	return 0, false
}

// Name returns the name of the syscall with number nr, in the spelling of the kernel's headers
// for this ABI.
func (a ABI) Name(nr uint32) (name string, ok bool) {
	table := abis[a].table
	i, ok := slices.BinarySearchFunc(table, nr, func(e syscallEntry, nr uint32) int {
		return cmp.Compare(e.nr, nr)
	})
	if !ok {
		return "", false
	}
	return table[i].name, true
}

// Identify tells what ABI and syscall an (arch, nr) pair means, such as the pair in a line of
// the kernel's audit log. ABI and ok are valid even if name is empty because the table has no
// such number; ok is false for an architecture that is not covered.
func Identify(arch, nr uint32) (abi ABI, name string, ok bool) {
	switch arch {
	case auditAMD64:
		abi = AMD64
		if nr&x32Bit != 0 {
			abi = X32
		}
	case auditI386:
		abi = I386
	case auditARM64:
		abi = ARM64
	case auditARM:
		abi = ARM
	default:
		return 0, "", false
	}
	name, _ = abi.Name(nr)
	return abi, name, true
}

// ForArch returns the native ABI of an architecture, named as GOARCH or as "uname -m" prints it,
// in any case. The error for any other name wraps ErrUnsupportedArch: a filter would kill every
// program there, so a launcher should refuse before it starts one.
func ForArch(name string) (ABI, error) {
	switch strings.ToLower(name) {
	case "amd64", "x86_64":
		return AMD64, nil
	case "386", "x86", "i386", "i486", "i586", "i686":
		return I386, nil
	case "arm64", "aarch64":
		return ARM64, nil
	case "arm", "armv6l", "armv7l", "armv8l":
		return ARM, nil
	}
	return 0, fmt.Errorf("seccompbpf: %w: %q (covered: x86_64, x86, aarch64, arm)", ErrUnsupportedArch, name)
}
