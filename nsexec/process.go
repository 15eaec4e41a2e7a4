//go:build linux

package nsexec

import (
	"context"
	"encoding/binary"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// A Process is a running guest. Its methods may be called from any goroutine.
//
// It owns two descriptors and one goroutine until the guest has ended. The
// goroutine then waits a moment more for the kernel to take the namespaces
// down.
type Process struct {
	pid      int
	pidfd    int
	held     bool // pidfd is open and belongs to our child
	control  *os.File
	terminal *os.File
	eof      bool
	linger   bool // the end of the program is the end of the process

	started    time.Time
	execErr    unix.Errno
	execStatus int

	mu     sync.Mutex // guards held and the closing of pidfd
	done   chan struct{}
	status Status
}

// A Status says how a guest ended.
type Status struct {
	// ExitCode is the program's exit status, or 128 + N if signal N ended it.
	ExitCode int
	// Signal ended the program, or is 0.
	Signal unix.Signal
	// Killed says that the whole guest was killed before its program ended.
	Killed bool
	// ExecErr is why the program could not be executed, or 0.
	ExecErr unix.Errno
	// Wall is the time from the start of the program to the guest's end.
	Wall time.Duration
	// User and System are the CPU time, and MaxRSS the largest resident size
	// in bytes, of everything in the guest that was waited for.
	User, System time.Duration
	MaxRSS       int64
}

// PID returns the process ID of the guest's init, or of its program if it has
// no init, as this process sees it. It is for display: use [Process.Signal].
func (p *Process) PID() int { return p.pid }

// Terminal returns the master side of the guest's pseudo-terminal, or nil. The
// caller closes it.
func (p *Process) Terminal() *os.File { return p.terminal }

// Done is closed when the guest has ended and nothing of it runs any more.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the guest ended, or the context's error if that comes
// first, in which case the guest goes on.
func (p *Process) Wait(ctx context.Context) (Status, error) {
	select {
	case <-p.done:
		return p.status, nil
	default:
	}
	select {
	case <-p.done:
		return p.status, nil
	case <-ctx.Done():
		return Status{}, context.Cause(ctx)
	}
}

// Signal sends a signal to the guest. Its init passes it on to the program's
// process group, except SIGKILL, which ends the guest at once. A guest that
// has ended returns [os.ErrProcessDone].
func (p *Process) Signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held {
		return os.ErrProcessDone
	}
	err := unix.PidfdSendSignal(p.pidfd, sig, nil, 0)
	if err == unix.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// Dup returns a pidfd of the guest's init that the caller owns.
func (p *Process) Dup() (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.held {
		return nil, os.ErrProcessDone
	}
	fd, err := unix.FcntlInt(uintptr(p.pidfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// wait follows the guest to its end.
func (p *Process) wait() {
	var st Status
	reported := false
	buf := make([]byte, 512)
	for !p.eof {
		n, _, err := recvmsg(p.control, buf, nil)
		if err != nil || n == 0 {
			break // the init is gone, or about to be
		}
		if rec, err := stage.ParseRecord(buf[:n]); err == nil && rec.Kind == stage.Exited {
			reported = true
			st.setWait(unix.WaitStatus(rec.A))
			st.setReported(buf[stage.RecordSize:n])
			break
		}
	}
	if reported && p.linger { // the rest of the guest is on its own
		p.finish(st)
		return
	}
	info, usage, err := waitPidfd(p.pidfd)
	switch {
	case err != nil && !reported: // reaped by somebody else in this process
		st = Status{ExitCode: 128 + int(unix.SIGKILL), Signal: unix.SIGKILL, Killed: true}
	case err == nil:
		st.setUsage(usage)
		if !reported {
			st.setInfo(info)
			st.Killed = st.Signal == unix.SIGKILL
		}
	}
	p.finish(st)
}

func (p *Process) finish(st Status) {
	if p.execErr != 0 {
		st.ExecErr = p.execErr
	}
	st.Wall = time.Since(p.started)
	p.control.Close()
	p.mu.Lock()
	p.held = false
	unix.Close(p.pidfd)
	p.status = st
	p.mu.Unlock()
	close(p.done)
}

func (st *Status) setWait(w unix.WaitStatus) {
	if w.Signaled() {
		st.Signal = w.Signal()
		st.ExitCode = 128 + int(w.Signal())
	} else {
		st.ExitCode = w.ExitStatus()
	}
}

// waitInfo is what waitid says of a child.
type waitInfo struct{ code, status int32 }

func (st *Status) setInfo(i waitInfo) {
	const cldExited = 1
	if i.code == cldExited {
		st.ExitCode = int(i.status)
	} else {
		st.Signal = unix.Signal(i.status)
		st.ExitCode = 128 + int(i.status)
	}
}

func (st *Status) setUsage(u unix.Rusage) {
	st.User = time.Duration(u.Utime.Nano())
	st.System = time.Duration(u.Stime.Nano())
	st.MaxRSS = int64(u.Maxrss) << 10
}

// setReported is setUsage for the struct rusage behind a record.
func (st *Status) setReported(b []byte) {
	if len(b) < pidone.RusageSize {
		return
	}
	word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	timeval := func(i int) time.Duration {
		return time.Duration(word(i))*time.Second + time.Duration(word(i+1))*time.Microsecond
	}
	st.User, st.System, st.MaxRSS = timeval(0), timeval(2), word(4)<<10
}

// waitPidfd reaps a child.
func waitPidfd(pidfd int) (waitInfo, unix.Rusage, error) {
	var info unix.Siginfo
	var usage unix.Rusage
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED, &usage)
		if err == unix.EINTR {
			continue
		}
		return siginfoChild(&info), usage, err
	}
}

// siginfoChild reads the part of a siginfo that describes a child: behind
// three numbers and padding come its PID, its user and the status.
func siginfoChild(info *unix.Siginfo) waitInfo {
	const statusOff = 24
	b := (*[128]byte)(unsafe.Pointer(info))
	return waitInfo{info.Code, int32(binary.LittleEndian.Uint32(b[statusOff:]))}
}
