//go:build linux

package nsexec

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A holder is a process that has this one's memory as well, until this one has
// become another program. Taking memory down is the greater part of execve for a
// Go program, and falls to whoever lets go of it last.
type holder struct {
	pid   int    // 0: there is none, which costs only time
	held  uint32 // the kernel clears it, and wakes the holder, when this thread has other memory
	limit unix.Timespec
	calls [2]call
	child child
}

// holderLimit is how long a holder waits on a kernel that does not wake it.
const holderLimit = time.Second

func newHolder(limit time.Duration) *holder {
	h := &holder{held: 1, limit: unix.NsecToTimespec(int64(limit))}
	h.calls = [2]call{
		newCall(unix.SYS_FUTEX, at(&h.held), futexWait, 1, at(&h.limit)),
		newCall(unix.SYS_EXIT_GROUP),
	}
	h.child = child{calls: &h.calls[0], clone: [3]uint{unix.SYS_CLONE, unix.CLONE_VM | uint(unix.SIGCHLD)}, all: allSignals}
	unix.RawSyscall(unix.SYS_SET_TID_ADDRESS, uintptr(at(&h.held)), 0, 0)
	h.pid = max(0, startChild(&h.child))
	return h
}

const (
	futexWait = 0
	futexWake = 1
)

// dismiss is for when this process stays what it is.
func (h *holder) dismiss() {
	if h.pid == 0 {
		return
	}
	unix.RawSyscall(unix.SYS_SET_TID_ADDRESS, 0, 0, 0)
	h.held = 0
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(at(&h.held)), futexWake, 1, 0, 0, 0)
	reapChild(h.pid)
	runtime.KeepAlive(h)
}
