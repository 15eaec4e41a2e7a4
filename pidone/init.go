//go:build linux

package pidone

import (
	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// commandPID is the PID of the first child of a new PID namespace's init.
const commandPID = 2

const (
	allSignals = stage.Blob("\xff\xff\xff\xff\xff\xff\xff\xff")
	sigsetSize = 8
	// defaultAction is a struct sigaction of SIG_DFL.
	defaultAction = stage.Blob("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")

	recordWords = stage.RecordSize / 8
	// RusageSize is the size of the struct rusage that follows an Exited
	// record.
	RusageSize  = 144
	siginfoSize = 128
)

// An Init describes PID 1 and the command it runs.
type Init struct {
	// Control is the socket to the host: status records go out on it, and its
	// end of file ends the guest. Negative means there is none.
	Control int
	// Lifelines are slots with further descriptors, pidfds for instance, that
	// end the guest when they become readable.
	Lifelines []stage.Slot
	// AwaitHost makes the init wait for a word on Control before it starts
	// the command, so that the host can take hold of the init first. The word
	// is a byte, or what Command.In is for.
	AwaitHost bool
	// Forward passes signals on to the command's process group.
	Forward bool
	// Linger makes the init outlive the command as long as anything else in
	// the namespace lives, and the end of Control's other side; it exits with
	// the command's status all the same. At the end of the command it adds 1 +
	// that status to Event, an eventfd, if there is one.
	Linger bool
	Event  stage.Arg
	// Before runs in the init before it starts the command.
	Before func(*stage.Builder)
	// Detach closes, in the init once the command runs, what only the command
	// needs.
	Detach func(*stage.Builder)

	Command Command
}

// BlockSignals adds what must come before the init exists: every signal is
// blocked, so that what is sent to it waits until it is ready, and the ends of
// children are heeded. old receives the mask there was.
func BlockSignals(b *stage.Builder, old stage.Arg) {
	b.Sys(stage.Step{Do: "block signals"}, stage.RtSigprocmask, stage.Imm(unix.SIG_SETMASK), allSignals, old, stage.Imm(sigsetSize))
	// A host that ignores SIGCHLD has passed that on: children would vanish
	// without a signal or a status.
	b.Sys(stage.Step{Do: "heed the end of children"}, stage.RtSigaction, stage.Imm(int64(unix.SIGCHLD)), defaultAction, stage.Imm(0), stage.Imm(sigsetSize))
}

// Emit adds the init. The program does not continue behind it.
func (in Init) Emit(b *stage.Builder) {
	var (
		pid    = b.Slot()
		sigfd  = b.Slot()
		failed = b.Slot() // set by the command if it could not be executed
		polls  = b.Slots(2 + len(in.Lifelines))
		rec    = b.Slots(recordWords + RusageSize/8)
		status = rec + 1
		rusage = rec + recordWords
		tmp    = b.Slot()
		info   = b.Mem(siginfoSize)
	)
	step := func(do string) stage.Step { return stage.Step{Do: do} }

	b.SysTo(sigfd, step("open the init's signalfd"), stage.Signalfd4, stage.Imm(-1), allSignals, stage.Imm(sigsetSize), stage.Imm(unix.SFD_CLOEXEC))
	if in.Before != nil {
		in.Before(b)
	}
	if in.AwaitHost {
		var gone, ready stage.Label
		into := info
		if in.Command.In.Size > 0 {
			into = in.Command.In
		}
		b.SysOr(&gone, tmp, step("wait for the host"), stage.Read, stage.FD(in.Control), into, stage.Imm(into.Size))
		b.If(stage.Jlt, stage.Imm(0), tmp, &ready)
		b.Place(&gone)
		b.Sys(step("exit"), stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))
		b.Place(&ready)
	}
	var child stage.Label
	b.Fork(pid, step("start the command"), unix.CLONE_VM|unix.CLONE_VFORK|int64(unix.SIGCHLD), &child)
	if in.Forward {
		b.If(stage.Jne, pid, stage.Imm(commandPID), &b.Fail)
	}
	if in.Detach != nil {
		in.Detach(b)
	}

	var loop, signalled, reap, gone stage.Label
	if in.Control >= 0 {
		b.If(stage.Jne, failed, stage.Imm(0), &loop)
		sendRecord(b, in.Control, rec, stage.Running, pid, stage.Imm(0), stage.Imm(0))
		b.Place(&loop)
	}

	// A struct pollfd is one word: the descriptor, what is asked for, what
	// happened.
	const pollIn, happened = unix.POLLIN << 32, -1 << 48
	b.Add(polls, sigfd, stage.Imm(pollIn))
	n := 1
	if in.Control >= 0 && !in.Linger {
		b.Move(polls+1, stage.Imm(int64(in.Control)|pollIn))
		n++
	}
	for _, l := range in.Lifelines {
		b.Add(polls+stage.Slot(n), l, stage.Imm(pollIn))
		n++
	}
	var poll stage.Label
	b.Place(&poll)
	b.Try(tmp, step("wait for events"), stage.Ppoll, stage.SlotAddr(polls), stage.Imm(n), stage.Imm(0), stage.Imm(0), stage.Imm(sigsetSize))
	b.If(stage.Jlt, tmp, stage.Imm(1), &poll)
	for i := 1; i < n; i++ {
		b.If(stage.Jset, polls+stage.Slot(i), stage.Imm(happened), &gone)
	}
	b.Place(&signalled)
	b.Sys(step("read a signal"), stage.Read, sigfd, info, stage.Imm(siginfoSize))
	b.Load32(tmp, info, stage.Imm(0))
	b.If(stage.Jeq, tmp, stage.Imm(int64(unix.SIGCHLD)), &reap)
	if in.Forward {
		b.Try(stage.Discard, step("forward a signal"), stage.Kill, stage.Imm(-commandPID), tmp)
	}
	b.Jump(&poll)

	b.Place(&reap)
	b.Try(tmp, step("reap"), stage.Wait4, stage.Imm(-1), stage.SlotAddr(status), stage.Imm(unix.WNOHANG), stage.SlotAddr(rusage))
	var empty stage.Label
	if in.Linger {
		b.If(stage.Jeq, tmp, stage.Imm(-int64(unix.ECHILD)), &empty)
	}
	b.If(stage.Jlt, tmp, stage.Imm(1), &poll)
	b.If(stage.Jne, tmp, pid, &reap)
	if in.Control >= 0 {
		b.Move(rec, stage.Imm(stage.Exited))
		b.Try(stage.Discard, step("report the command's end"), stage.Write, stage.FD(in.Control), stage.SlotAddr(rec), stage.Imm(stage.RecordSize+RusageSize))
	}
	if in.Linger {
		code, event := b.Slot(), b.Slot()
		exitCode(b, code, status)
		if in.Event != nil {
			b.Add(event, code, stage.Imm(1))
			b.Try(stage.Discard, step("report the command's end"), stage.Write, in.Event, stage.SlotAddr(event), stage.Imm(8))
		}
		b.Jump(&reap)
		b.Place(&empty)
		b.Sys(step("exit with the command's status"), stage.ExitGroup, code)
	} else {
		ExitWith(b, status, tmp)
	}

	b.Place(&gone)
	b.Sys(step("exit"), stage.ExitGroup, stage.Imm(128+int64(unix.SIGKILL)))

	b.Place(&child)
	in.Command.control, in.Command.failed = in.Control, failed
	in.Command.Emit(b)
}

