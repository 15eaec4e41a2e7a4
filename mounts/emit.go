//go:build linux

package mounts

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// A Tree is the whole file system of a guest.
type Tree struct {
	Ops []Op
	// RootSize limits what can be written to the tmpfs that carries the root
	// in bytes, and RootInodes the number of its files; zero leaves the
	// kernel's limit.
	RootSize, RootInodes int64
	// FollowHost lets mounts that the host makes or removes later, below a
	// bound directory, appear and disappear for the guest too. They come
	// without the restrictions of the bind.
	FollowHost bool
	// PrivateParents gives directories that have to be made above a mount
	// point mode 0700, as bwrap does, instead of 0755. Those above a [Dir],
	// [File] or [Tmpfs] follow its own mode in either case.
	PrivateParents bool
}

// Steps of a launch that errors name, for callers that phrase them anew.
const (
	DoSlave    = "detach the mounts from the host's"
	DoRoot     = "create the new root"
	DoSource   = "open bind source"
	DoSameFile = "find by its path"
	DoFlags    = "set the mount flags of"
	DoParents  = "create the parent directories of"
	DoMkdir    = "create directory"
	DoCreate   = "create file"
	DoOpenDest = "open destination"
	DoAttach   = "mount on"
	DoOnLink   = "mount on the symbolic link"
	DoOnFile   = "mount a directory on the file"
	DoOnDir    = "mount a file on the directory"
	DoFind     = "open"
	DoTmpfs    = "mount tmpfs on"
	DoProc     = "mount proc on"
	DoMask     = "cover"
	DoDevpts   = "mount devpts on"
	DoDevice   = "bind device"
	DoMqueue   = "mount mqueue on"
	DoOverlay  = "mount overlay on"
	DoWrite    = "write file"
	DoSymlink  = "create symlink"
	DoReadlink = "read the existing symlink"
	DoChmod    = "change the mode of"
	DoRemount  = "remount read-only"
	DoEnter    = "enter the new root"
	DoDetach   = "detach the old root"
	DoClose    = "close a descriptor"
)

const (
	maxMountData = 4096 // one page, with its terminator

	cloneTree  = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	pathOpen   = unix.O_PATH | unix.O_CLOEXEC
	dirOpen    = pathOpen | unix.O_DIRECTORY
	inRoot     = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	noLinks    = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	fromFD     = unix.MOVE_MOUNT_F_EMPTY_PATH
	fromFDToFD = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH

	newRoot = "newroot"
	oldRoot = "oldroot"
)

var cwd = stage.Imm(unix.AT_FDCWD)

// Emit adds the operations that build the tree and make it the root. They need
// a mount namespace of their own, CAP_SYS_ADMIN and CAP_SYS_CHROOT in its user
// namespace, and a umask of zero. Afterwards the working directory is the new
// root. The tree must be valid; see [Validate].
func (t Tree) Emit(b *stage.Builder) {
	e := &emitter{Builder: b, root: b.Slot(), base: b.Slot(), src: b.Slot(), par: b.Slot(), dst: b.Slot(), tmp: b.Slot(), first: b.Slot(), errno: b.Slot(),
		stat: b.Mem(statxSize), fs: newDir(), parentMode: 0o755, missing: map[parentDir]*stage.Label{}}
	if t.PrivateParents {
		e.parentMode = 0o700
	}
	e.begin(t)
	const most = 12 // operations that one of many mounts becomes
	if n := len(t.Ops); n > 16 {
		b.Grow(n * most)
	}
	for _, op := range t.Ops {
		op.emit(e)
	}
	e.finish()
}

// An emitter writes the program. While it runs, the process's root is still
// the host's, so that sources resolve as they do there, and its working
// directory is the new root, so that known destinations are relative paths.
type emitter struct {
	*stage.Builder
	fs   *node // what is known of the new root
	root stage.Slot
	base stage.Slot // the tmpfs both roots hang in, which the guest never sees
	src  stage.Slot // the mount being placed
	par  stage.Slot // parent of an unknown destination
	dst  stage.Slot
	tmp  stage.Slot
	stat stage.Mem

	first, errno stage.Slot // what has failed, while something is done about it

	parentMode uint32 // of parents that have to be made

	parOf  string   // which directory par is for, or "" for none
	parIs  parentIs // whether it holds that
	cold   []func() // error branches, kept out of the straight line
	hidden int      // names used in base

	// What many operations share when they fail; nil until one needs it.
	again, newFile, onDir, onFile, why *stage.Label

	inPar, inCwd *placer
	missing      map[parentDir]*stage.Label
}

