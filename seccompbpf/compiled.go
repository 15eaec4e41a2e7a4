package seccompbpf

import (
	"runtime"
	"slices"
)

//go:generate go test -run TestCompiledFilters -update

// HardenedFilter returns what Hardened().CompileFor(runtime.GOARCH) does, compiled when this
// package was written: a program that starts, launches one guest and is gone
// has no time to compile a policy.
//
// Where ForArch has no coverage the filter kills whatever makes a syscall.
func HardenedFilter() Filter { return compiled(hardenedX86, hardenedARM) }

// BaselineFilter is the same for Baseline.
func BaselineFilter() Filter { return compiled(baselineX86, baselineARM) }

func compiled(x86, arm Filter) Filter {
	switch runtime.GOARCH {
	case "amd64", "386":
		return slices.Clone(x86)
	case "arm64", "arm":
		return slices.Clone(arm)
	}
	return Filter{{Code: opRet, K: uint32(KillProcess)}}
}
