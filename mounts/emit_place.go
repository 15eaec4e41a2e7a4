//go:build linux

package mounts

import (
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// A place is a destination ready for use: a path relative to the working
// directory, or a descriptor in dst.
type place struct {
	path string // "." is the new root itself
	fd   bool
	// elsewhere says that it need not lie in the directory its path names: it
	// was reached through ".." or a link as the last component.
	elsewhere bool
}

// What is known of the mount in src.
type source bool

const (
	anySource  source = false // a file or a directory
	fileSource source = true
)

// mountPoint adds the operation that makes a mount point for it.
func (is source) mountPoint(e *emitter, onErr *stage.Label, dest string, dir stage.Arg, name string) {
	if is == fileSource {
		e.SysOr(onErr, stage.Discard, on(DoCreate, dest), stage.Mknodat, dir, stage.Str(name), stage.Imm(emptyFile), stage.Imm(0))
		return
	}
	// Most sources are directories. The kernel tells if this one is not.
	e.SysOr(onErr, stage.Discard, on(DoMkdir, dest), stage.Mkdirat, dir, stage.Str(name), stage.Imm(0o755))
}

const emptyFile = unix.S_IFREG | 0o444

// place puts the mount in src at dest.
func (e *emitter) place(dest string, follow bool, is source) {
	cs := components(dest)
	if len(cs) == 0 {
		e.attach(dest, place{path: "."})
		e.fs = &node{kind: unknown}
		return
	}
	path := strings.Join(cs, "/")
	switch k, _ := e.fs.lookup(cs); {
	case k == directory:
		e.attachKnown(dest, path, DoOnDir)
	case k == file:
		e.attachKnown(dest, path, DoOnFile)
	case k == absent && e.parents(dest, cs, e.parentMode):
		e.attachNew(dest, path, is)
	case k == entry:
		e.attachEntry(dest, path, is)
	case cs[len(cs)-1] == "..":
		e.openUp(dest, cs)
		e.attach(dest, place{fd: true, elsewhere: true})
	case follow:
		var missing, done stage.Label
		e.maybe(cs, func() {
			e.openAt(e.onErrno(unix.ENOENT, &missing), e.dst, on(DoOpenDest, dest), e.root, path, how(pathOpen, 0, inRoot))
			e.move(dest, place{fd: true})
			e.Jump(&done)
			e.Place(&missing)
			e.attachAny(dest, cs, is)
			e.Place(&done)
		})
		e.covered(dest, place{fd: true, elsewhere: true})
	default:
		e.attachAny(dest, cs, is)
		e.covered(dest, place{fd: true})
	}
	e.fs.set(cs, &node{kind: unknown})
}

// attach puts the mount in src at a place and closes it.
func (e *emitter) attach(dest string, p place) {
	e.move(dest, p)
	e.covered(dest, p)
}

func (e *emitter) move(dest string, p place) {
	s := on(DoAttach, dest)
	switch {
	case p.fd:
		e.SysOr(e.onErrno(unix.EINVAL, e.mismatch(dest)), stage.Discard, s, stage.MoveMount, e.src, stage.Str(""), e.dst, stage.Str(""), stage.Imm(fromFDToFD))
		e.close(e.dst)
	case p.path == ".":
		e.Sys(s, stage.MoveMount, e.src, stage.Str(""), e.root, stage.Str(""), stage.Imm(fromFDToFD))
	default:
		e.moveTo(&e.Fail, dest, cwd, p.path)
	}
	e.close(e.src)
}

// moveTo adds the operation that mounts src on a name, of which a last
// component that is a link is not followed.
func (e *emitter) moveTo(onErr *stage.Label, dest string, dir stage.Arg, name string) {
	e.SysOr(onErr, stage.Discard, on(DoAttach, dest), stage.MoveMount, e.src, stage.Str(""), dir, stage.Str(name), stage.Imm(fromFD))
}

// mismatch returns a label where the program fails: because a file was to be
// mounted on a directory, if that is why.
func (e *emitter) mismatch(dest string) *stage.Label {
	l := new(stage.Label)
	e.cold = append(e.cold, func() {
		e.Place(l)
		e.typeOf(e.src)
		e.If(stage.Jeq, e.tmp, stage.Imm(unix.S_IFDIR), &e.Fail)
		e.typeOf(e.dst)
		e.If(stage.Jne, e.tmp, stage.Imm(unix.S_IFDIR), &e.Fail)
		e.Sys(on(DoOnDir, dest), stage.MoveMount, e.src, stage.Str(""), e.dst, stage.Str(""), stage.Imm(fromFDToFD))
		e.Jump(&e.Fail)
	})
	return l
}

// typeOf sets tmp to the type of the file that fd refers to.
func (e *emitter) typeOf(fd stage.Slot) {
	e.Try(stage.Discard, on("examine a file", ""), stage.Statx, fd, stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH), stage.Imm(unix.STATX_TYPE), e.stat)
	e.Load32(e.tmp, e.stat, stage.Imm(statxMode))
	e.And(e.tmp, e.tmp, stage.Imm(unix.S_IFMT))
}