// parentIs is what is known of par where the program is.
type parentIs uint8

const (
	parClosed  parentIs = iota
	parSkipped          // open, or -1
	parOpen
)

// A parentDir is a directory that has to be made, with all above it, if it is
// missing.
type parentDir struct {
	path string
	mode uint32
}

func on(do, path string) stage.Step { return stage.Step{Do: do, On: path} }

func (e *emitter) begin(t Tree) {
	propagation := int64(unix.MS_PRIVATE)
	if t.FollowHost {
		propagation = unix.MS_SLAVE
	}
	s := on(DoRoot, "")
	e.Sys(on(DoSlave, ""), stage.Mount, stage.Imm(0), stage.Str("/"), stage.Imm(0), stage.Imm(propagation|unix.MS_REC), stage.Imm(0))
	opts := stage.Arg(stage.Imm(0))
	if o := (Tmpfs{Size: t.RootSize, Inodes: t.RootInodes}); t.RootSize > 0 || t.RootInodes > 0 {
		opts = stage.Str(o.options())
	}
	// Every machine has a "/" to mount on. "/.." is the way onto what is
	// mounted there, and the pivot at once uncovers it again.
	e.Sys(s, stage.Mount, stage.Str("tmpfs"), stage.Str("/"), stage.Str("tmpfs"), stage.Imm(unix.MS_NOSUID|unix.MS_NODEV), opts)
	e.Sys(s, stage.Chdir, stage.Str("/.."))
	e.Sys(s, stage.Mkdirat, cwd, stage.Str(newRoot), stage.Imm(0o755))
	e.Sys(s, stage.Mkdirat, cwd, stage.Str(oldRoot), stage.Imm(0o755))
	e.Sys(s, stage.PivotRoot, stage.Str("."), stage.Str(oldRoot))
	e.Sys(s, stage.Mount, stage.Str(newRoot), stage.Str(newRoot), stage.Imm(0), stage.Imm(unix.MS_BIND), stage.Imm(0))
	e.SysTo(e.base, s, stage.Openat, cwd, stage.Str("."), stage.Imm(dirOpen))
	e.Sys(s, stage.Chroot, stage.Str(oldRoot))
	e.openRoot()
}

// openRoot opens the topmost mount at the new root and goes there.
func (e *emitter) openRoot() {
	e.dropParent()
	s := on(DoRoot, "")
	e.SysTo(e.root, s, stage.Openat, e.base, stage.Str(newRoot), stage.Imm(dirOpen))
	e.Sys(s, stage.Fchdir, e.root)
}

func (e *emitter) finish() {
	s := on(DoEnter, "")
	e.Sys(s, stage.Fchdir, e.base)
	e.Sys(s, stage.Chroot, stage.Str("."))
	e.Sys(on(DoDetach, ""), stage.Umount2, stage.Str("/"+oldRoot), stage.Imm(unix.MNT_DETACH))
	// The new root covers the tmpfs it hangs in, which holds nothing else any
	// more. Another pivot_root would visit every thread of the machine.
	e.Sys(s, stage.MoveMount, e.root, stage.Str(""), cwd, stage.Str("/"), stage.Imm(fromFD))
	e.Sys(s, stage.Fchdir, e.root)
	e.Sys(s, stage.Chroot, stage.Str("."))
	e.close(e.root)
	e.close(e.base)
	e.dropParent()
	if len(e.cold) > 0 {
		var over stage.Label
		e.Jump(&over)
		for i := 0; i < len(e.cold); i++ {
			e.cold[i]()
		}
		e.Place(&over)
	}
}

func (e *emitter) close(s stage.Slot) {
	e.Try(stage.Discard, on(DoClose, ""), stage.Close, s)
}

// onErrno returns a label for SysOr: on this errno the program goes to then,
// on any other it fails.
func (e *emitter) onErrno(errno unix.Errno, then *stage.Label) *stage.Label {
	l := new(stage.Label)
	e.cold = append(e.cold, func() {
		e.Place(l)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(errno)), then)
		e.Jump(&e.Fail)
	})
	return l
}

