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
	poll     *os.File // the same, for the runtime's poller; it owns it
	held     bool     // pidfd is open and belongs to our child
	control  socket
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

// Done is closed when the guest has ended and nothing of it runs any more. File
// systems that were mounted in it may still be in use for some milliseconds.
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

// wait follows the guest to its end. Everything it says is read only then, so
// that the host is woken once.
func (p *Process) wait() {
	var st Status
	if p.linger { // the rest of the guest is on its own
		if p.reported(&st, true) {
			p.finish(st)
			return
		}
	}
	info, usage, err := p.reap()
	reported := !p.eof && p.reported(&st, false)
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

// reported reads what the init says of the program's end, if it has said it.
func (p *Process) reported(st *Status, wait bool) bool {
	for {
		rec, err := p.control.receive(wait)
		if err != nil {
			return false // the init is gone, or about to be
		}
		if rec.Kind == stage.Exited {
			st.setWait(unix.WaitStatus(rec.A))
			st.setReported(rec.rest)
			return true
		}
	}
}

func (p *Process) finish(st Status) {
	if p.execErr != 0 {
		st.ExecErr = p.execErr
	}
	st.Wall = time.Since(p.started)
	p.control.Close()
	p.mu.Lock()
	p.held = false
	p.poll.Close()
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

// reap waits for the end of the init without keeping a thread.
func (p *Process) reap() (info waitInfo, usage unix.Rusage, err error) {
	conn, err := p.poll.SyscallConn()
	if err != nil {
		return awaitPidfd(p.pidfd)
	}
	var ended bool
	cerr := conn.Read(func(fd uintptr) bool {
		info, usage, ended, err = reapPidfd(int(fd))
		return ended || err != nil
	})
	if cerr != nil {
		return awaitPidfd(p.pidfd)
	}
	return info, usage, err
}

// awaitPidfd waits for the end of a child and reaps it.
func awaitPidfd(pidfd int) (waitInfo, unix.Rusage, error) {
	for {
		if info, usage, ended, err := reapPidfd(pidfd); ended || err != nil {
			return info, usage, err
		}
		unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, -1)
	}
}

// reapPidfd reaps a child if it has ended.
func reapPidfd(pidfd int) (_ waitInfo, usage unix.Rusage, ended bool, err error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PIDFD, pidfd, &info, unix.WEXITED|unix.WNOHANG, &usage)
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return waitInfo{}, usage, false, nil
		}
		return siginfoChild(&info), usage, info.Signo != 0, err
	}
}

// siginfoChild reads the part of a siginfo that describes a child: behind
// three numbers and padding come its PID, its user and the status.
func siginfoChild(info *unix.Siginfo) waitInfo {
	const statusOff = 24
	b := (*[128]byte)(unsafe.Pointer(info))
	return waitInfo{info.Code, int32(binary.LittleEndian.Uint32(b[statusOff:]))}
}