// ExitWith adds an exit with the status a shell would give a command with this
// wait status: its own, or 128 + N if signal N ended it.
func ExitWith(b *stage.Builder, status, tmp stage.Slot) {
	exitCode(b, tmp, status)
	b.Sys(stage.Step{Do: "exit with the command's status"}, stage.ExitGroup, tmp)
}

func exitCode(b *stage.Builder, code, status stage.Slot) {
	var exited, done stage.Label
	b.And(code, status, stage.Imm(0x7f))
	b.If(stage.Jeq, code, stage.Imm(0), &exited)
	b.Add(code, code, stage.Imm(128))
	b.Jump(&done)
	b.Place(&exited)
	b.Shr(code, status, stage.Imm(8))
	b.And(code, code, stage.Imm(0xff))
	b.Place(&done)
}

// sendRecord writes a status record composed in the slots from rec on.
func sendRecord(b *stage.Builder, control int, rec stage.Slot, k stage.RecordKind, x, y, z stage.Arg) {
	b.Move(rec, stage.Imm(k))
	b.Move(rec+1, x)
	b.Move(rec+2, y)
	b.Move(rec+3, z)
	b.Try(stage.Discard, stage.Step{Do: "report to the host"}, stage.Write, stage.FD(control), stage.SlotAddr(rec), stage.Imm(stage.RecordSize))
}

// SendRecord adds a status record with slots of its own.
func SendRecord(b *stage.Builder, control int, k stage.RecordKind, words ...stage.Arg) {
	for len(words) < recordWords-1 {
		words = append(words, stage.Imm(0))
	}
	sendRecord(b, control, b.Slots(recordWords), k, words[0], words[1], words[2])
}