// shared returns the label of error branches that operations share: emit adds
// them, once.
func (e *emitter) shared(l **stage.Label, emit func()) *stage.Label {
	if *l == nil {
		*l = new(stage.Label)
		e.cold = append(e.cold, func() {
			e.Place(*l)
			emit()
		})
	}
	return *l
}

// emitAgain repeats the operation that failed with EAGAIN.
func (e *emitter) emitAgain() {
	e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.EAGAIN)), &e.Fail)
	e.JumpTo(stage.FailedOp)
}

// openAt adds an openat2 that goes to onErr when it fails. One that meets ".."
// while something is being renamed or mounted anywhere on the machine cannot
// be sure where it is, and the kernel asks for another try.
func (e *emitter) openAt(onErr *stage.Label, dst stage.Slot, s stage.Step, dir stage.Arg, path string, how stage.Blob) {
	if onErr == &e.Fail {
		e.SysOr(e.shared(&e.again, e.emitAgain), dst, s, stage.Openat2, dir, stage.Str(path), how, stage.Imm(howSize))
		return
	}
	again, failed := new(stage.Label), new(stage.Label)
	e.Place(again)
	e.SysOr(failed, dst, s, stage.Openat2, dir, stage.Str(path), how, stage.Imm(howSize))
	e.cold = append(e.cold, func() {
		e.Place(failed)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EAGAIN)), again)
		e.Jump(onErr)
	})
}

// set records what is now at dest.
func (e *emitter) set(dest string, n *node) {
	if cs := components(dest); len(cs) == 0 {
		e.fs = n
	} else {
		e.fs.set(cs, n)
	}
}

// parents makes sure the directories above cs exist, with this mode if they
// have to be made. It reports whether they are known; if not, par holds the
// last of them.
func (e *emitter) parents(dest string, cs []string, mode uint32) (known bool) {
	s := on(DoParents, dest)
	known = true
	for i := range len(cs) - 1 {
		switch k, _ := e.fs.lookup(cs[:i+1]); k {
		case directory:
		case absent:
			e.Sys(s, stage.Mkdirat, cwd, stage.Str(strings.Join(cs[:i+1], "/")), stage.Imm(mode))
			e.fs.set(cs[:i+1], newDir())
		default:
			known = false
		}
		if !known {
			break
		}
	}
	if k, _ := e.fs.lookup(cs[:len(cs)-1]); known && k == directory {
		return true
	}
	e.openParent(dest, cs[:len(cs)-1], mode)
	return false
}

// dropParent closes par if it is open.
func (e *emitter) dropParent() {
	if e.parOf != "" {
		e.close(e.par)
		e.Move(e.par, stage.Imm(-1)) // a number closed twice might be somebody else's by then
		e.parOf, e.parIs = "", parClosed
	}
}

// covered is told what has been mounted over something. An unknown destination
// may be any path by another name, so nothing is known from then on: otherwise
// links in what was mounted would be followed as if they were directories of
// this program's, and on the host.
func (e *emitter) covered(dest string, p place) {
	if p.path == "." || p.elsewhere {
		e.close(e.root)
		e.openRoot()
	}
	if !p.fd {
		e.dropParent()
		return
	}
	e.fs = &node{kind: unknown}
	cs := components(dest)
	if strings.Join(cs[:len(cs)-1], "/") != e.parOf {
		e.dropParent()
	}
}

// pathOf is the path of a directory relative to the root.
func pathOf(cs []string) string {
	if len(cs) == 0 {
		return "."
	}
	return strings.Join(cs, "/")
}

// holdParent makes an unknown directory the one that par holds. How to open it
// is added if it need be.
func (e *emitter) holdParent(cs []string, add func(path string)) {
	path := pathOf(cs)
	if e.parOf != path {
		e.dropParent()
		e.parOf = path
	}
	switch e.parIs {
	case parClosed:
		add(path)
	case parSkipped:
		var have stage.Label
		e.If(stage.Jlt, stage.Imm(-1), e.par, &have)
		add(path)
		e.Place(&have)
	}
	e.parIs = parOpen
}

