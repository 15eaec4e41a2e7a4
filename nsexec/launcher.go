//go:build linux

package nsexec

import (
	"encoding/binary"
	"maps"
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
	// status. Phrase, if set, words the failed step, in three parts that are
	// printed one after the other. Of a step with a mount's destination only
	// the middle one may depend on that.
	// The errno's text follows unless after ends with a newline.
	Prefix     string
	FailStatus int
	Phrase     func(do, on string) (before, place, after string)
	// ExecPrefix starts the message about a program that cannot be executed.
	// ExecStatus, if not zero, is the exit status then, instead of 127 and 126.
	ExecPrefix string
	ExecStatus int

	// Forward passes signals sent to the monitor and the init on to the
	// program's process group. A launch without a Launcher always does.
	Forward bool
	// DieWithParent ends the guest when the caller of Start or the monitor of
	// Exec ends. Without a PID namespace of its own only the program itself is
	// ended, not what it started. With Start and without an init, the caller
	// must be the thread that stays: see runtime.LockOSThread.
	DieWithParent bool
	// Parent is the caller's own parent, as seen when it began, for Exec to
	// end with as well, or 0. With Start that is the caller's own business.
	Parent int

	// SeccompTwice installs the filters in the init and in the program each
	// for itself and after the one has started the other, so that a filter may
	// forbid what the init has done by then. Otherwise the program inherits
	// them from the init.
	SeccompTwice bool

	// Linger lets what the program leaves behind in its PID namespace live on
	// after it, and after the launcher. The launch itself ends with the
	// program.
	Linger bool

	// Inherited are descriptors that only the program is to have: the monitor
	// and the init close them. None of the others here is among them.
	Inherited []int
	// Sync are descriptors the init keeps open and the program does not get.
	Sync []int
	// Locks are files inside the guest on which the init holds a read lock.
	Locks []string
	// UserNS2 is a descriptor of a user namespace to enter when the guest's
	// file system is complete, if not nil.
	UserNS2 *int
	// PIDNS is a descriptor of the PID namespace that becomes the parent of
	// the guest's new one, if not nil.
	PIDNS *int
	// InnerUser puts the guest into a second user namespace inside the one
	// its file system is set up in, so that capabilities it keeps are none
	// over that. In the outer one its user is root.
	InnerUser bool
	// Announce is called by Start when the guest's first process exists and
	// its namespaces do, before anything in them is set up. The launch goes
	// on when it returns, and fails if it returns an error. With ForeignMaps
	// it also has to see to it that somebody has written the ID maps.
	Announce    func(pid int) error
	ForeignMaps bool
	// UnshareTexts are messages for particular errors in creating the
	// namespaces, which go without the errno's text.
	UnshareTexts map[unix.Errno]string

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
func (x *Launcher) failure(s stage.Step) stage.Text {
	if x.Phrase != nil {
		before, place, after := x.Phrase(s.Do, s.On)
		return stage.Text{Before: before, On: place, After: after}
	}
	if s.On == "" {
		return stage.Text{Before: s.Do}
	}
	return stage.Text{Before: s.Do + " ", On: s.On}
}

func (x *Launcher) announces() bool   { return x != nil && x.Announce != nil }
func (x *Launcher) foreignMaps() bool { return x != nil && x.ForeignMaps }
func (x *Launcher) innerUser() bool   { return x != nil && x.InnerUser }
func (x *Launcher) belowPID() bool    { return x != nil && x.PIDNS != nil }
func (x *Launcher) linger() bool      { return x != nil && x.Linger && !x.DieWithParent }

// unshare makes new namespaces.
func (c *compiler) unshare(flags int) {
	s, x := do(DoUnshare), c.spec.Launcher
	if !c.monitor || len(x.UnshareTexts) == 0 {
		c.Sys(s, stage.Unshare, stage.Imm(flags))
		return
	}
	var failed, done stage.Label
	c.SysOr(&failed, stage.Discard, s, stage.Unshare, stage.Imm(flags))
	c.Jump(&done)
	c.Place(&failed)
	for _, e := range slices.Sorted(maps.Keys(x.UnshareTexts)) {
		var other stage.Label
		text := x.Prefix + x.UnshareTexts[e] + "\n"
		c.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(e)), &other)
		c.Try(stage.Discard, do("report the failure"), stage.Write, stage.Imm(2), stage.Str(text), stage.Imm(len(text)))
		c.Sys(do("exit"), stage.ExitGroup, stage.Imm(x.FailStatus))
		c.Place(&other)
	}
	c.Jump(&c.Fail)
	c.Place(&done)
}

