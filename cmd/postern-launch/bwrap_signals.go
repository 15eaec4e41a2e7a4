//go:build linux

package main

import (
	"os"
	"os/signal"

	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// catch keeps the signals that come, for passOn or endTogether.
func (l *bwrapLauncher) catch() chan os.Signal {
	c := make(chan os.Signal, 64)
	switch {
	case l.cmd.Spec.Launcher.Forward:
		withHandlers()
		for n := unix.Signal(1); n <= lastSignal; n++ {
			if passable(n) && !signal.Ignored(n) { // which the command inherits
				signal.Notify(c, n)
			}
		}
	case l.cmd.RemoveMountpoints:
		withHandlers()
		signal.Notify(c, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT)
	}
	return c
}

// endTogether lets a signal that would end this process end the guest first,
// so that there is somebody left to clean up. It returns what tells the signal,
// if there was one.
func endTogether(c chan os.Signal, p *nsexec.Process) <-chan unix.Signal {
	ended := make(chan unix.Signal, 1)
	go func() {
		sig, _ := (<-c).(unix.Signal)
		ended <- sig
		p.Signal(unix.SIGKILL)
	}()
	return ended
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
