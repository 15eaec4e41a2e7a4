package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"
)

// ErrUnsupported is returned by [Open] on a system without the descriptor-relative
// calls this package is made of. It matches [errors.ErrUnsupported].
var ErrUnsupported = fmt.Errorf("workspace: this operating system has no openat: %w", errors.ErrUnsupported)

// ErrClosed is returned by every method of a closed [Workspace]. It matches [fs.ErrClosed].
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string        { return "workspace is closed" }
func (closedError) Is(target error) bool { return target == fs.ErrClosed }

// Reason says why the workspace would not touch something, or what it did to it.
// It is an error, so errors.Is(err, workspace.Symlink) works on whatever this
// package returns; it also matches [fs.ErrPermission] or [fs.ErrInvalid], and
// the errno a kernel would have given.
type Reason string

const (
	Escape       Reason = "escaping-name" // an absolute name, or one with a ".." component
	BadName      Reason = "bad-name"      // a name no file system takes: NUL, or an over-long component
	Symlink      Reason = "symlink"       // a symbolic link, as the last or any other component
	FIFO         Reason = "fifo"
	Socket       Reason = "socket"
	Device       Reason = "device"     // a block or character device
	Special      Reason = "special"    // any other thing that is no regular file and no directory
	Hardlink     Reason = "hardlink"   // a file that may have names outside the workspace
	Mount        Reason = "mount"      // something mounted inside the workspace
	Unreadable   Reason = "unreadable" // gone, changed or unreadable when its turn came
	Torn         Reason = "torn"       // changed its size, or failed, while it was being read
	Setuid       Reason = "setuid"
	Setgid       Reason = "setgid"
	Capability   Reason = "capability"      // file capabilities
	Directory    Reason = "directory"       // a directory where a file was wanted
	NotDirectory Reason = "not-a-directory" // something else where a directory was wanted
)

var reasons = map[Reason]struct {
	text  string
	errno syscall.Errno
	class error
}{
	Escape:       {"escapes the workspace", syscall.EXDEV, fs.ErrInvalid},
	BadName:      {"is not a file name", syscall.EINVAL, fs.ErrInvalid},
	Symlink:      {"is, or leads through, a symbolic link; none is ever followed", syscall.ELOOP, fs.ErrPermission},
	FIFO:         {"is a FIFO, not a regular file", syscall.ENXIO, fs.ErrPermission},
	Socket:       {"is a socket, not a regular file", syscall.ENXIO, fs.ErrPermission},
	Device:       {"is a device, not a regular file", syscall.ENXIO, fs.ErrPermission},
	Special:      {"is not a regular file", syscall.ENXIO, fs.ErrPermission},
	Hardlink:     {"has other names (hard links) that may lie outside the workspace", syscall.EMLINK, fs.ErrPermission},
	Mount:        {"is, or leads through, a mount point; none is ever crossed", syscall.EXDEV, fs.ErrPermission},
	Unreadable:   {"vanished or changed while it was being opened", syscall.EAGAIN, nil},
	Torn:         {"changed its size while it was being read", syscall.EAGAIN, nil},
	Setuid:       {"has the set-user-ID bit", syscall.EPERM, fs.ErrPermission},
	Setgid:       {"has the set-group-ID bit", syscall.EPERM, fs.ErrPermission},
	Capability:   {"has file capabilities", syscall.EPERM, fs.ErrPermission},
	Directory:    {"is a directory", syscall.EISDIR, nil},
	NotDirectory: {"exists and is not a directory", syscall.ENOTDIR, nil},
}

func (r Reason) Error() string { return reasons[r].text }

// Is reports whether target is the class or the errno that r stands for.
func (r Reason) Is(target error) bool {
	d := reasons[r]
	return target == d.errno || d.class != nil && target == d.class
}

// Error is what the methods of this package return. Path is the name inside the
// workspace ("." for its root), never a host path. Err is a [Reason] for a
// refusal, [ErrClosed], a [*LimitError], or the errno.
//
// An Error can be had as a [*fs.PathError] with [errors.As].
type Error struct {
	Op   string
	Path string
	Err  error
}

// Error gives the text. The path is quoted and capped, since a guest chose it.
func (e *Error) Error() string {
	return fmt.Sprintf("workspace: %s %s: %v", e.Op, quote(e.Path), e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// As lets code that knows only the standard library have the error as a *fs.PathError.
func (e *Error) As(target any) bool {
	p, ok := target.(**fs.PathError)
	if ok {
		*p = &fs.PathError{Op: e.Op, Path: e.Path, Err: e.Err}
	}
	return ok
}

// LimitError is returned when a limit would be exceeded by the next step; that
// step is not taken.
type LimitError struct {
	What  string // "archive", "file", "workspace"
	Limit string // the limit's name, such as "max_bytes"
	Max   int64
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%s exceeds %s=%d", e.What, e.Limit, e.Max)
}

const maxQuoted = 200

func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.QuoteToASCII(s[:maxQuoted]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// wrap gives err the operation and the name, unless it has them already.
func wrap(op, path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*Error); ok {
		return err
	}
	if path == "" {
		path = "."
	}
	return &Error{Op: op, Path: path, Err: err}
}