// joinUserNS2 leaves the user namespace the set-up was done in.
func (x *Launcher) joinUserNS2(c *compiler) {
	if x == nil || x.UserNS2 == nil {
		return
	}
	c.Sys(do(DoUserNS2), stage.Setns, stage.FD(*x.UserNS2), stage.Imm(unix.CLONE_NEWUSER))
	c.Try(stage.Discard, do(DoUserNS2), stage.Close, stage.FD(*x.UserNS2))
}

// belowPIDNamespace makes the guest's new PID namespace a child of PIDNS.
// Only a process inside that can, so there is one more on the way. It waits for
// the init and ends as that did.
func (x *Launcher) belowPIDNamespace(c *compiler) {
	if !x.belowPID() {
		return
	}
	pid, status, tmp := c.Slot(), c.Slot(), c.Slot()
	var child, wait stage.Label
	step := do("wait for the init")
	if x.announces() {
		c.awaitHost()
	}
	c.Sys(do(DoUnshare), stage.Unshare, stage.Imm(unix.CLONE_NEWPID))
	c.Fork(pid, do(DoFork), unix.CLONE_VM|int64(unix.SIGCHLD), &child)
	if x.announces() {
		pidone.SendRecord(c.Builder, c.control, stage.Started, stage.Imm(0))
	}
	if c.control >= 0 {
		c.Sys(step, stage.Close, stage.FD(c.control))
	}
	c.Place(&wait)
	c.SysTo(tmp, step, stage.Wait4, pid, stage.SlotAddr(status), stage.Imm(0), stage.Imm(0))
	c.If(stage.Jlt, tmp, stage.Imm(1), &wait)
	pidone.ExitWith(c.Builder, status, tmp)
	c.Place(&child)
}

// dieWithParent is DieWithParent for the program itself where there is no
// namespace whose end is its end. It asks for a signal and then makes sure that
// it did not ask too late.
func (x *Launcher) dieWithParent(c *compiler) {
	if x == nil || !x.DieWithParent {
		return
	}
	c.pdeathsig()
	s := do("check the parent process")
	// A parent's end is announced to its children and becomes visible under one
	// lock of the kernel's, which this call waits for.
	c.Try(stage.Discard, s, stage.Wait4, stage.Imm(-1), stage.Imm(0), stage.Imm(unix.WNOHANG), stage.Imm(0))
	polls, r := c.Slots(len(c.alive)+1), c.Slot()
	n := 0
	for _, fd := range c.alive {
		c.Add(polls+stage.Slot(n), fd, stage.Imm(unix.POLLIN<<32))
		n++
	}
	if c.control >= 0 { // a peer that is gone is reported unasked
		c.Move(polls+stage.Slot(n), stage.Imm(int64(c.control)))
		n++
	}
	var alive stage.Label
	c.SysTo(r, s, stage.Ppoll, stage.SlotAddr(polls), stage.Imm(n), stage.Blob(make([]byte, 16)), stage.Imm(0), stage.Imm(8))
	c.If(stage.Jeq, r, stage.Imm(0), &alive)
	c.Sys(s, stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
	c.Place(&alive)
}

func (c *compiler) pdeathsig() {
	c.Sys(stage.Step{Do: "ask to die with the parent"}, stage.Prctl, stage.Imm(unix.PR_SET_PDEATHSIG), stage.Imm(int64(unix.SIGKILL)), stage.Imm(0), stage.Imm(0), stage.Imm(0))
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
		c.SysTo(fd, doOn(DoOpenLock, path), stage.Openat, stage.Imm(unix.AT_FDCWD), stage.Str(path), stage.Imm(unix.O_RDONLY|unix.O_CLOEXEC), stage.Imm(0))
		c.Sys(s, stage.Fcntl, fd, stage.Imm(unix.F_SETLK), stage.Blob(flock))
	}
}

