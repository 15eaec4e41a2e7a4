//go:build linux

package main

import (
	"os"
	"os/signal"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// afterForkInChild is what a forked child of a Go program calls: it takes back
// the runtime's signal handlers and gives the thread the signal mask that the
// runtime remembers, which is the one this process was started with. Programs
// that block a signal around the start of a launcher count on the guest, and
// what remains of the launcher, to have it.
//
//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// The signal for its parent's death belongs to the first thread alone, which
// runs this. Keeping to a thread costs another one, so it is for when it matters.
func init() {
	var sig int
	unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0, 0, 0, 0)
	if sig != 0 {
		runtime.LockOSThread()
	}
}

// A sigaction is the kernel's struct.
type sigaction [4]uint64

// handlers are the runtime's, by signal.
var handlers [lastSignal + 1]sigaction

const lastSignal = 64

// takeMask gives this thread the mask the caller gave this process, if it has
// one, and keeps to it then. The runtime's handlers are off from here on: a
// launcher that is not there yet dies of a signal as any program does.
func takeMask() {
	if startMask() == 0 {
		return // like all threads
	}
	runtime.LockOSThread()
	mask := startMask()
	var blocked []os.Signal
	for sig := 1; sig <= lastSignal; sig++ {
		if mask>>(sig-1)&1 != 0 && !signal.Ignored(unix.Signal(sig)) { // which the guest inherits
			blocked = append(blocked, unix.Signal(sig))
		}
	}
	// Other threads would take these signals, and die. To the runtime they are
	// handled as before, which Ignore ends.
	signal.Ignore(blocked...)
	signal.Notify(make(chan os.Signal, 1), blocked...)
}

// keepThread is takeMask for a launcher that stays, whose children end with the
// thread they were started from. It will want the runtime's handlers back.
func keepThread() {
	for sig := range handlers {
		rtSigaction(sig, nil, &handlers[sig])
	}
	takeMask()
	runtime.LockOSThread()
}

// startMask gives a thread the mask this process was started with, and returns
// that.
func startMask() (mask uint64) {
	for {
		thread := unix.Gettid()
		afterForkInChild()
		unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, 0, uintptr(unsafe.Pointer(&mask)), 8, 0, 0)
		if unix.Gettid() == thread {
			return mask
		}
	}
}

// withHandlers lets the runtime handle signals again as it did before keepThread,
// for os/signal.
func withHandlers() {
	for sig := range handlers {
		rtSigaction(sig, &handlers[sig], nil)
	}
}

// rtSigaction does nothing for numbers that are no signals.
func rtSigaction(sig int, set, old *sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