// The ways to mount src on a name are the same few operations for every bind,
// as there may be thousands. What happens when one of them fails is added once
// for all: it finds the name in the operation that failed, goes back to those
// behind it, or fails and says why. Offsets are from the first of the operations.
const (
	atMake = iota * stage.OpSize
	atMove
	atClose // src

	// Where the operand with the name is in an operation.
	makeName = 8 + 8*1
	moveName = 8 + 8*3
)

// attachKnown mounts src on what this program itself has made; unfit is why
// that fails if it is of the wrong type.
func (e *emitter) attachKnown(dest, path, unfit string) {
	l := &e.onDir
	if unfit == DoOnFile {
		l = &e.onFile
	}
	e.moveTo(e.shared(l, func() {
		e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.EINVAL)), &e.Fail)
		e.Move(e.first, stage.FailedOp)
		e.Move(e.errno, stage.FailedErrno)
		e.because(unfit)
	}), dest, cwd, path)
	e.close(e.src)
	e.covered(dest, place{path: path})
}

// attachNew makes a mount point where nothing is, and mounts src on it.
func (e *emitter) attachNew(dest, path string, is source) {
	is.mountPoint(e, &e.Fail, dest, cwd, path)
	e.moveTo(e.shared(&e.newFile, e.emitNewFile), dest, cwd, path)
	e.close(e.src)
	e.covered(dest, place{path: path})
}

// emitNewFile is where attachNew goes when src is a file after all.
func (e *emitter) emitNewFile() {
	var failed, moving stage.Label
	name := e.Slot()
	e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.EINVAL)), &e.Fail)
	e.Add(e.first, stage.FailedOp, stage.Imm(-atMove))
	e.Load64(name, stage.FailedOp, stage.Imm(moveName))
	s := on(DoCreate, someDest)
	e.SysOr(&failed, stage.Discard, s, stage.Unlinkat, cwd, name, stage.Imm(unix.AT_REMOVEDIR))
	e.SysOr(&failed, stage.Discard, s, stage.Mknodat, cwd, name, stage.Imm(emptyFile), stage.Imm(0))
	e.SysOr(&moving, stage.Discard, s, stage.MoveMount, e.src, stage.Str(""), cwd, name, stage.Imm(fromFD))
	e.Add(e.first, e.first, stage.Imm(atClose))
	e.JumpTo(e.first)
	e.Place(&failed)
	e.Move(e.errno, stage.FailedErrno)
	e.because(DoCreate)
	e.Place(&moving)
	e.blame(e.first, atMove)
}

// someDest is what an operation for many destinations is on.
const someDest = "a mount point"

// blame makes the program fail with the errno it has, as the operation at an
// offset from first.
func (e *emitter) blame(first stage.Slot, at int) {
	e.Add(stage.FailedOp, first, stage.Imm(at))
	e.Jump(&e.Fail)
}

// because makes the program fail with errno and for this reason, on what the
// operation at first is on.
func (e *emitter) because(why string) {
	// An operation that always fails is one that is known.
	e.SysOr(e.shared(&e.why, func() {
		e.Move(stage.FailedWhy, stage.FailedOp)
		e.Move(stage.FailedErrno, e.errno)
		e.blame(e.first, 0)
	}), stage.Discard, on(why, someDest), stage.Close, stage.Imm(-1))
}

// attachAny mounts src on the last component of an unknown destination, which
// it makes if it is missing.
func (e *emitter) attachAny(dest string, cs []string, is source) {
	if e.parents(dest, cs, e.parentMode) {
		e.attachIn(&e.inCwd, cwd, dest, strings.Join(cs, "/"), is)
	} else {
		e.attachIn(&e.inPar, e.par, dest, cs[len(cs)-1], is)
	}
}

// attachIn is attachAny in a directory.
func (e *emitter) attachIn(p **placer, dir stage.Arg, dest, name string, is source) {
	if *p == nil {
		*p = &placer{dir: dir}
		e.cold = append(e.cold, func() { (*p).emit(e) })
	}
	is.mountPoint(e, &(*p).exists, dest, dir, name)
	e.moveTo(&(*p).isFile, dest, dir, name)
	e.close(e.src)
}

