//go:build linux

package nsexec

import (
	"fmt"
	"os"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// Events are the eventfds between the launch and the monitor of an Exec, or 0
// where there is nothing to say, and what both of them hold.
type events struct {
	init  int // the PID of the guest's first process, if that is not the launch's own
	up    int // the monitor takes signals, and has let go of the guest's descriptors
	ended int // 1 + the status of a program that may leave something behind
	limbo limbo
}

func (e *events) open(c *compiler) error {
	s, x := c.spec, c.spec.Launcher
	for _, want := range []struct {
		fd *int
		is bool
	}{{&e.init, c.forks()}, {&e.up, true}, {&e.ended, s.Init && x.linger()}} {
		if !want.is {
			continue
		}
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			e.close()
			return fmt.Errorf("make an eventfd for the launch: %w", err)
		}
		*want.fd = fd
	}
	if !c.splitsNet() || !s.Namespaces.Mount.fresh {
		return nil
	}
	if err := e.limbo.open(); err != nil {
		e.close()
		return err
	}
	return nil
}

func (e events) fds() []int {
	var fds []int
	for _, fd := range []int{e.init, e.up, e.ended, e.limbo[0], e.limbo[1]} {
		if fd != 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

func (e events) close() {
	for _, fd := range e.fds() {
		unix.Close(fd)
	}
}

// forks reports whether the guest's first process is another than the one the
// launch begins as.
func (c *compiler) forks() bool { return c.spec.Namespaces.PID != Share || c.splitsNet() }

// forkForMonitor is what the launch does if it forks: start the first process
// as its sibling, tell the monitor of it, do its part of the namespaces, and be
// gone.
func (c *compiler) forkForMonitor(pid stage.Slot, child *stage.Label) {
	pidfd := c.Slot()
	c.ForkPidfd(pid, do(DoFork), unix.CLONE_PARENT|unix.CLONE_VM|unix.CLONE_PIDFD|int64(unix.SIGCHLD), stage.SlotAddr(pidfd), child)
	c.Sys(do("tell the monitor"), stage.Write, stage.FD(c.events.init), stage.SlotAddr(pid), stage.Imm(8))
	c.net.apart(c, pid)
	c.events.limbo.inter(c) // before what the init waits for
	c.net.create(c)
	c.net.joined(c, pidfd)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(0))
}

// watchParent opens what the guest must watch to end with this process, or with
// the monitor that it becomes, which watches its own parent. A pidfd becomes
// readable when the process is gone, and there is no moment at which it misses
// that.
func (x *Launcher) watchParent(c *compiler) {
	// Where there is no monitor an init watches the control socket.
	if x == nil || !c.monitor && (!x.DieWithParent || c.spec.Init) {
		return
	}
	s := do("watch the parent process")
	ppid := c.Slot()
	var ours stage.Label
	parent := stage.Imm(os.Getpid())
	c.watched = c.watch(s, parent)
	c.SysTo(ppid, s, stage.Getppid)
	c.If(stage.Jeq, ppid, parent, &ours) // so the pidfd is no other process's
	c.Sys(s, stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	c.Place(&ours)
	if x.DieWithParent {
		c.alive = append(c.alive, c.watched)
	}
}

// watch opens a pidfd that becomes readable when the first thread of a process
// ends, with which its children lose their parent, and not only the last one.
// Before Linux 6.9 it is the last one.
func (c *compiler) watch(s stage.Step, pid stage.Arg) stage.Slot {
	var old, done stage.Label
	fd := c.Slot()
	c.SysOr(&old, fd, s, stage.PidfdOpen, pid, stage.Imm(unix.PIDFD_THREAD))
	c.Jump(&done)
	c.Place(&old)
	c.SysTo(fd, s, stage.PidfdOpen, pid, stage.Imm(0))
	c.Place(&done)
	return fd
}

// awaitMonitor waits until the monitor is ready, or never will be. Only then has
// it let go of the program's descriptors and takes signals.
func (c *compiler) awaitMonitor() {
	if !c.monitor {
		return
	}
	step := do("wait for the monitor")
	polls, r := c.Slots(2), c.Slot()
	var again stage.Label
	c.Move(polls, stage.Imm(int64(c.events.up)|unix.POLLIN<<32))
	c.Add(polls+1, c.watched, stage.Imm(unix.POLLIN<<32))
	c.Place(&again)
	c.Try(r, step, stage.Ppoll, stage.SlotAddr(polls), stage.Imm(2), stage.Imm(0), stage.Imm(0), stage.Imm(8))
	c.If(stage.Jlt, r, stage.Imm(1), &again)
	c.Try(stage.Discard, step, stage.Close, stage.FD(c.events.up))
	if !c.spec.Launcher.DieWithParent {
		c.Try(stage.Discard, step, stage.Close, c.watched)
	}
}

// awaitHelpers leaves nobody for others to reap: neither the stage nor the
// holder outlives the init by more than a moment, and both have mostly been
// reaped long before that.
func (c *compiler) awaitHelpers(pid stage.Slot) {
	reap := func(pid stage.Arg) {
		c.Try(stage.Discard, do("wait for the helpers"), stage.Wait4, pid, stage.Imm(0), stage.Imm(0), stage.Imm(0))
	}
	if c.forks() {
		reap(pid)
	}
	if c.holder != 0 {
		reap(stage.Imm(c.holder))
	}
}

// becomeMonitor starts the launch as a child and makes the process that does so
// its monitor: it waits for the guest, and perhaps for its own parent and for
// signals to forward. Others act on it as they did on the launcher.
func (c *compiler) becomeMonitor() {
	const (
		pollIn   = unix.POLLIN << 32
		happened = -1 << 48
		nobody   = 1<<32 - 1 // poll passes over a negative number
	)
	x, ev := c.spec.Launcher, c.events
	var (
		pid, init         = c.Slot(), c.Slot()
		status, tmp       = c.Slot(), c.Slot()
		polls             = c.Slots(5)
		children, parent  = polls, polls + 1
		first, ended      = polls + 2, polls + 3
		signals, others   = polls + 4, c.Slot()
		info              = c.Mem(128)
		step              = do("wait for the guest")
		loop, more, known stage.Label
		exit, gone, child stage.Label
	)
	c.Fork(pid, do(DoFork), unix.CLONE_VM|int64(unix.SIGCHLD), &child)
	c.Sys(do(DoNoNewPrivs), stage.Prctl, stage.Imm(unix.PR_SET_NO_NEW_PRIVS), stage.Imm(1), stage.Imm(0), stage.Imm(0), stage.Imm(0))
	c.name(x.comm())
	if c.spec.Namespaces.PID.fresh {
		var keep CapSet
		if c.spec.HostUser != nil && x.Forward { // the guest is another user's
			keep = permitted() & capKill
		}
		c.Sys(do(DoCaps), stage.Capset, capHeader(), capData(keep, keep, 0))
	} // else the guest sees it, and only having more rights keeps that from tracing it
	closeAllBut(c.Builder, 3, ev.fds())

	for _, p := range []stage.Slot{children, parent, first, ended, signals, others} {
		c.Move(p, stage.Imm(nobody))
	}
	watch := func(dst stage.Slot, fd stage.Arg) { c.Add(dst, fd, stage.Imm(pollIn)) }
	chld := stage.Blob("\x00\x00\x01\x00\x00\x00\x00\x00")
	rest := stage.Blob("\xff\xff\xfe\xff\xff\xff\xff\xff")
	c.SysTo(tmp, step, stage.Signalfd4, stage.Imm(-1), chld, stage.Imm(8), stage.Imm(unix.SFD_CLOEXEC))
	watch(children, tmp)
	if x.DieWithParent && x.Parent > 0 {
		c.SysOr(&gone, tmp, step, stage.PidfdOpen, stage.Imm(x.Parent), stage.Imm(0))
		watch(parent, tmp)
		c.SysTo(tmp, step, stage.Getppid)
		c.If(stage.Jne, tmp, stage.Imm(x.Parent), &gone)
	} else if x.DieWithParent { // it is in another PID namespace, where it cannot be watched
		c.Sys(do("ask to die with the parent"), stage.Prctl, stage.Imm(unix.PR_SET_PDEATHSIG), stage.Imm(int64(unix.SIGKILL)), stage.Imm(0), stage.Imm(0), stage.Imm(0))
	}
	if ev.ended != 0 {
		watch(ended, stage.FD(ev.ended))
	}
	if x.Forward {
		c.SysTo(tmp, step, stage.Signalfd4, stage.Imm(-1), rest, stage.Imm(8), stage.Imm(unix.SFD_CLOEXEC))
		watch(others, tmp)
	} else { // signals do to the monitor what they did to the launcher
		c.Sys(step, stage.RtSigprocmask, stage.Imm(unix.SIG_SETMASK), c.oldMask, stage.Imm(0), stage.Imm(8))
		c.Sys(step, stage.RtSigprocmask, stage.Imm(unix.SIG_BLOCK), chld, stage.Imm(0), stage.Imm(8))
	}
	c.Sys(step, stage.Write, stage.FD(ev.up), stage.Blob("\x01\x00\x00\x00\x00\x00\x00\x00"), stage.Imm(8))
	if c.forks() {
		watch(first, stage.FD(ev.init))
	} else {
		c.Move(init, pid)
		c.Move(signals, others)
	}

	// Children that have ended by now are not reported any more.
	c.Jump(&more)
	c.Place(&loop)
	c.Try(tmp, step, stage.Ppoll, stage.SlotAddr(polls), stage.Imm(5), stage.Imm(0), stage.Imm(0), stage.Imm(8))
	c.If(stage.Jlt, tmp, stage.Imm(1), &loop)
	c.If(stage.Jset, parent, stage.Imm(happened), &gone)
	when := func(poll stage.Slot, f func()) {
		var not stage.Label
		c.And(tmp, poll, stage.Imm(happened))
		c.If(stage.Jeq, tmp, stage.Imm(0), &not)
		f()
		c.Place(&not)
	}
	when(ended, func() { // whatever else is left is on its own
		c.Sys(step, stage.Read, stage.FD(ev.ended), stage.SlotAddr(status), stage.Imm(8))
		c.Add(tmp, status, stage.Imm(-1))
		c.awaitHelpers(pid)
		c.Sys(do("exit"), stage.ExitGroup, tmp)
	})
	when(first, func() { // only now is there somebody to pass signals to
		c.Sys(step, stage.Read, stage.FD(ev.init), stage.SlotAddr(init), stage.Imm(8))
		c.Move(first, stage.Imm(nobody))
		c.Move(signals, others)
		c.Jump(&more)
	})
	when(signals, func() {
		c.And(tmp, signals, stage.Imm(0x7fffffff))
		c.Sys(step, stage.Read, tmp, info, stage.Imm(128))
		c.Load32(tmp, info, stage.Imm(0))
		c.Try(stage.Discard, do("forward a signal"), stage.Kill, init, tmp)
		c.Jump(&loop)
	})
	c.And(tmp, children, stage.Imm(0x7fffffff))
	c.Sys(step, stage.Read, tmp, info, stage.Imm(128))
	c.Place(&more)
	c.If(stage.Jne, init, stage.Imm(0), &known)
	c.Try(tmp, step, stage.Wait4, pid, stage.SlotAddr(status), stage.Imm(unix.WNOHANG), stage.Imm(0))
	c.If(stage.Jlt, tmp, stage.Imm(1), &loop)
	c.If(stage.Jne, status, stage.Imm(0), &exit)
	c.Jump(&loop) // it has done its part
	c.Place(&known)
	c.Try(tmp, step, stage.Wait4, stage.Imm(-1), stage.SlotAddr(status), stage.Imm(unix.WNOHANG), stage.Imm(0))
	c.If(stage.Jlt, tmp, stage.Imm(1), &loop)
	c.If(stage.Jeq, tmp, init, &exit)
	// Others may be children of whatever this process was before it became the launcher.
	c.If(stage.Jne, tmp, pid, &more)
	c.If(stage.Jeq, status, stage.Imm(0), &more)
	c.Place(&exit)
	c.awaitHelpers(pid)
	pidone.ExitWith(c.Builder, status, tmp)

	c.Place(&gone)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	c.Place(&child)
}
