package seccompbpf

import (
	"errors"
	"strings"
	"testing"
)

func TestForArch(t *testing.T) {
	for want, names := range map[ABI]string{
		AMD64: "x86_64 amd64 AMD64 X86_64",
		I386:  "386 x86 i386 i486 i586 i686 I686",
		ARM64: "aarch64 arm64 AArch64",
		ARM:   "arm armv6l armv7l armv8l ARMv7l",
	} {
		for _, name := range strings.Fields(names) {
			got, err := ForArch(name)
			if err != nil || got != want {
				t.Errorf("ForArch(%q) = %v, %v, want %v", name, got, err, want)
			}
		}
	}
}

func TestForArchRefusesUncovered(t *testing.T) {
	for _, name := range []string{"", "riscv64", "s390x", "ppc64le", "mips64", "loong64", "armeb", "aarch64_be", "x86_64 "} {
		_, err := ForArch(name)
		if !errors.Is(err, ErrUnsupportedArch) {
			t.Errorf("ForArch(%q): %v, want ErrUnsupportedArch", name, err)
		}
		if f, err := Hardened().CompileFor(name); !errors.Is(err, ErrUnsupportedArch) || f != nil {
			t.Errorf("CompileFor(%q): %v, %v, want ErrUnsupportedArch", name, f, err)
		}
	}
}

func TestNumberAndNameAreInverse(t *testing.T) {
	for _, abi := range ABIs() {
		seen := make(map[string]bool)
		last := -1
		for _, e := range abis[abi].table {
			if int(e.nr) <= last {
				t.Errorf("%s: %#x %s is not in ascending order", abi, e.nr, e.name)
			}
			last = int(e.nr)
			if seen[e.name] {
				t.Errorf("%s: %s appears twice", abi, e.name)
			}
			seen[e.name] = true
			if nr, ok := abi.Number(e.name); !ok || nr != e.nr {
				t.Errorf("%s: Number(%q) = %#x, %v", abi, e.name, nr, ok)
			}
			if name, ok := abi.Name(e.nr); !ok || name != e.name {
				t.Errorf("%s: Name(%#x) = %q, %v", abi, e.nr, name, ok)
			}
			if got, name, ok := Identify(abi.AuditArch(), e.nr); !ok || got != abi || name != e.name {
				t.Errorf("Identify(%#x, %#x) = %v, %q, %v", abi.AuditArch(), e.nr, got, name, ok)
			}
		}
	}
}

// A few numbers known by heart, so that a shifted or swapped table cannot pass.
func TestWellKnownNumbers(t *testing.T) {
	for _, c := range []struct {
		abi  ABI
		name string
		nr   uint32
	}{
		{AMD64, "read", 0}, {AMD64, "mount", 165}, {AMD64, "clone3", 435},
		{X32, "read", 0x40000000}, {X32, "mount", 0x400000a5}, {X32, "ptrace", 0x40000209},
		{I386, "exit", 1}, {I386, "mount", 21}, {I386, "socketcall", 102}, {I386, "socket", 359},
		{ARM64, "io_setup", 0}, {ARM64, "mount", 40}, {ARM64, "read", 63},
		{ARM, "read", 3}, {ARM, "mount", 21}, {ARM, "set_tls", 0xf0005},
	} {
		if nr, ok := c.abi.Number(c.name); !ok || nr != c.nr {
			t.Errorf("%s: Number(%q) = %#x, %v, want %#x", c.abi, c.name, nr, ok, c.nr)
		}
	}
	for _, c := range []struct {
		abi  ABI
		name string
	}{{ARM64, "open"}, {AMD64, "socketcall"}, {X32, "uselib"}, {ARM, "socketcall"}} {
		if nr, ok := c.abi.Number(c.name); ok {
			t.Errorf("%s: Number(%q) = %#x, but there is none", c.abi, c.name, nr)
		}
	}
}
