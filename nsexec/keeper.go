//go:build linux

package nsexec

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/pidone"
	"golang.org/x/sys/unix"
)

// keeper starts the init and is what the stage does from then on. The init
// becomes a child of the host, so that nobody else can reap it and the host's
// hold on it is certain. The stage stays as long as the init lives, and so
// keeps the namespaces alive until just after it: taking them down takes longer
// than the end of the init does, and the host need not wait for it.
func (c *compiler) keeper(pid stage.Slot, child *stage.Label) {
	pidfd, poll, r := c.Slot(), c.Slot(), c.Slot()
	var wait stage.Label
	step := do("keep the namespaces")
	c.ForkPidfd(pid, do(DoFork), unix.CLONE_PARENT|unix.CLONE_VM|unix.CLONE_PIDFD|int64(unix.SIGCHLD), stage.SlotAddr(pidfd), child)
	var unannounced stage.Label
	c.sendRecord(&unannounced, do("announce the init"), stage.Started, pid, pidfd)
	c.net.apart(c, pid)
	c.leaveStreams()
	c.name(c.spec.Launcher.comm())
	c.net.create(c)
	// The host takes the end of the socket for the end of the init.
	c.Try(stage.Discard, step, stage.Close, stage.FD(c.control))
	if c.spec.KeepFDs { // whoever waits for their end must not wait for this
		c.Add(r, pidfd, stage.Imm(-1))
		c.Try(stage.Discard, step, stage.CloseRange, stage.Imm(3), r, stage.Imm(0))
		c.Add(r, pidfd, stage.Imm(1))
		c.Try(stage.Discard, step, stage.CloseRange, r, stage.Imm(math.MaxUint32), stage.Imm(0))
	}
	c.Add(poll, pidfd, stage.Imm(unix.POLLIN<<32))
	c.Place(&wait)
	c.Try(r, step, stage.Ppoll, stage.SlotAddr(poll), stage.Imm(1), stage.Imm(0), stage.Imm(0), stage.Imm(8))
	c.If(stage.Jlt, r, stage.Imm(1), &wait)
	// The host is woken at the same moment and goes first.
	c.Try(stage.Discard, step, stage.Ppoll, stage.Imm(0), stage.Imm(0), timespec(keeperRest), stage.Imm(0), stage.Imm(8))
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(0))

	// Who it is has to be known, or nobody could reap it. The init's own
	// failures go to the same slots.
	c.Place(&unannounced)
	op, errno := c.Slot(), c.Slot()
	c.Move(op, stage.FailedOp)
	c.Move(errno, stage.FailedErrno)
	pidone.SendRecord(c.Builder, c.control, stage.Started, pid)
	c.Move(stage.FailedOp, op)
	c.Move(stage.FailedErrno, errno)
	c.Jump(&c.Fail)
}

// keeperRest is how much longer than the init the keeper lives.
const keeperRest = time.Millisecond

func timespec(d time.Duration) stage.Blob {
	b := binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second))
	return stage.Blob(binary.LittleEndian.AppendUint64(b, uint64(d%time.Second)))
}

// leaveStreams leaves the standard streams to the program, whose host then sees
// the end of them when the program closes them.
func (c *compiler) leaveStreams() {
	c.Try(stage.Discard, do(DoClose), stage.CloseRange, stage.Imm(0), stage.Imm(2), stage.Imm(0))
}

// netns lets the stage do beside the init what takes longest: it makes the
// network namespace while the init builds the file system. The init joins the
// namespace when it is done with that, and sees to it last that it is complete.
type netns struct {
	split bool
	ready stage.Slot // eventfd that counts: the namespace exists, and it is complete
	enter stage.Slot // eventfd: the stage is not needed any more; only if it ends before the init
}

const stepShare = "share the work on the namespaces"

// splitsNet reports whether the stage makes the network namespace beside the
// init; otherwise it is made with the others.
func (c *compiler) splitsNet() bool {
	n, x := c.spec.Namespaces, c.spec.Launcher
	// Who is told of the namespaces is told when all of them exist.
	return n.Net.fresh && (n.PID != Share || c.monitor) && !x.announces() && !x.belowPID()
}

