// Package hatch is the seam between a sandbox and what it can reach: the only
// openings in the wall.
//
// A [Hatch] is a Unix socket that the host serves and a sandbox binds in. The
// guest finds it at [GuestPath], a name that [EnvVar] tells it. What a hatch
// lets through is the hatch's own business: package grpchatch serves typed
// calls from an allowlist, package streamhatch gives each connection to a command
// of the host.
//
// [Socket] is what hatches are made of: a listening socket in a private place,
// open while a run needs it, with a bound on what a hostile client can hold.
package hatch

import "errors"

// Hatch is one opening in the wall. The host makes it, gives it to any number
// of sandboxes, and closes it when done.
//
// Its methods are safe for concurrent use.
type Hatch interface {
	// Name tells the hatches of a sandbox apart. The one that has "" is the
	// unnamed hatch. See [CheckName].
	Name() string

	// SocketPath is the absolute path of the socket on the host. The socket is
	// there, and listening, from the making of the hatch until Close, so it
	// can be bound into a sandbox before Serve.
	SocketPath() string

	// Serve opens the hatch for one run, and stop ends that. Any number of
	// runs may be open at once, and one after the other; connections are
	// served while at least one is. When the last stops, the connections
	// there are get closed; further ones wait in the kernel's backlog. stop may
	// be called more than once and does not wait for what served them.
	//
	// After Close, the error is ErrClosed.
	Serve() (stop func(), err error)

	// Close ends the hatch for good: it closes the connections, waits for
	// what served them as far as the hatch promises to, and removes the socket.
	// Further calls do nothing and return nil.
	Close() error
}

// Errors of this package, found with [errors.Is] inside the ones returned.
var (
	ErrInvalidName = errors.New("invalid hatch name")
	ErrDuplicate   = errors.New("duplicate hatch")
	ErrPathTooLong = errors.New("socket path too long")
	ErrInUse       = errors.New("socket path in use")
	ErrClosed      = errors.New("hatch is closed")
)
