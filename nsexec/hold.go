//go:build linux

package nsexec

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A holder is a process that has this one's memory as well, until this one has
// become another program. Taking memory down is the greater part of execve for a
// Go program, and falls to whoever lets go of it last.
type holder struct {
	pid int // 0: there is none, which costs only time
	mem *holderMemory
}

// A holderMemory is what the machine code knows of it, in this order.
type holderMemory struct {
	held  uint32 // the kernel clears it, and wakes the holder, when this thread has other memory
	_     uint32
	limit unix.Timespec // on waiting for that
	all   uint64        // signals, which the holder must not handle
	_     uint64        // signals that are blocked, in between
}

// holderLimit is how long a holder waits on a kernel that does not wake it.
const holderLimit = time.Second

func newHolder(limit time.Duration) *holder {
	h := &holder{mem: &holderMemory{held: 1, limit: unix.NsecToTimespec(int64(limit)), all: 1<<64 - 1}}
	h.pid = max(0, startHolder(h.mem))
	return h
}

// dismiss is for when this process stays what it is.
func (h *holder) dismiss() {
	if h.pid == 0 {
		return
	}
	unix.RawSyscall(unix.SYS_SET_TID_ADDRESS, 0, 0, 0)
	h.mem.held = 0
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&h.mem.held)), 1, 1, 0, 0, 0) // FUTEX_WAKE
	reapChild(h.pid)
	runtime.KeepAlive(h.mem)
}
