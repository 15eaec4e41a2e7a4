//go:build linux && (amd64 || arm64)

package main

// The Go runtime installs handlers for signals that were ignored and raises the soft limit on open files
// before main runs. The probe has to report the state it was started with, so the linker is told (-E) to
// start the program at entry, which saves that state and goes on to the runtime.

var (
	entryActions [65][4]uint64 // struct sigaction by signal number; the handler comes first
	entryMask    uint64
	entryNofile  [2]uint64
)

// entry is written in assembly. It is never called from Go.
//
//lint:ignore U1000 the linker jumps there
func entry()
