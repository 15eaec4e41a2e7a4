package streamhatch

import (
	"errors"
	"fmt"
)

// An IsolationError says that a command of the host cannot have a PID namespace
// of its own here, so that nothing would make sure of ending what it starts.
type IsolationError struct {
	Err error // a *nsexec.StartError, or [errors.ErrUnsupported] away from Linux
}

func (e *IsolationError) Error() string {
	return fmt.Sprintf("streamhatch: commands cannot have a PID namespace of their own: %v", e.Err)
}

// Unwrap returns the cause.
func (e *IsolationError) Unwrap() error { return e.Err }

// A CommandError is a field of a [Command], or of the [os/exec.Cmd] that one is
// made from, which cannot be.
type CommandError struct {
	Field  string // "Stderr"
	Reason string
	Err    error // the cause, where there is one
}

func (e *CommandError) Error() string { return "streamhatch: Command." + e.Field + " " + e.Reason }

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Err }

// Errors of reading a preamble, found with [errors.Is]. A guest that is too slow
// makes [os.ErrDeadlineExceeded], and one that ends the stream early makes
// [io.ErrUnexpectedEOF].
var ErrTooLong = errors.New("streamhatch: the line is too long")
