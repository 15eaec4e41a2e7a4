package seccompbpf

import "fmt"

// An Action is what the kernel does with a syscall: the value a seccomp filter returns. The zero
// Action kills, so a forgotten field denies.
type Action uint32

const (
	// KillThread ends the calling thread only. Other threads live on, usually in a deadlock.
	KillThread Action = 0x00000000
	// KillProcess ends the whole process as by SIGSYS.
	KillProcess Action = 0x80000000
	// Trap does not run the call and sends the thread a SIGSYS that it can handle.
	Trap Action = 0x00030000
	// Log runs the call, and writes a line to the kernel's audit log first. It denies nothing.
	Log Action = 0x7ffc0000
	// Allow runs the call.
	Allow Action = 0x7fff0000

	// EPERM does not run the call: it fails with "operation not permitted".
	EPERM = actionErrno | 1
	// ENOSYS does not run the call: it fails with "function not implemented", which makes
	// programs fall back to an older call.
	ENOSYS = actionErrno | 38
)

const (
	actionErrno Action = 0x00050000
	actionTrace Action = 0x7ff00000
	actionUser  Action = 0x7fc00000

	actionMask Action = 0xffff0000
)

// maxErrno is the greatest that a syscall can return.
const maxErrno = 4095

// Errno returns the Action that does not run the call and fails it with the Linux error number n,
// at most 4095. With n = 0 the call seems to succeed. Error numbers of Linux differ from those
// in package syscall on other systems.
func Errno(n uint16) Action { return actionErrno | Action(n) }

// Errno reports the error number the call fails with, if that is what the Action does.
func (a Action) Errno() (n uint16, ok bool) {
	return uint16(a), a&actionMask == actionErrno
}

// permits reports whether the kernel runs the call.
func (a Action) permits() bool { return a == Allow || a == Log }

// errnoNames are those that policies use.
var errnoNames = [...]string{
	1: "EPERM", 2: "ENOENT", 13: "EACCES", 22: "EINVAL", 25: "ENOTTY", 38: "ENOSYS",
	93: "EPROTONOSUPPORT", 95: "EOPNOTSUPP", 97: "EAFNOSUPPORT",
}

// String returns "allow", "kill-process" and so on, or the name of the errno.
func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Log:
		return "log"
	case KillProcess:
		return "kill-process"
	case KillThread:
		return "kill-thread"
	}
	data := uint16(a)
	switch a & actionMask {
	case actionErrno:
		if int(data) < len(errnoNames) && errnoNames[data] != "" {
			return errnoNames[data]
		}
		return fmt.Sprintf("errno(%d)", data)
	case Trap:
		return fmt.Sprintf("trap(%d)", data)
	case actionTrace:
		return fmt.Sprintf("trace(%d)", data)
	case actionUser:
		return "user-notify"
	}
	return fmt.Sprintf("action(%#x)", uint32(a))
}