// maybe adds a part of the program that may be jumped over, and that uses the
// parent of cs if that is unknown.
func (e *emitter) maybe(cs []string, f func()) {
	if len(cs) > 0 && !e.knownParents(cs) {
		if path := pathOf(cs[:len(cs)-1]); e.parOf != path {
			if e.parOf == "" {
				e.Move(e.par, stage.Imm(-1))
			}
			e.dropParent()
			e.parOf = path
		}
	}
	of, is := e.parOf, e.parIs
	f()
	switch {
	case e.parOf != of: // what par holds depends on whether it was jumped over
		e.parOf = of
		e.dropParent()
	case of != "" && is != parOpen:
		e.parIs = parSkipped
	}
}

// findParent opens an unknown directory into par.
func (e *emitter) findParent(s stage.Step, cs []string) {
	e.holdParent(cs, func(path string) {
		e.openAt(&e.Fail, e.par, s, e.root, path, how(dirOpen, 0, inRoot))
	})
}

// openParent opens an unknown directory into par, making what is missing.
func (e *emitter) openParent(dest string, cs []string, mode uint32) {
	e.holdParent(cs, func(path string) {
		dir := parentDir{path, mode}
		l := e.missing[dir]
		if l == nil {
			l = new(stage.Label)
			e.missing[dir] = l
			e.cold = append(e.cold, func() { e.makeParents(l, cs, mode) })
		}
		e.SysOr(l, e.par, on(DoParents, dest), stage.Openat2, e.root, stage.Str(path), how(dirOpen, 0, inRoot), stage.Imm(howSize))
	})
}

// makeParents is where openParent goes when it fails. If that was because
// something is missing it makes that and goes back, and blames what else fails
// on the operation that led here.
func (e *emitter) makeParents(l *stage.Label, cs []string, mode uint32) {
	var failed, again stage.Label
	s := on(DoParents, someDest)
	e.Place(l)
	e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EAGAIN)), &again)
	e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.ENOENT)), &e.Fail)
	e.Move(e.first, stage.FailedOp)
	for i := range cs {
		var exists, retry, reopen, reopened, notMade, notOpened stage.Label
		sub := pathOf(cs[:i+1])
		find := func(onErr *stage.Label) {
			e.SysOr(onErr, e.dst, s, stage.Openat2, e.root, stage.Str(sub), how(dirOpen, 0, inRoot), stage.Imm(howSize))
		}
		e.Place(&retry)
		find(&notOpened)
		e.Jump(&exists)
		e.Place(&notOpened)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EAGAIN)), &retry)
		dir := e.par
		if i == 0 {
			dir = e.root
		}
		e.SysOr(&notMade, stage.Discard, s, stage.Mkdirat, dir, stage.Str(cs[i]), stage.Imm(int64(mode)))
		e.Place(&reopen)
		find(&reopened)
		e.Jump(&exists)
		// A link that leads nowhere exists already; opening it tells why
		// that is of no use.
		e.Place(&notMade)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EEXIST)), &reopen)
		e.Jump(&failed)
		e.Place(&reopened)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EAGAIN)), &reopen)
		e.Jump(&failed)
		e.Place(&exists)
		if i > 0 {
			e.close(e.par)
		}
		e.Move(e.par, e.dst)
	}
	e.Add(e.first, e.first, stage.Imm(stage.OpSize))
	e.JumpTo(e.first)
	e.Place(&again)
	e.JumpTo(stage.FailedOp)
	e.Place(&failed)
	e.blame(e.first, 0)
}

const howSize = 24

// how encodes a struct open_how.
func how(flags, mode, resolve uint64) stage.Blob {
	b := binary.LittleEndian.AppendUint64(nil, flags)
	b = binary.LittleEndian.AppendUint64(b, mode)
	return stage.Blob(binary.LittleEndian.AppendUint64(b, resolve))
}

// attr encodes a struct mount_attr that sets these flags.
func attr(set uint64) stage.Blob { return mountAttr(set, 0) }

// clearAttr encodes one that clears them.
func clearAttr(flags uint64) stage.Blob { return mountAttr(0, flags) }

func mountAttr(set, clear uint64) stage.Blob {
	b := binary.LittleEndian.AppendUint64(nil, set)
	b = binary.LittleEndian.AppendUint64(b, clear)
	return stage.Blob(append(b, make([]byte, 16)...))
}

