//go:build linux

package main

import (
	"os"
	"os/signal"
	"unsafe"

	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// dieAsAsked makes SIGQUIT end this process as it ends any other program, and
// not with the traceback that the Go runtime would print.
func dieAsAsked() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGQUIT)
	go func() {
		<-c
		dieBy(unix.SIGQUIT)
	}()
}

// dieBy ends this process by a signal.
func dieBy(sig unix.Signal) {
	var action [32]byte // SIG_DFL
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	unix.Kill(unix.Getpid(), sig)
}

// endTogether lets a signal that would end this process end the guest first,
// so that there is somebody left to clean up. It returns what tells the signal,
// if there was one.
func endTogether(p *nsexec.Process) <-chan unix.Signal {
	c := make(chan os.Signal, 1)
	ended := make(chan unix.Signal, 1)
	signal.Notify(c, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	go func() {
		sig, _ := (<-c).(unix.Signal)
		ended <- sig
		p.Signal(unix.SIGKILL)
	}()
	return ended
}

// catchAll keeps the signals that come, for passOn. It begins before the
// launch, because the command can run before the launch is known to be done.
func catchAll() chan os.Signal {
	c := make(chan os.Signal, 64)
	for n := unix.Signal(1); n <= 64; n++ {
		if passable(n) && !signal.Ignored(n) { // which the command inherits
			signal.Notify(c, n)
		}
	}
	return c
}

// passOn passes on to the guest what has been caught and what comes, signals
// included that were ignored so far.
func passOn(c chan os.Signal, to *nsexec.Process) {
	signal.Notify(c)
	go func() {
		for sig := range c {
			if n, ok := sig.(unix.Signal); ok && passable(n) {
				to.Signal(n)
			}
		}
	}()
}

// passable tells signals apart from the Go runtime's own.
func passable(n unix.Signal) bool { return n != unix.SIGCHLD && n != unix.SIGURG }
