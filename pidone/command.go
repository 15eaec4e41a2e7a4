//go:build linux

package pidone

import (
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// Exit statuses of a command that could not be executed, as shells use them.
const (
	NotFound      = 127
	NotExecutable = 126
)

// A Limit is a resource limit the command starts with.
type Limit struct {
	Resource   int // unix.RLIMIT_*
	Soft, Hard uint64
}

// A Command is the last part of a launch: what a process does to become the
// guest.
type Command struct {
	Path string   // looked up along PATH of Env if it has no slash
	Args []string // with argv[0]
	Env  []string
	// EnvAt, when not nil, is the address of the environment to pass instead
	// of Env, which then only says where to search.
	EnvAt stage.Arg
	// In, if it has a size, is where the host puts the block (see
	// [stage.Block]) with the Words of a command that is not known yet. Only
	// an [Init] that awaits the host can have that, and Path, Args and Env
	// then are of no account.
	In stage.Mem

	// OwnGroup puts the command into a process group of its own.
	OwnGroup bool
	Limits   []Limit
	// SignalMask is the address of the mask to start with; nil means none.
	SignalMask stage.Arg
	// Setup runs in the command just before it is executed.
	Setup func(*stage.Builder)

	// Prefix starts the message about a command that cannot be executed.
	Prefix string
	// Status, when not zero, is the exit status of a command that cannot be
	// executed, instead of NotFound and NotExecutable.
	Status int

	control int
	failed  stage.Slot
}

// EmitAlone adds the command to a process that is not a child of the init;
// control is the socket to the host, or negative.
func (c Command) EmitAlone(b *stage.Builder, control int) {
	c.control, c.failed = control, b.Slot()
	c.Emit(b)
}

// Emit adds the command. The program does not continue behind it.
func (c Command) Emit(b *stage.Builder) {
	step := func(do string) stage.Step { return stage.Step{Do: do, On: c.Path} }
	if c.OwnGroup {
		b.Sys(stage.Step{Do: "make a process group for", On: c.Path}, stage.Setpgid, stage.Imm(0), stage.Imm(0))
	}
	for _, l := range c.Limits {
		s := stage.Step{Do: "set resource limit", On: LimitName(l.Resource)}
		b.Sys(s, stage.Prlimit64, stage.Imm(0), stage.Imm(l.Resource), stage.Vec{stage.Imm(l.Soft), stage.Imm(l.Hard)}, stage.Imm(0))
	}
	if c.Setup != nil {
		c.Setup(b)
	}
	mask := c.SignalMask
	if mask == nil {
		mask = stage.Blob("\x00\x00\x00\x00\x00\x00\x00\x00")
	}
	b.Sys(step("restore the signal mask for"), stage.RtSigprocmask, stage.Imm(unix.SIG_SETMASK), mask, stage.Imm(0), stage.Imm(sigsetSize))

	var (
		r, denied  = b.Slot(), b.Slot()
		argv, env  = b.Slot(), b.Slot()
		path       = b.Slot()
		paths, shs = b.Slot(), b.Slot()
		words      = c.words(b)

		loop, next, isDenied, script, none, giveUp stage.Label
	)
	b.Load64(argv, words, stage.Imm(wordArgv))
	if c.EnvAt != nil {
		b.Move(env, c.EnvAt)
	} else {
		b.Load64(env, words, stage.Imm(wordEnv))
	}
	b.Load64(paths, words, stage.Imm(wordPaths))
	b.Load64(shs, words, stage.Imm(wordScripts))
	b.Place(&loop)
	b.Load64(path, paths, stage.Imm(0))
	b.If(stage.Jeq, path, stage.Imm(0), &none)
	b.Try(r, step("execute"), stage.Execve, path, argv, env)
	for _, e := range []unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.ENODEV, unix.ESTALE, unix.ETIMEDOUT} {
		b.If(stage.Jeq, r, stage.Imm(-int64(e)), &next)
	}
	b.If(stage.Jeq, r, stage.Imm(-int64(unix.EACCES)), &isDenied)
	b.If(stage.Jeq, r, stage.Imm(-int64(unix.ENOEXEC)), &script)
	b.Jump(&giveUp)

	b.Place(&isDenied)
	b.Move(denied, stage.Imm(1))
	b.Place(&next)
	b.Add(paths, paths, stage.Imm(8))
	b.Add(shs, shs, stage.Imm(8))
	b.Jump(&loop)

	b.Place(&script) // one without #! is for the shell, as with execvp
	b.Load64(argv, shs, stage.Imm(0))
	b.Try(r, step("execute"), stage.Execve, stage.Str("/bin/sh"), argv, env)
	b.Move(r, stage.Imm(-int64(unix.ENOEXEC)))
	b.Jump(&giveUp)

	b.Place(&none)
	b.If(stage.Jeq, denied, stage.Imm(0), &giveUp)
	b.Move(r, stage.Imm(-int64(unix.EACCES)))
	b.Place(&giveUp)
	c.emitFailure(b, words, r)
}

// emitFailure says on standard error why the command could not be executed,
// tells the host and exits.
func (c Command) emitFailure(b *stage.Builder, words, r stage.Slot) {
	var (
		iov    = b.Slots(4) // who and what, and why
		status = b.Slot()
		say    stage.Label
		step   = stage.Step{Do: "say why the command did not start"}
	)
	because := func(text string, exit int) {
		if c.Status != 0 {
			exit = c.Status
		}
		text += "\n"
		b.Move(iov+2, stage.Str(text))
		b.Move(iov+3, stage.Imm(len(text)))
		b.Move(status, stage.Imm(exit))
	}
	for _, e := range []struct {
		errno  unix.Errno
		status int
	}{
		{unix.ENOENT, NotFound}, {unix.ENOTDIR, NotFound}, {unix.EACCES, NotExecutable}, {unix.ENOEXEC, NotExecutable},
		{unix.E2BIG, NotExecutable}, {unix.ELOOP, NotExecutable}, {unix.ENAMETOOLONG, NotExecutable}, {unix.ENOMEM, NotExecutable},
	} {
		var other stage.Label
		b.If(stage.Jne, r, stage.Imm(-int64(e.errno)), &other)
		because(ErrnoText(e.errno), e.status)
		b.Jump(&say)
		b.Place(&other)
	}
	because("cannot be executed", NotExecutable)
	b.Place(&say)
	b.Load64(iov, words, stage.Imm(wordName))
	b.Load64(iov+1, words, stage.Imm(wordNameLen))
	b.Try(stage.Discard, step, stage.Writev, stage.Imm(2), stage.SlotAddr(iov), stage.Imm(2))
	b.Move(c.failed, stage.Imm(1))
	if c.control >= 0 {
		sendRecord(b, c.control, b.Slots(recordWords), stage.ExecError, stage.Imm(0), r, status)
	}
	b.Sys(stage.Step{Do: "exit"}, stage.ExitGroup, status)
}

// printable keeps a NUL byte from ending a message early.
func printable(s string) string { return strings.ReplaceAll(s, "\x00", "?") }
