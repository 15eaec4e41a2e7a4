//go:build linux

package nsexec

import (
	"encoding/binary"
	"slices"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

const initName = "postern-init"

// A Launcher is what a program that launches others on the command line wants
// from a launch beyond what a library does.
type Launcher struct {
	// Comm names the init, and the monitor of Exec.
	Comm string
	// Prefix starts every message of a failed Exec, FailStatus is its exit
	// status. Phrase, if set, words the failed step; the errno's text follows.
	Prefix     string
	FailStatus int
	Phrase     func(do, on string) string
	// ExecPrefix starts the message about a program that cannot be executed.
	// ExecStatus, if not zero, is the exit status then, instead of 127 and 126.
	ExecPrefix string
	ExecStatus int

	// Forward passes signals sent to the monitor and the init on to the
	// program's process group. A launch without a Launcher always does.
	Forward bool
	// DieWithParent ends the guest when the process that launched the caller
	// ends, or the monitor. Without a PID namespace of its own only the
	// program itself is ended, not what it started.
	DieWithParent bool
	// Parent is the process DieWithParent watches, as seen when the launcher
	// started.
	Parent int

	// Inherited are descriptors that only the program is to have: the monitor
	// and the init close them.
	Inherited []int
	// Sync are descriptors the init keeps open and the program does not get.
	Sync []int
	// Locks are files inside the guest on which the init holds a read lock.
	Locks []string
	// Block is a descriptor to read a byte from before the program starts, if
	// not nil. End of file or an error lets it start too.
	Block *int
}

// reaper reports whether the launch needs an init-like parent for the program
// even without a PID namespace.
func (x *Launcher) reaper() bool { return x != nil && len(x.Sync)+len(x.Locks) > 0 }

func (x *Launcher) comm() string {
	if x == nil || x.Comm == "" {
		return initName
	}
	return x.Comm
}

// failure words a failed step for the program to print.
func (x *Launcher) failure(s stage.Step) string {
	if x.Phrase == nil {
		return x.Prefix + s.String()
	}
	return x.Prefix + x.Phrase(s.Do, s.On)
}

// watchParent opens what the init must watch to end with the monitor and its
// parent. A pidfd becomes readable when the process is gone, whichever of its
// threads forked, and there is no moment at which it misses that.
func (x *Launcher) watchParent(c *compiler) {
	if x == nil || !x.DieWithParent || !c.spec.Init {
		return
	}
	s := stage.Step{Do: "watch the parent process"}
	watch := func(pid stage.Arg) {
		fd := c.Slot()
		c.SysTo(fd, s, stage.PidfdOpen, pid, stage.Imm(0))
		c.alive = append(c.alive, fd)
	}
	if c.monitor {
		self := c.Slot()
		c.SysTo(self, s, stage.Getpid)
		watch(self)
	}
	if x.Parent > 0 {
		watch(stage.Imm(x.Parent))
	}
}

// dieWithParent is DieWithParent for a launch without an init.
func (x *Launcher) dieWithParent(c *compiler) {
	if x == nil || !x.DieWithParent {
		return
	}
	c.pdeathsig()
	if c.spec.Namespaces.PID == Share && !c.monitor && x.Parent > 0 {
		c.orphanCheck(stage.Imm(x.Parent))
	}
}

func (c *compiler) pdeathsig() {
	c.Sys(stage.Step{Do: "ask to die with the parent"}, stage.Prctl, stage.Imm(unix.PR_SET_PDEATHSIG), stage.Imm(int64(unix.SIGKILL)), stage.Imm(0), stage.Imm(0), stage.Imm(0))
}

// orphanCheck ends the process if it has lost its parent before it could ask
// to be told.
func (c *compiler) orphanCheck(parent stage.Arg) {
	ppid := c.Slot()
	var ok stage.Label
	s := stage.Step{Do: "check the parent process"}
	c.SysTo(ppid, s, stage.Getppid)
	c.If(stage.Jeq, ppid, parent, &ok)
	c.Sys(s, stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	c.Place(&ok)
}

// monitor is what the process that was the launcher does while the guest runs.
func (x *Launcher) monitor(c *compiler, pid stage.Slot) {
	var (
		status = c.Slot()
		tmp    = c.Slot()
		wait   stage.Label
		gone   stage.Label
		step   = stage.Step{Do: "wait for the guest"}
	)
	if x.DieWithParent && x.Parent > 0 {
		c.pdeathsig()
		c.orphanCheck(stage.Imm(x.Parent))
	}
	c.name(x.comm())
	if x.Forward {
		x.forwardingMonitor(c, pid, status, tmp)
		return
	}
	c.Sys(step, stage.RtSigprocmask, stage.Imm(unix.SIG_SETMASK), c.oldMask, stage.Imm(0), stage.Imm(8))
	c.Sys(step, stage.CloseRange, stage.Imm(3), stage.Imm(1<<32-1), stage.Imm(0))
	c.Place(&wait)
	c.Try(tmp, step, stage.Wait4, pid, stage.SlotAddr(status), stage.Imm(0), stage.Imm(0))
	c.If(stage.Jeq, tmp, stage.Imm(-int64(unix.EINTR)), &wait)
	c.If(stage.Jlt, tmp, stage.Imm(0), &gone)
	pidone.ExitWith(c.Builder, status, tmp)
	c.Place(&gone)
	c.Sys(step, stage.ExitGroup, stage.Imm(1))
}

func (x *Launcher) forwardingMonitor(c *compiler, pid, status, tmp stage.Slot) {
	var (
		sigfd      = c.Slot()
		info       = c.Mem(128)
		loop, reap stage.Label
		step       = stage.Step{Do: "wait for the guest"}
		all        = stage.Blob("\xff\xff\xff\xff\xff\xff\xff\xff")
	)
	c.Sys(step, stage.CloseRange, stage.Imm(3), stage.Imm(1<<32-1), stage.Imm(0))
	c.SysTo(sigfd, step, stage.Signalfd4, stage.Imm(-1), all, stage.Imm(8), stage.Imm(unix.SFD_CLOEXEC))
	c.Place(&loop)
	c.Sys(step, stage.Read, sigfd, info, stage.Imm(128))
	c.Load32(tmp, info, stage.Imm(0))
	c.If(stage.Jeq, tmp, stage.Imm(int64(unix.SIGCHLD)), &reap)
	c.Try(stage.Discard, stage.Step{Do: "forward a signal"}, stage.Kill, pid, tmp)
	c.Jump(&loop)
	c.Place(&reap)
	c.Try(tmp, step, stage.Wait4, stage.Imm(-1), stage.SlotAddr(status), stage.Imm(unix.WNOHANG), stage.Imm(0))
	c.If(stage.Jlt, tmp, stage.Imm(1), &loop)
	c.If(stage.Jne, tmp, pid, &reap)
	pidone.ExitWith(c.Builder, status, tmp)
}

// lock takes the read locks, which belong to the init and end with it.
func (x *Launcher) lock(c *compiler) {
	if x == nil {
		return
	}
	for _, path := range x.Locks {
		fd := c.scratch()
		if c.spec.Terminal {
			fd = c.Slot()
		}
		s := doOn(DoLock, path)
		flock := make([]byte, 32) // the whole file
		binary.LittleEndian.PutUint16(flock, unix.F_RDLCK)
		c.SysTo(fd, s, stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str(path), stage.Imm(unix.O_RDONLY|unix.O_CLOEXEC), stage.Imm(0))
		c.Sys(s, stage.Fcntl, fd, stage.Imm(unix.F_SETLK), stage.Blob(flock))
	}
}

// detach leaves the program's descriptors to the program.
func (x *Launcher) detach(c *compiler) {
	if x == nil {
		return
	}
	for _, fd := range x.Inherited {
		if !slices.Contains(x.Sync, fd) {
			c.Try(stage.Discard, do(DoClose), stage.Close, stage.FD(fd))
		}
	}
}

func (x *Launcher) beforeExec(c *compiler) {
	if x == nil {
		return
	}
	if x.DieWithParent && x.reaper() && !c.spec.Init {
		c.pdeathsig()
	}
	if c.spec.Init || x.reaper() {
		for _, fd := range x.Sync {
			c.Try(stage.Discard, do(DoClose), stage.Close, stage.FD(fd))
		}
	}
	if x.Block != nil {
		buf := c.Mem(8)
		c.Try(stage.Discard, do(DoBlock), stage.Read, stage.FD(*x.Block), buf, stage.Imm(1))
		c.Try(stage.Discard, do(DoBlock), stage.Close, stage.FD(*x.Block))
	}
}

// reportFailure prints the failed step and its errno and exits.
func (c *compiler) reportFailure() {
	const maxErrno = 133
	var rows stage.Vec // row -N of the table is errno N, as the slot has it
	for e := maxErrno; e >= 0; e-- {
		text := ": " + pidone.ErrnoText(unix.Errno(e)) + "\n"
		rows = append(rows, stage.Str(text), stage.Imm(len(text)))
	}
	iov := c.Slots(4)
	at := c.Slot()
	c.Shr(at, stage.FailedOp, stage.Imm(2))
	c.Load64(iov, at, stage.OpTable{})
	c.Add(at, at, stage.Imm(8))
	c.Load64(iov+1, at, stage.OpTable{})
	c.Move(at, stage.FailedErrno)
	for range 4 { // times the size of a row
		c.Add(at, at, at)
	}
	last := stage.At{Base: rows, Off: 16 * maxErrno}
	c.Load64(iov+2, at, last)
	c.Add(at, at, stage.Imm(8))
	c.Load64(iov+3, at, last)
	c.Try(stage.Discard, do("report the failure"), stage.Writev, stage.Imm(2), stage.SlotAddr(iov), stage.Imm(2))
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(c.spec.Launcher.FailStatus))
}