// detach leaves the program's descriptors to the program.
func (x *Launcher) detach(c *compiler) {
	if x == nil {
		return
	}
	for _, fd := range x.Inherited {
		// The block descriptor is closed, and its number may be the init's own.
		if !slices.Contains(x.Sync, fd) && (x.Block == nil || *x.Block != fd) {
			c.Try(stage.Discard, do(DoClose), stage.Close, stage.FD(fd))
		}
	}
}

func (x *Launcher) beforeExec(c *compiler) {
	if x == nil {
		return
	}
	if x.reaper() && !c.spec.Init {
		x.dieWithParent(c)
	}
	if x.DieWithParent && c.spec.Init {
		c.pdeathsig()
	}
	if c.spec.Init || x.reaper() {
		for _, fd := range x.Sync {
			c.Try(stage.Discard, do(DoClose), stage.Close, stage.FD(fd))
		}
	}
}

// block waits for the caller's leave to start the program.
func (x *Launcher) block(c *compiler) {
	if x == nil || x.Block == nil {
		return
	}
	r, buf := c.Slot(), c.Mem(8)
	var again stage.Label
	c.Place(&again)
	c.Try(r, do(DoBlock), stage.Read, stage.FD(*x.Block), buf, stage.Imm(1))
	c.If(stage.Jeq, r, stage.Imm(-int64(unix.EINTR)), &again)
	c.Try(stage.Discard, do(DoBlock), stage.Close, stage.FD(*x.Block))
}

// errnoTexts is what follows a failed step, for every errno: words with the
// place and the length of each text, the last errno's first, and the texts. An
// errno is negative where it is looked up.
func errnoTexts() (texts stage.Blob, first int) {
	const maxErrno = 133
	b := make([]byte, 4*(maxErrno+1), 6<<10)
	for e := range maxErrno + 1 {
		at := len(b)
		b = append(b, ": "...)
		b = pidone.AppendErrnoText(b, unix.Errno(e))
		b = append(b, '\n')
		binary.LittleEndian.PutUint32(b[4*(maxErrno-e):], uint32(at<<8+len(b)-at))
	}
	return stage.Blob(b), 4 * maxErrno
}

// reportFailure prints the failed step and its errno and exits.
func (c *compiler) reportFailure() {
	x := c.spec.Launcher
	const prefix, before, on, after, errno, parts = 0, 2, 4, 6, 8, 10
	iov, at, why, count := c.Slots(parts), c.Slot(), c.Slot(), c.Slot()
	c.Move(iov+prefix, stage.Str(x.Prefix))
	c.Move(iov+prefix+1, stage.Imm(len(x.Prefix)))
	text := func(op stage.Slot, parts ...stage.Slot) {
		c.Shr(at, op, stage.Imm(4))
		c.Load32(at, at, stage.OpTable{})
		for _, part := range parts {
			c.Load32(iov+part, at, stage.Imm(4*(part-before)))
			c.Load32(iov+part+1, at, stage.Imm(4*(part-before)+4))
		}
	}
	var known stage.Label
	c.Move(why, stage.FailedWhy)
	c.If(stage.Jne, why, stage.Imm(0), &known)
	c.Move(why, stage.FailedOp)
	c.Place(&known)
	text(why, before, after)
	text(stage.FailedOp, on)

	texts, first := errnoTexts()
	c.Add(at, stage.FailedErrno, stage.FailedErrno)
	c.Add(at, at, at) // times the size of a word
	c.Load32(at, at, stage.At{Base: texts, Off: first})
	c.And(iov+errno+1, at, stage.Imm(0xff))
	c.Shr(at, at, stage.Imm(8))
	c.Add(iov+errno, at, texts)

	// A text that ends its line needs no errno behind it.
	var write stage.Label
	c.Move(count, stage.Imm(parts/2))
	c.If(stage.Jeq, iov+after+1, stage.Imm(0), &write)
	c.Add(at, iov+after, stage.Imm(-4))
	c.Load32(at, at, iov+after+1)
	c.Shr(at, at, stage.Imm(24))
	c.If(stage.Jne, at, stage.Imm('\n'), &write)
	c.Add(count, count, stage.Imm(-1))
	c.Place(&write)
	c.Try(stage.Discard, do("report the failure"), stage.Writev, stage.Imm(2), stage.SlotAddr(iov), count)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(x.FailStatus))
}
