//go:build linux

package nsexec

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// fileLimits is what the runtime keeps to itself: it has raised this process's
// soft limit on descriptors, and gives its children the one before.
var fileLimits struct {
	sync.Mutex
	ours, children unix.Rlimit
}

// childLimit returns the limit on descriptors that children are to have, or nil
// if it is this process's.
func childLimit() (*unix.Rlimit, error) {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return nil, err
	}
	if now.Cur != now.Max-1 { // not, or no longer, what the runtime makes of it
		return nil, nil
	}
	fileLimits.Lock()
	defer fileLimits.Unlock()
	if fileLimits.ours != now {
		children, err := askChild()
		if err != nil {
			return nil, fmt.Errorf("ask a child for its limit on descriptors: %w", err)
		}
		fileLimits.ours, fileLimits.children = now, children
	}
	children := fileLimits.children
	return &children, nil
}

// askChild returns the limit that a child of the runtime's has.
func askChild() (l unix.Rlimit, err error) {
	var b stage.Builder
	step := do("tell the limit")
	limit := b.Slots(2)
	b.Try(stage.Discard, step, stage.Prlimit64, stage.Imm(0), stage.Imm(unix.RLIMIT_NOFILE), stage.Imm(0), stage.SlotAddr(limit))
	b.Try(stage.Discard, step, stage.Write, stage.FD(0), stage.SlotAddr(limit), stage.Imm(16))
	b.Try(stage.Discard, step, stage.ExitGroup, stage.Imm(0))
	linked, err := b.Program().Image()
	if err != nil {
		return l, err
	}
	image, err := stage.Seal("postern-limit", linked)
	if err != nil {
		return l, err
	}
	defer image.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return l, err
	}
	defer r.Close()
	// Descriptor 0 is the pipe there.
	high, err := unix.FcntlInt(image.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		var pid int
		pid, err = syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", high), []string{"limit"}, &syscall.ProcAttr{Files: []uintptr{w.Fd()}})
		unix.Close(high)
		if err == nil {
			defer reapChild(pid)
		}
	}
	w.Close()
	if err != nil {
		return l, err
	}
	var told [16]byte
	if _, err := io.ReadFull(r, told[:]); err != nil {
		return l, err
	}
	return unix.Rlimit{Cur: binary.NativeEndian.Uint64(told[:]), Max: binary.NativeEndian.Uint64(told[8:])}, nil
}
