package seccompbpf

import "slices"

//go:generate go test -run TestCompiledFilters -update

// HardenedFilter returns what Hardened().Compile() does, compiled when this
// package was written: a program that starts, launches one guest and is gone
// has no time to compile a policy.
func HardenedFilter() Filter { return slices.Clone(hardenedFilter) }

// BaselineFilter is the same for Baseline.
func BaselineFilter() Filter { return slices.Clone(baselineFilter) }
