//go:build linux

package main

import "slices"

// Cases returns the whole table. Every line is launched as root and as an ordinary user unless it says
// otherwise.
func Cases() []Case {
	return slices.Concat(
		optionCases(), orderCases(), pathCases(), errorCases(), processCases(), clientCases(), reportedCases(),
	)
}
