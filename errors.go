package postern

import (
	"errors"
	"fmt"
)

// Errors of this package, to be found with [errors.Is] in the ones returned.
var (
	// ErrUnsupported is the error of every launch on an operating system
	// other than Linux. It matches errors.ErrUnsupported.
	ErrUnsupported = fmt.Errorf("postern runs guests on Linux only: %w", errors.ErrUnsupported)
	// ErrClosed is the error of using a closed Sandbox or Process.
	ErrClosed = errors.New("postern: closed")
	// ErrConcurrentRead reports a second reader of a Process's output.
	ErrConcurrentRead = errors.New("postern: the output of this process is being read already")
)

// An IsolationError says that the wall around a guest could not be built, or
// is not the hardened one. The guest did not run.
type IsolationError struct {
	Reason string
	Err    error // what failed: a *nsexec.StartError, or of nsexec.Preflight
}

func (e *IsolationError) Error() string {
	if e.Err == nil {
		return "postern: " + e.Reason
	}
	return "postern: " + e.Reason + ": " + e.Err.Error()
}

// Unwrap returns what failed.
func (e *IsolationError) Unwrap() error { return e.Err }