// watchStage opens what lets the init see that the stage is gone, which it must
// not be before the host knows of the init.
func (c *compiler) watchStage() {
	c.stage = c.Slot()
	c.SysTo(c.stage, do(stepShare), stage.Getpid)
	c.SysTo(c.stage, do(stepShare), stage.PidfdOpen, c.stage, stage.Imm(0))
}

// leaveStage is for when it is of no account any more.
func (c *compiler) leaveStage() {
	if c.stage != 0 {
		c.Sys(do(stepShare), stage.Close, c.stage)
	}
}

func (n *netns) prepare(c *compiler) {
	if !c.splitsNet() {
		return
	}
	n.split, n.ready = true, c.Slot()
	c.SysTo(n.ready, do(stepShare), stage.Eventfd2, stage.Imm(0), stage.Imm(unix.EFD_CLOEXEC|unix.EFD_SEMAPHORE))
	if c.monitor {
		n.enter = c.Slot()
		c.SysTo(n.enter, do(stepShare), stage.Eventfd2, stage.Imm(0), stage.Imm(unix.EFD_CLOEXEC))
	}
}

// create runs in the stage.
func (n *netns) create(c *compiler) {
	if !n.split {
		return
	}
	c.Sys(doOn(DoUnshare, "net"), stage.Unshare, stage.Imm(unix.CLONE_NEWNET))
	c.signalEvent(n.ready)
	c.loopback(c.Slot())
	c.signalEvent(n.ready)
}

// joined makes the stage wait for the init to have joined: the namespaces of a
// process that has ended cannot be entered.
func (n *netns) joined(c *compiler, init stage.Slot) {
	if n.enter != 0 {
		var gone stage.Label
		c.awaitEvent(n.enter, init, &gone)
		c.Place(&gone)
	}
}

// join runs in the init.
func (n *netns) join(c *compiler) {
	if !n.split {
		return
	}
	n.await(c)
	c.Sys(do(stepShare), stage.Read, n.ready, stage.SlotAddr(c.Slot()), stage.Imm(8))
	c.Sys(doOn(DoJoin, "net"), stage.Setns, c.stage, stage.Imm(unix.CLONE_NEWNET))
	if n.enter != 0 {
		c.signalEvent(n.enter)
		c.Sys(do(stepShare), stage.Close, n.enter)
	}
}

// complete runs in the init and waits for the last of the stage's part.
func (n *netns) complete(c *compiler) {
	if !n.split {
		return
	}
	n.await(c)
	c.Sys(do(stepShare), stage.Close, n.ready)
}

// await waits for the next event. If the stage is gone before its part is done,
// it has said why.
func (n *netns) await(c *compiler) {
	var gone, done stage.Label
	c.awaitEvent(n.ready, c.stage, &gone)
	c.Jump(&done)
	c.Place(&gone)
	c.Sys(do("exit"), stage.ExitGroup, stage.Imm(1))
	c.Place(&done)
}

func (c *compiler) signalEvent(event stage.Slot) {
	c.Sys(do(stepShare), stage.Write, event, stage.Blob("\x01\x00\x00\x00\x00\x00\x00\x00"), stage.Imm(8))
}

// awaitEvent waits for another process's event, or goes to gone if that
// process, known by its pidfd, ends without it.
func (c *compiler) awaitEvent(event, peer stage.Slot, gone *stage.Label) {
	polls, r := c.Slots(2), c.Slot()
	var wait, ready stage.Label
	c.Add(polls, event, stage.Imm(unix.POLLIN<<32))
	c.Add(polls+1, peer, stage.Imm(unix.POLLIN<<32))
	c.Place(&wait)
	c.Try(r, do(stepShare), stage.Ppoll, stage.SlotAddr(polls), stage.Imm(2), stage.Imm(0), stage.Imm(0), stage.Imm(8))
	c.If(stage.Jlt, r, stage.Imm(1), &wait)
	c.If(stage.Jset, polls, stage.Imm(-1<<48), &ready)
	c.Jump(gone)
	c.Place(&ready)
}
