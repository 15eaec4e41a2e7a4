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
// runtime remembers, which is the one this process was started with.
//
//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// A sigaction is the kernel's struct.
type sigaction [4]uint64

// handlers are the runtime's, by signal.
var handlers [lastSignal + 1]sigaction

const lastSignal = 64

// Signals that ask for the parent's death, namespaces and signal masks belong
// to threads: everything is done from the one that stays, and with the mask the
// caller gave this process. The runtime has emptied it, but programs that block
// a signal around the start of a launcher count on the guest, and what remains
// of the launcher, to have it.
//
// The runtime's handlers stay off until withHandlers: a launcher that is not
// there yet dies of a signal as any program does.
func init() {
	runtime.LockOSThread()
	for sig := range handlers {
		rtSigaction(sig, nil, &handlers[sig])
	}
	afterForkInChild()
	if blocked := blockedSignals(); len(blocked) > 0 {
		// Other threads would take these signals, and die.
		withHandlers()
		signal.Notify(make(chan os.Signal, 1), blocked...)
	}
}

// withHandlers lets the runtime handle signals again, for os/signal.
func withHandlers() {
	for sig := range handlers {
		rtSigaction(sig, &handlers[sig], nil)
	}
}

func blockedSignals() []os.Signal {
	var mask uint64
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_BLOCK, 0, uintptr(unsafe.Pointer(&mask)), 8, 0, 0)
	var blocked []os.Signal
	for sig := 1; sig <= lastSignal; sig++ {
		if mask>>(sig-1)&1 != 0 {
			blocked = append(blocked, unix.Signal(sig))
		}
	}
	return blocked
}

// rtSigaction does nothing for numbers that are no signals.
func rtSigaction(sig int, set, old *sigaction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
