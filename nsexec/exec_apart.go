//go:build linux

package nsexec

import (
	"fmt"
	"syscall"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// apart reports whether Exec starts the launch as a child and only then turns
// into the monitor. Replacing a process by another takes the kernel as long as
// a good part of a launch does, and this way both happen at once. It is for
// launches whose init is a child of the monitor from the start.
//
// A signal that comes while the monitor is not there yet, in the first
// milliseconds, does to the launcher what it would have done before the launch.
// With DieWithParent the guest ends with it; Forward begins with the monitor.
func (s *Spec) apart() bool {
	x := s.Launcher
	return s.Init && !x.linger() && !x.announces() && !x.belowPID() && !x.innerUser()
}

// execApart is Exec for such a launch.
func execApart(s *Spec, prog *stage.Program, fds []uintptr) error {
	told := int(fds[len(fds)-1])
	defer unix.Close(told)
	image, err := seal(prog)
	if err != nil {
		return err
	}
	defer image.Close()
	for _, fd := range fds {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("pass descriptor %d to the launch: %w", fd, err)
		}
	}
	path := fmt.Sprintf("/proc/self/fd/%d", image.Fd())
	pid, err := syscall.ForkExec(path, []string{s.Launcher.comm()}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return &StartError{Step: "execute the launch image", On: path, Errno: errnoOf(err), Hint: execHint(errnoOf(err))}
	}
	monitor, err := seal(apartMonitor(s, pid, told))
	if err == nil {
		err = become(monitor, s.Launcher.comm())
	}
	unix.Kill(pid, unix.SIGKILL)
	return err
}

// forkApart is what the stage does: start the init as its sibling, tell the
// monitor of it, do its part of the namespaces, and be gone.
func (c *compiler) forkApart(pid stage.Slot, child *stage.Label) {
	pidfd := c.Slot()
	c.ForkPidfd(pid, do(DoFork), unix.CLONE_PARENT|unix.CLONE_VM|unix.CLONE_PIDFD|int64(unix.SIGCHLD), stage.SlotAddr(pidfd), child)
	c.Sys(do("tell the monitor"), stage.Write, stage.FD(c.told), stage.SlotAddr(pid), stage.Imm(8))
	c.net.create(c, pidfd)
	c.net.joined(c, pidfd)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(0))
}

// apartMonitor waits for the init of the launch that the process pid has
// begun. The eventfd told has the init's PID when it exists.
func apartMonitor(s *Spec, pid, told int) *stage.Program {
	const (
		pollIn   = unix.POLLIN << 32
		happened = -1 << 48
	)
	x := s.Launcher
	b := &stage.Builder{}
	var (
		init, status, tmp = b.Slot(), b.Slot(), b.Slot()
		polls             = b.Slots(4) // SIGCHLD, the parent, the init's PID, other signals
		others            = b.Slot()
		info              = b.Mem(128)
		old               = b.Mem(8)
		step              = do("wait for the guest")
		loop, arrived     stage.Label
		reap, gone, child stage.Label
	)
	pidone.BlockSignals(b, old)
	const nobody = 1<<32 - 1 // poll passes over a negative number
	chld := stage.Blob("\x00\x00\x01\x00\x00\x00\x00\x00")
	rest := stage.Blob("\xff\xff\xfe\xff\xff\xff\xff\xff")
	b.Sys(do(DoNoNewPrivs), stage.Prctl, stage.Imm(unix.PR_SET_NO_NEW_PRIVS), stage.Imm(1), stage.Imm(0), stage.Imm(0), stage.Imm(0))
	b.Sys(doOn(DoName, x.comm()), stage.Prctl, stage.Imm(unix.PR_SET_NAME), stage.Str(x.comm()), stage.Imm(0), stage.Imm(0), stage.Imm(0))
	b.Try(stage.Discard, step, stage.CloseRange, stage.Imm(3), stage.Imm(told-1), stage.Imm(0))
	b.Try(stage.Discard, step, stage.CloseRange, stage.Imm(told+1), stage.Imm(1<<32-1), stage.Imm(0))
	signals := func(which stage.Blob, dst stage.Slot) {
		b.SysTo(tmp, step, stage.Signalfd4, stage.Imm(-1), which, stage.Imm(8), stage.Imm(unix.SFD_CLOEXEC))
		b.Add(dst, tmp, stage.Imm(pollIn))
	}
	signals(chld, polls)
	signals(rest, others)
	b.Move(polls+1, stage.Imm(nobody))
	b.Move(polls+3, stage.Imm(nobody))
	if x.DieWithParent && x.Parent > 0 {
		b.SysTo(tmp, step, stage.PidfdOpen, stage.Imm(x.Parent), stage.Imm(0))
		b.Add(polls+1, tmp, stage.Imm(pollIn))
		b.SysTo(tmp, step, stage.Getppid)
		b.If(stage.Jne, tmp, stage.Imm(x.Parent), &gone)
	}
	b.Move(polls+2, stage.Imm(int64(told)|pollIn))
	if !x.Forward { // signals do to the monitor what they did to the launcher
		b.Sys(step, stage.RtSigprocmask, stage.Imm(unix.SIG_SETMASK), old, stage.Imm(0), stage.Imm(8))
		b.Sys(step, stage.RtSigprocmask, stage.Imm(unix.SIG_BLOCK), chld, stage.Imm(0), stage.Imm(8))
	}

	// Children that have ended by now are not reported any more.
	var more stage.Label
	b.Jump(&more)
	b.Place(&loop)
	b.Try(tmp, step, stage.Ppoll, stage.SlotAddr(polls), stage.Imm(4), stage.Imm(0), stage.Imm(0), stage.Imm(8))
	b.If(stage.Jlt, tmp, stage.Imm(1), &loop)
	b.If(stage.Jset, polls+1, stage.Imm(happened), &gone)
	b.If(stage.Jset, polls+2, stage.Imm(happened), &arrived)
	b.If(stage.Jset, polls, stage.Imm(happened), &reap)
	b.And(tmp, polls+3, stage.Imm(0x7fffffff))
	b.Sys(step, stage.Read, tmp, info, stage.Imm(128))
	b.Load32(tmp, info, stage.Imm(0))
	b.Try(stage.Discard, do("forward a signal"), stage.Kill, init, tmp)
	b.Jump(&loop)

	b.Place(&arrived) // only now is there somebody to pass signals to
	b.Sys(step, stage.Read, stage.FD(told), stage.SlotAddr(init), stage.Imm(8))
	b.Move(polls+2, stage.Imm(nobody))
	b.Move(polls+3, others)
	b.Jump(&loop)

	b.Place(&reap)
	b.And(tmp, polls, stage.Imm(0x7fffffff))
	b.Sys(step, stage.Read, tmp, info, stage.Imm(128))
	b.Place(&more)
	b.Try(tmp, step, stage.Wait4, stage.Imm(-1), stage.SlotAddr(status), stage.Imm(unix.WNOHANG), stage.Imm(0))
	b.If(stage.Jlt, tmp, stage.Imm(1), &loop)
	b.If(stage.Jne, tmp, stage.Imm(pid), &child)
	b.If(stage.Jeq, status, stage.Imm(0), &more) // the stage has done its part
	b.Place(&child)
	pidone.ExitWith(b, status, tmp)

	b.Place(&gone)
	b.Place(&b.Fail)
	b.Sys(do("exit"), stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	return b.Program()
}
