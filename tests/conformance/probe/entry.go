//go:build linux

package main

// The Go runtime installs handlers for signals that were ignored and raises the soft limit on open files
// before main runs. The probe has to report the state it was started with, so the linker is told (-E) to
// start the program at entry, which saves that state and goes on to the runtime.

// sigaction is the kernel's struct of that name; both supported architectures lay it out like this.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

var (
	entryActions [65]sigaction // by signal number
	entryMask    uint64
	entryNofile  [2]uint64
)

// entry is written in assembly. It is never called from Go.
func entry()
