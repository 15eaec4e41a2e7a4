//go:build linux

package nsexec

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors are what a launch is started with.
type descriptors struct {
	placed []uintptr // by the number that each is to have
	kept   []uintptr // passed on under the numbers they have
}

// A spawn starts another program as syscall.ForkExec does, in less time: by a
// child without handlers of signals, so that it need not reset them, and
// without a pipe for its failure. What was set for this process is kept: the
// signals it ignores, those that the calling thread blocks, and the limit on
// descriptors that it had before the runtime raised it.
type spawn struct {
	how   [8]uint64 // struct clone_args
	child child
	calls []call
	path  *byte
	argv  [2]*byte
	envp  [1]*byte
	limit unix.Rlimit
	reset signalAction
}

// A signalAction is struct sigaction of the kernel.
type signalAction struct{ handler, flags, restorer, mask uint64 }

const (
	vfork            = unix.CLONE_VM | unix.CLONE_VFORK
	sigactionDefault = 0
	sigactionIgnore  = 1
)

// spawnImage executes an image under a name and without an environment. It
// returns when that has begun.
func spawnImage(image uintptr, name string, files descriptors) (pid int, err error) {
	argv0, err := unix.BytePtrFromString(name)
	if err != nil {
		return 0, err
	}
	s := &spawn{path: new(byte), argv: [2]*byte{argv0}}
	const flags, exitSignal = 0, 4
	s.how[flags], s.how[exitSignal] = vfork|unix.CLONE_CLEAR_SIGHAND, uint64(unix.SIGCHLD)
	s.child = child{clone: [3]uint{unix.SYS_CLONE3, at(&s.how), uint(unsafe.Sizeof(s.how))}, all: allSignals}
	limit, err := childLimit()
	if err != nil {
		return 0, err
	}
	s.calls = make([]call, 0, 16)
	s.call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, at(&s.child.blocked), 0, 8)
	for n, fd := range files.placed {
		if fd == uintptr(n) {
			s.call(unix.SYS_FCNTL, uint(fd), unix.F_SETFD, 0)
		} else {
			s.call(unix.SYS_DUP3, uint(fd), uint(n), 0)
		}
	}
	for _, fd := range files.kept {
		s.call(unix.SYS_FCNTL, uint(fd), unix.F_SETFD, 0)
	}
	if limit != nil {
		s.limit = *limit
		s.call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, at(&s.limit), 0)
	}
	s.call(unix.SYS_EXECVEAT, uint(image), at(s.path), at(&s.argv[0]), at(&s.envp[0]), unix.AT_EMPTY_PATH)
	s.child.calls = &s.calls[0]

	// Nobody may be between making a descriptor and marking it close-on-exec.
	syscall.ForkLock.Lock()
	pid = startChild(&s.child)
	if pid == -int(unix.ENOSYS) { // as sandboxes would have it that cannot look into clone3
		s.withoutClone3()
		pid = startChild(&s.child)
	}
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(s)
	if pid < 0 {
		return 0, unix.Errno(-pid)
	}
	if e := s.child.failed; e != 0 {
		reapChild(pid)
		return 0, unix.Errno(-e)
	}
	return pid, nil
}

func (s *spawn) call(number uint, args ...uint) { s.calls = append(s.calls, newCall(number, args...)) }

// withoutClone3 has the child reset the handlers of signals.
func (s *spawn) withoutClone3() {
	var reset []call
	for sig := uint(1); sig <= 64; sig++ {
		var was signalAction
		_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&was)), 8, 0, 0)
		if e == 0 && was.handler != sigactionDefault && was.handler != sigactionIgnore {
			reset = append(reset, newCall(unix.SYS_RT_SIGACTION, sig, at(&s.reset), 0, 8))
		}
	}
	s.calls = append(reset, s.calls...)
	s.child.calls = &s.calls[0]
	s.child.clone = [3]uint{unix.SYS_CLONE, vfork | uint(unix.SIGCHLD)}
}
