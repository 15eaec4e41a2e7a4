package postern

import (
	"syscall"
	"time"
)

// A Result says how a run ended.
type Result struct {
	// ExitCode is the command's exit status: 128 + N if signal N ended it, 127
	// if there is no such program in the guest and 126 if it cannot be
	// executed, 124 if the run timed out. It is -1 if no guest ran.
	ExitCode int
	// Signal ended the command, or is 0.
	Signal syscall.Signal
	// Reason says why the run ended.
	Reason Reason

	// Stdout and Stderr are the output as far as it was collected. A command
	// with a terminal has only Stdout.
	Stdout, Stderr []byte

	// Wall is the time from the start of the command to the end of the guest.
	Wall time.Duration
	// User and System are the CPU time, and PeakMemory is the largest resident
	// size in bytes, of the command and of all its descendants that were
	// waited for. Those killed at the end of the guest do not count.
	User, System time.Duration
	PeakMemory   int64
}

// OK reports whether the exit code is 0.
func (r Result) OK() bool { return r.ExitCode == 0 }

// A Reason says why a run ended.
type Reason uint8

const (
	NotRun      Reason = iota // there was no run
	Exited                    // the command exited
	Signalled                 // a signal ended the command that this package did not send
	TimedOut                  // Profile.Timeout or the deadline of a context was over
	Stopped                   // Terminate, Kill, Close, or the end of a context
	OutputLimit               // more output than Profile.OutputLimit
	OutOfMemory               // the kernel killed the command, and it was short of memory
)

func (r Reason) String() string {
	return [...]string{"not run", "exited", "signalled", "timed out", "stopped", "output limit", "out of memory"}[r]
}

// A Stream tells standard output and standard error apart.
type Stream uint8

const (
	Stdout Stream = iota + 1
	Stderr
)

func (s Stream) String() string { return [...]string{"none", "stdout", "stderr"}[s] }

const (
	timedOutStatus = 124
	timedOutNote   = "\n[postern] timed out"
)
