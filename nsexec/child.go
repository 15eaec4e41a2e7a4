//go:build linux

package nsexec

import "unsafe"

// A child is a process that shares this one's memory and makes system calls, in
// machine code, until one fails: no Go code can run there. No signal handler
// can either, so it blocks all signals. The machine code knows the fields in
// this order.
type child struct {
	calls   *call   // ends with one that does not return
	clone   [3]uint // the system call that starts it, with two arguments
	all     uint64  // signals
	blocked uint64  // signals of the calling thread
	failed  int     // the negative errno of the call that failed
}

// A call is a system call with its arguments. What it points to has to be kept
// alive, outside of any stack, as the child itself.
type call struct {
	number uint
	args   [6]uint
}

func newCall(number uint, args ...uint) call {
	c := call{number: number}
	copy(c.args[:], args)
	return c
}

// at is an address in memory that is not a stack's.
func at[T any](p *T) uint { return uint(uintptr(unsafe.Pointer(p))) }

const allSignals = 1<<64 - 1