// attachEntry mounts src on what is there mostly, and of its type.
func (e *emitter) attachEntry(dest, path string, is source) {
	failed, done := new(stage.Label), new(stage.Label)
	e.moveTo(failed, dest, cwd, path)
	e.close(e.src)
	e.Place(done)
	e.cold = append(e.cold, func() {
		e.Place(failed)
		e.attachIn(&e.inCwd, cwd, dest, path, is)
		e.Jump(done)
	})
	e.covered(dest, place{path: path})
}

// A placer is where the operations of attachAny in a directory go when they
// fail.
type placer struct {
	dir    stage.Arg
	exists stage.Label // the mount point was not made
	isFile stage.Label // it was, as a directory, and src could not be mounted on it
}

func (p *placer) emit(e *emitter) {
	var file, look, found, placed, noDir, noFile, onLink, onFile, onDir, move, unopened, never stage.Label
	name := e.Slot()
	s := on(DoOpenDest, someDest)
	open := func(onErr *stage.Label, flags int64) {
		e.SysOr(onErr, e.dst, s, stage.Openat, p.dir, name, stage.Imm(pathOpen|unix.O_NOFOLLOW|flags), stage.Imm(0))
	}

	e.Place(&p.exists)
	e.Move(e.first, stage.FailedOp)
	e.Load64(name, e.first, stage.Imm(makeName))
	e.Move(e.errno, stage.FailedErrno)
	e.typeOf(e.src)
	e.If(stage.Jne, e.tmp, stage.Imm(unix.S_IFDIR), &file)
	// A directory can be mounted on nothing else, so there is no need to look.
	e.SysOr(&look, stage.Discard, s, stage.MoveMount, e.src, stage.Str(""), p.dir, name, stage.Imm(fromFD))
	e.Jump(&placed)
	e.Place(&look)
	open(&noDir, unix.O_DIRECTORY)
	e.Jump(&found)

	e.Place(&p.isFile)
	e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.EINVAL)), &e.Fail)
	e.Add(e.first, stage.FailedOp, stage.Imm(-atMove))
	e.Load64(name, e.first, stage.Imm(makeName))
	e.SysOr(&never, stage.Discard, s, stage.Unlinkat, p.dir, name, stage.Imm(unix.AT_REMOVEDIR))
	e.Place(&file)
	e.Try(e.errno, s, stage.Mknodat, p.dir, name, stage.Imm(emptyFile), stage.Imm(0))
	open(&noFile, 0)
	e.typeOf(e.dst)
	e.If(stage.Jeq, e.tmp, stage.Imm(unix.S_IFLNK), &onLink)
	e.If(stage.Jeq, e.tmp, stage.Imm(unix.S_IFDIR), &onDir)

	e.Place(&found)
	e.SysOr(&move, stage.Discard, s, stage.MoveMount, e.src, stage.Str(""), e.dst, stage.Str(""), stage.Imm(fromFDToFD))
	e.close(e.dst)
	e.Place(&placed)
	e.Add(e.first, e.first, stage.Imm(atClose))
	e.JumpTo(e.first)

	e.Place(&move)
	e.blame(e.first, atMove)

	// It cannot be opened. If that is because it was not made, what counts is
	// why that was.
	e.Place(&noDir)
	e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.ENOTDIR)), &unopened)
	open(&unopened, 0)
	e.typeOf(e.dst)
	e.If(stage.Jeq, e.tmp, stage.Imm(unix.S_IFLNK), &onLink)
	e.Jump(&onFile)
	e.Place(&unopened)
	e.notMade(func() {
		e.Move(stage.FailedErrno, e.errno)
		e.blame(e.first, atMake)
	})
	e.Place(&noFile)
	e.notMade(func() { e.because(DoCreate) })
	e.Place(&never)
	e.Move(e.errno, stage.FailedErrno)
	e.because(DoCreate)

	for _, wrong := range []struct {
		label *stage.Label
		errno unix.Errno
		why   string
	}{{&onLink, unix.ELOOP, DoOnLink}, {&onFile, unix.ENOTDIR, DoOnFile}, {&onDir, unix.EINVAL, DoOnDir}} {
		e.Place(wrong.label)
		e.Move(e.errno, stage.Imm(-int64(wrong.errno)))
		e.because(wrong.why)
	}
}

// notMade makes the program fail because a mount point could not be opened, or
// as missing says if there is none.
func (e *emitter) notMade(missing func()) {
	var none stage.Label
	e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.ENOENT)), &none)
	e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EACCES)), &none)
	e.Move(e.errno, stage.FailedErrno)
	e.because(DoOpenDest)
	e.Place(&none)
	missing()
}