const attrSize = 32

// dir makes dest an existing directory and returns the place to mount on.
func (e *emitter) dir(dest string) place {
	cs := components(dest)
	if len(cs) == 0 {
		return place{path: "."}
	}
	k, _ := e.fs.lookup(cs)
	if k == directory {
		return place{path: strings.Join(cs, "/")}
	}
	if k == absent && e.parents(dest, cs, e.parentMode) {
		path := strings.Join(cs, "/")
		e.Sys(on(DoMkdir, dest), stage.Mkdirat, cwd, stage.Str(path), stage.Imm(0o755))
		e.fs.set(cs, newDir())
		return place{path: path}
	}
	e.leaf(dest, cs)
	return place{fd: true, elsewhere: cs[len(cs)-1] == ".."}
}

// leaf opens the last component of an unknown directory into dst, making it if
// it is missing.
func (e *emitter) leaf(dest string, cs []string) {
	name := cs[len(cs)-1]
	if name == ".." {
		e.openUp(dest, cs)
		return
	}
	dir := stage.Arg(cwd)
	if e.parents(dest, cs, e.parentMode) {
		name = strings.Join(cs, "/")
	} else {
		dir = e.par
	}
	var failed stage.Label
	e.Try(e.tmp, on(DoMkdir, dest), stage.Mkdirat, dir, stage.Str(name), stage.Imm(0o755))
	open := func(onErr *stage.Label, do string) {
		e.openAt(onErr, e.dst, on(do, dest), dir, name, how(dirOpen, 0, noLinks))
	}
	open(&failed, DoOpenDest)
	e.cold = append(e.cold, func() { // fail again, now for good and under the right name
		var missing, link, file stage.Label
		e.Place(&failed)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.ENOENT)), &missing)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.EACCES)), &missing)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.ELOOP)), &link)
		e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.ENOTDIR)), &file)
		e.Jump(&e.Fail)
		e.Place(&missing)
		e.Sys(on(DoMkdir, dest), stage.Mkdirat, dir, stage.Str(name), stage.Imm(0o755))
		e.Jump(&e.Fail)
		e.Place(&link)
		open(&e.Fail, DoOnLink)
		e.Place(&file)
		open(&e.Fail, DoOnFile)
		e.Jump(&e.Fail)
	})
}

// openUp opens a destination whose last component is "..".
func (e *emitter) openUp(dest string, cs []string) {
	e.openAt(&e.Fail, e.dst, on(DoOpenDest, dest), e.root, strings.Join(cs, "/"), how(pathOpen, 0, inRoot))
}

// mount mounts a new file system at a place.
func (e *emitter) mount(s stage.Step, p place, fstype string, flags int64, data string) {
	path, opts := p.path, stage.Arg(stage.Imm(0))
	if data != "" {
		opts = stage.Str(data)
	}
	mountAt := func(path string) {
		e.Sys(s, stage.Mount, stage.Str(fstype), stage.Str(path), stage.Str(fstype), stage.Imm(flags), opts)
	}
	if p.fd {
		closed, done := new(stage.Label), new(stage.Label)
		e.SysOr(e.onErrno(unix.EACCES, closed), stage.Discard, s, stage.Fchdir, e.dst)
		mountAt(".")
		e.Sys(s, stage.Fchdir, e.root)
		e.Place(done)
		e.close(e.dst)
		e.hidden++
		name := fmt.Sprintf("mount%d", e.hidden)
		e.cold = append(e.cold, func() { // nobody may enter it, but a mount can be moved there
			e.Place(closed)
			e.Sys(s, stage.Fchdir, e.base)
			e.Sys(s, stage.Mkdirat, cwd, stage.Str(name), stage.Imm(0o755))
			mountAt(name)
			e.SysTo(e.src, s, stage.OpenTree, cwd, stage.Str(name), stage.Imm(unix.OPEN_TREE_CLOEXEC))
			e.Sys(s, stage.Fchdir, e.root)
			e.Sys(s, stage.MoveMount, e.src, stage.Str(""), e.dst, stage.Str(""), stage.Imm(fromFDToFD))
			e.close(e.src)
			e.Jump(done)
		})
	} else {
		mountAt(path)
	}
	e.covered(s.On, p)
}
