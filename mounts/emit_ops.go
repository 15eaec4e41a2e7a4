//go:build linux

package mounts

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// Struct statx: offsets, and its size.
const (
	statxMode   = 28
	statxInode  = 32
	statxDevice = 136 // major and minor
	statxSize   = 256
)

func (m Mode) attrs() uint64 {
	switch m {
	case ReadOnly:
		return unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	case ReadWrite:
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	}
	return unix.MOUNT_ATTR_NOSUID
}

func (o Bind) emit(e *emitter) {
	if !o.Optional {
		o.open(e, &e.Fail)
		e.place(o.Dest, o.FollowDest, anySource)
		return
	}
	cs := components(o.Dest)
	known := e.fs.knownDepth(cs)
	mayBe := func() {
		var skip stage.Label
		o.open(e, e.onErrno(unix.ENOENT, &skip))
		e.place(o.Dest, o.FollowDest, anySource)
		e.Place(&skip)
	}
	if k, _ := e.fs.lookup(cs); k == entry { // whose parent is not needed
		e.dropParent()
		mayBe()
	} else {
		e.maybe(cs, mayBe)
	}
	if known < len(cs) { // whether this exists from here on is not known
		e.fs.set(cs[:known+1], &node{kind: unknown})
	}
}

// open clones the source into src.
func (o Bind) open(e *emitter, onErr *stage.Label) {
	source := o.Source
	if o.FD != nil {
		source = fmt.Sprintf("descriptor %d", *o.FD)
		e.openFD(*o.FD, source)
	} else {
		e.SysOr(onErr, e.src, on(DoSource, source), stage.OpenTree, cwd, stage.Str(source), stage.Imm(cloneTree|unix.AT_RECURSIVE))
	}
	e.Sys(on(DoFlags, source), stage.MountSetattr, e.src, stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), attr(o.Mode.attrs()), stage.Imm(attrSize))
}

// openFD clones what an open descriptor refers to into src. The kernel clones
// only mounts of its caller's namespace, and the descriptor is from another:
// so this goes by the path, and fails unless that still is the same file.
func (e *emitter) openFD(fd int, source string) {
	s := on(DoSource, source)
	path, was := e.Mem(unix.PathMax), e.Mem(statxSize)
	e.Sys(s, stage.Readlinkat, cwd, stage.Str(fmt.Sprintf("/proc/self/fd/%d", fd)), path, stage.Imm(unix.PathMax-1))
	e.SysTo(e.src, s, stage.OpenTree, cwd, path, stage.Imm(cloneTree|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW))
	e.Sys(s, stage.Statx, stage.FD(fd), stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH), stage.Imm(unix.STATX_INO), was)
	e.Sys(s, stage.Statx, e.src, stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH), stage.Imm(unix.STATX_INO), e.stat)
	var other stage.Label
	for _, off := range []int{statxInode, statxDevice} {
		e.Load64(e.tmp, e.stat, stage.Imm(off))
		e.Load64(e.dst, was, stage.Imm(off))
		e.If(stage.Jne, e.tmp, e.dst, &other)
	}
	e.Try(stage.Discard, s, stage.Close, stage.FD(fd))
	e.cold = append(e.cold, func() {
		e.Place(&other)
		e.Sys(on(DoSameFile, source), stage.Close, stage.Imm(-1)) // an errno to fail with
	})
}

func (o Tmpfs) emit(e *emitter) {
	normal := e.parentMode
	e.parentMode = parentPerm(perm(o.Perm, 0o755))
	p := e.dir(o.Dest)
	e.parentMode = normal
	e.mount(on(DoTmpfs, o.Dest), p, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, o.options())
	e.set(o.Dest, newDir())
}

func (o Mqueue) emit(e *emitter) {
	p := e.dir(o.Dest)
	e.mount(on(DoMqueue, o.Dest), p, "mqueue", 0, "")
	e.set(o.Dest, &node{kind: unknown})
}

func (o Proc) emit(e *emitter) {
	p := e.dir(o.Dest)
	if o.Host {
		e.SysTo(e.src, on(DoSource, "/proc"), stage.OpenTree, cwd, stage.Str("/proc"), stage.Imm(cloneTree|unix.AT_RECURSIVE))
		e.Sys(on(DoFlags, "/proc"), stage.MountSetattr, e.src, stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), attr(ReadWrite.attrs()), stage.Imm(attrSize))
		e.attach(o.Dest, p)
	} else {
		e.mount(on(DoProc, o.Dest), p, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	e.inside(o.Dest, func(name func(string) string) {
		readOnly := func(s stage.Step, path string) {
			e.Sys(s, stage.MountSetattr, cwd, stage.Str(path), stage.Imm(unix.AT_RECURSIVE), attr(ReadOnly.attrs()|unix.MOUNT_ATTR_NOEXEC), stage.Imm(attrSize))
		}
		for _, m := range o.Masks {
			s := on(DoMask, o.Dest+"/"+m)
			var skip stage.Label
			e.SysOr(e.onErrno(unix.ENOENT, &skip), stage.Discard, s, stage.Mount, stage.Str(name(m)), stage.Str(name(m)), stage.Imm(0), stage.Imm(unix.MS_BIND|unix.MS_REC), stage.Imm(0))
			if o.Host {
				readOnly(s, name(m))
			}
			e.Place(&skip)
		}
		if len(o.Hidden) > 0 { // or else its absence would look like that of what it is to cover
			e.Sys(on(DoSource, "/dev/null"), stage.Statx, cwd, stage.Str("/dev/null"), stage.Imm(0), stage.Imm(unix.STATX_TYPE), e.stat)
		}
		for _, h := range o.Hidden { // a device on a mount without devices cannot be opened
			var skip stage.Label
			e.SysOr(e.onErrno(unix.ENOENT, &skip), stage.Discard, on(DoMask, o.Dest+"/"+h), stage.Mount, stage.Str("/dev/null"), stage.Str(name(h)), stage.Imm(0), stage.Imm(unix.MS_BIND), stage.Imm(0))
			e.Place(&skip)
		}
		if len(o.Masks)+len(o.Hidden) > 0 && !o.Host {
			// All at once, and then the mount they lie in is made writable again.
			s := on(DoMask, o.Dest)
			readOnly(s, name("."))
			e.Sys(s, stage.MountSetattr, cwd, stage.Str(name(".")), stage.Imm(0), clearAttr(unix.MOUNT_ATTR_RDONLY), stage.Imm(attrSize))
		}
	})
	if o.Host {
		e.set(o.Dest, &node{kind: unknown})
	} else {
		e.set(o.Dest, newProcfs())
	}
}

// inside runs part of a program that names files below a directory just
// mounted at dest: name gives their path from the working directory.
func (e *emitter) inside(dest string, f func(name func(string) string)) {
	cs := components(dest)
	path := strings.Join(cs, "/")
	if k, _ := e.fs.lookup(cs); k == directory && len(cs) > 0 {
		f(func(n string) string { return path + "/" + n })
		return
	}
	s := on(DoOpenDest, dest)
	if path == "" {
		path = "."
	}
	e.openAt(&e.Fail, e.dst, s, e.root, path, how(dirOpen, 0, inRoot))
	e.Sys(s, stage.Fchdir, e.dst)
	e.close(e.dst)
	f(func(n string) string { return n })
	e.Sys(s, stage.Fchdir, e.root)
}

func (o Dev) emit(e *emitter) {
	p := e.dir(o.Dest)
	e.mount(on(DoTmpfs, o.Dest), p, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, Tmpfs{Size: o.Size, Inodes: o.Inodes}.options())
	top := newDir()
	e.inside(o.Dest, func(name func(string) string) {
		bind := func(source, n string) {
			s := on(DoDevice, source)
			e.Sys(s, stage.Mknodat, cwd, stage.Str(name(n)), stage.Imm(unix.S_IFREG|0o444), stage.Imm(0))
			e.Sys(s, stage.Mount, stage.Str(source), stage.Str(name(n)), stage.Imm(0), stage.Imm(unix.MS_BIND), stage.Imm(0))
			top.children[n] = &node{kind: file}
		}
		for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
			bind("/dev/"+n, n)
		}
		for _, l := range []Symlink{
			{"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
			{"/proc/self/fd", "fd"}, {"/proc/kcore", "core"}, {"pts/ptmx", "ptmx"},
		} {
			e.Sys(on(DoSymlink, o.Dest+"/"+l.Dest), stage.Symlinkat, stage.Str(l.Target), cwd, stage.Str(name(l.Dest)))
			top.children[l.Dest] = &node{kind: symlink, target: l.Target}
		}
		e.Sys(on(DoMkdir, o.Dest+"/shm"), stage.Mkdirat, cwd, stage.Str(name("shm")), stage.Imm(0o755))
		top.children["shm"] = newDir()
		pts := on(DoDevpts, o.Dest+"/pts")
		e.Sys(pts, stage.Mkdirat, cwd, stage.Str(name("pts")), stage.Imm(0o755))
		e.Sys(pts, stage.Mount, stage.Str("devpts"), stage.Str(name("pts")), stage.Str("devpts"), stage.Imm(unix.MS_NOSUID|unix.MS_NOEXEC), stage.Str("newinstance,ptmxmode=0666,mode=620"))
		top.children["pts"] = &node{kind: unknown}
		if o.Console != "" {
			bind(o.Console, "console")
		}
		s := on(DoFlags, o.Dest)
		flags := Device.attrs()
		if o.FixedNodes {
			flags |= unix.MOUNT_ATTR_RDONLY
		}
		e.Sys(s, stage.MountSetattr, cwd, stage.Str(name(".")), stage.Imm(unix.AT_RECURSIVE), attr(flags), stage.Imm(attrSize))
		if o.FixedNodes { // all but these two, which are the guest's own
			for _, n := range []string{".", "pts"} {
				e.Sys(s, stage.MountSetattr, cwd, stage.Str(name(n)), stage.Imm(0), clearAttr(unix.MOUNT_ATTR_RDONLY), stage.Imm(attrSize))
			}
		}
	})
	e.set(o.Dest, top)
}

func (o Dir) emit(e *emitter) {
	cs := components(o.Dest)
	if len(cs) == 0 {
		return
	}
	mode := int64(perm(o.Perm, 0o755))
	parentMode := parentPerm(uint32(mode))
	path := strings.Join(cs, "/")
	s := on(DoMkdir, o.Dest)
	k, _ := e.fs.lookup(cs)
	switch {
	case k == directory:
	case k == absent && e.parents(o.Dest, cs, parentMode):
		e.Sys(s, stage.Mkdirat, cwd, stage.Str(path), stage.Imm(mode))
		e.fs.set(cs, newDir())
	default:
		// Whatever is there may be a link to a directory; that will do.
		var missing, have stage.Label
		isDir := how(dirOpen, 0, inRoot)
		e.maybe(cs, func() {
			var failed stage.Label
			e.openAt(&failed, e.dst, s, e.root, path, isDir)
			e.close(e.dst)
			e.Jump(&have)
			e.cold = append(e.cold, func() {
				e.Place(&failed)
				e.If(stage.Jeq, stage.FailedErrno, stage.Imm(-int64(unix.ENOENT)), &missing)
				e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.ENOTDIR)), &e.Fail)
				e.openAt(&e.Fail, stage.Discard, on(DoOnFile, o.Dest), e.root, path, isDir)
				e.Jump(&e.Fail)
			})
			e.Place(&missing)
			dir, name := stage.Arg(cwd), path
			if !e.parents(o.Dest, cs, parentMode) {
				dir, name = e.par, cs[len(cs)-1]
			}
			e.Sys(s, stage.Mkdirat, dir, stage.Str(name), stage.Imm(mode))
			e.Place(&have)
		})
	}
}

// parentPerm is the mode of parents made for something with mode m: no more
// open to others than that.
func parentPerm(m uint32) uint32 {
	p := uint32(0o755)
	if m&0o070 == 0 {
		p &^= 0o050
	}
	if m&0o007 == 0 {
		p &^= 0o005
	}
	return p
}

func (o File) emit(e *emitter) {
	cs := components(o.Dest)
	s := on(DoCreate, o.Dest)
	mode := uint64(perm(o.Perm, 0o666))
	const create = unix.O_CREAT | unix.O_TRUNC | unix.O_WRONLY | unix.O_CLOEXEC | unix.O_NOCTTY
	if len(cs) == 0 || cs[len(cs)-1] == ".." {
		e.openAt(&e.Fail, e.dst, s, e.root, "./"+strings.Join(cs, "/"), how(create, mode, inRoot))
	} else if e.parents(o.Dest, cs, parentPerm(uint32(mode))) {
		e.openAt(&e.Fail, e.dst, s, e.root, strings.Join(cs, "/"), how(create, mode, noLinks))
	} else {
		e.openAt(&e.Fail, e.dst, s, e.par, cs[len(cs)-1], how(create, mode, noLinks))
	}
	e.write(o.Dest, o.Data)
	if k, _ := e.fs.lookup(cs); k == absent {
		e.fs.set(cs, &node{kind: file})
	}
}

// write writes data to dst and closes it.
func (e *emitter) write(dest, data string) {
	const chunk = 1 << 30
	s := on(DoWrite, dest)
	for len(data) > 0 {
		part := data[:min(len(data), chunk)]
		data = data[len(part):]
		var short, ok stage.Label
		e.SysTo(e.tmp, s, stage.Write, e.dst, stage.Blob(part), stage.Imm(len(part)))
		e.If(stage.Jne, e.tmp, stage.Imm(len(part)), &short)
		e.Place(&ok)
		e.cold = append(e.cold, func() { // the file system is full: one byte more gives the errno
			e.Place(&short)
			e.Sys(s, stage.Write, e.dst, stage.Blob(part[:1]), stage.Imm(1))
			e.Jump(&e.Fail)
		})
	}
	e.close(e.dst)
}

func (o BindData) emit(e *emitter) {
	e.hidden++
	name := fmt.Sprintf("data%d", e.hidden)
	const create = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC
	e.SysTo(e.dst, on(DoCreate, o.Dest), stage.Openat, e.base, stage.Str(name), stage.Imm(create), stage.Imm(int64(perm(o.Perm, 0o600))))
	e.write(o.Dest, o.Data)
	e.SysTo(e.src, on(DoSource, o.Dest), stage.OpenTree, e.base, stage.Str(name), stage.Imm(cloneTree))
	e.Sys(on(DoFlags, o.Dest), stage.MountSetattr, e.src, stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH), attr(o.Mode.attrs()), stage.Imm(attrSize))
	normal := e.parentMode
	e.parentMode = parentPerm(perm(o.Perm, 0o600))
	e.place(o.Dest, false, fileSource)
	e.parentMode = normal
}

func (o Symlink) emit(e *emitter) {
	cs := components(o.Dest)
	s := on(DoSymlink, o.Dest)
	if len(cs) == 0 {
		e.Sys(s, stage.Symlinkat, stage.Str(o.Target), e.root, stage.Str("."))
		return
	}
	dir, name := stage.Arg(cwd), strings.Join(cs, "/")
	k, n := e.fs.lookup(cs)
	if k == symlink && n.target == o.Target {
		return
	}
	if !e.parents(o.Dest, cs, e.parentMode) {
		dir, name = e.par, cs[len(cs)-1]
	}
	var exists, done stage.Label
	e.SysOr(e.onErrno(unix.EEXIST, &exists), stage.Discard, s, stage.Symlinkat, stage.Str(o.Target), dir, stage.Str(name))
	e.Place(&done)
	if k == absent {
		e.fs.set(cs, &node{kind: symlink, target: o.Target})
	}
	buf := e.Mem((len(o.Target) + 8) &^ 7)
	e.cold = append(e.cold, func() {
		e.Place(&exists)
		same(e, buf, o.Target, func() {
			e.SysTo(e.tmp, on(DoReadlink, o.Dest), stage.Readlinkat, dir, stage.Str(name), buf, stage.Imm(buf.Size))
		})
		e.Jump(&done)
	})
}

// same reads a string into zeroed memory and fails the program unless it is
// want.
func same(e *emitter, buf stage.Mem, want string, read func()) {
	read()
	var other stage.Label
	padded := want + strings.Repeat("\x00", buf.Size-len(want))
	for i := 0; i < buf.Size; i += 8 {
		e.Load64(e.tmp, buf, stage.Imm(i))
		e.If(stage.Jne, e.tmp, stage.Imm(binary.LittleEndian.Uint64([]byte(padded[i:]))), &other)
	}
	e.cold = append(e.cold, func() {
		e.Place(&other)
		e.Jump(&e.Fail) // with the EEXIST that led here
	})
}

func (o Chmod) emit(e *emitter) {
	cs := components(o.Dest)
	s := on(DoChmod, o.Dest)
	dir, name := stage.Arg(e.root), "./"+strings.Join(cs, "/")
	resolve := uint64(inRoot)
	find := on(DoFind, o.Dest)
	var only uint64
	if strings.HasSuffix(o.Dest, "/") { // a directory, or a link to one
		only = unix.O_DIRECTORY
		name += "/"
	} else if len(cs) > 0 && cs[len(cs)-1] != ".." && !e.knownParents(cs) {
		e.findParent(find, cs[:len(cs)-1])
		dir, name, resolve = e.par, cs[len(cs)-1], noLinks
	}
	mode := stage.Imm(int64(unixPerm(o.Perm)))
	unreadable, done := new(stage.Label), new(stage.Label)
	const read = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	e.openAt(e.onErrno(unix.EACCES, unreadable), e.dst, find, dir, name, how(read|only, 0, resolve))
	e.Sys(s, stage.Fchmod, e.dst, mode)
	e.Place(done)
	e.close(e.dst)
	e.cold = append(e.cold, func() {
		var failed stage.Label
		e.Place(unreadable)
		e.Move(e.first, stage.FailedOp)
		e.openAt(&e.Fail, e.dst, find, dir, name, how(pathOpen|unix.O_NOFOLLOW|only, 0, resolve))
		e.SysOr(&failed, stage.Discard, s, stage.Fchmodat2, e.dst, stage.Str(""), mode, stage.Imm(unix.AT_EMPTY_PATH))
		e.Jump(done)
		e.Place(&failed) // before Linux 6.6 only what can be read can be changed
		e.If(stage.Jne, stage.FailedErrno, stage.Imm(-int64(unix.ENOSYS)), &e.Fail)
		e.Move(stage.FailedErrno, stage.Imm(-int64(unix.EACCES)))
		e.blame(e.first, 0)
	})
}

func (e *emitter) knownParents(cs []string) bool {
	k, _ := e.fs.lookup(cs[:len(cs)-1])
	return k == directory
}

func (o RemountRO) emit(e *emitter) {
	s := on(DoRemount, o.Dest)
	path := "./" + strings.Join(components(o.Dest), "/")
	e.openAt(&e.Fail, e.dst, s, e.root, path, how(pathOpen, 0, inRoot))
	e.Sys(s, stage.MountSetattr, e.dst, stage.Str(""), stage.Imm(unix.AT_EMPTY_PATH), attr(ReadOnly.attrs()), stage.Imm(attrSize))
	e.close(e.dst)
}

func (o Overlay) emit(e *emitter) {
	e.hidden++
	s := on(DoOverlay, o.Dest)
	upper, work, at := fmt.Sprintf("upper%d", e.hidden), fmt.Sprintf("work%d", e.hidden), fmt.Sprintf("overlay%d", e.hidden)
	// It is mounted where the guest will not see it and then moved, so that
	// layers in memory can be named relative to the working directory.
	e.Sys(s, stage.Fchdir, e.base)
	e.Sys(s, stage.Mkdirat, cwd, stage.Str(at), stage.Imm(0o755))
	if o.Upper == "" && !o.ReadOnly {
		top := fmt.Sprintf("layer%d", e.hidden)
		e.Sys(s, stage.Mkdirat, cwd, stage.Str(top), stage.Imm(0o755))
		if o.Size > 0 {
			e.Sys(s, stage.Mount, stage.Str("tmpfs"), stage.Str(top), stage.Str("tmpfs"), stage.Imm(unix.MS_NOSUID|unix.MS_NODEV), stage.Str(Tmpfs{Size: o.Size}.options()))
		}
		upper, work = top+"/"+upper, top+"/"+work
		e.Sys(s, stage.Mkdirat, cwd, stage.Str(upper), stage.Imm(0o755))
		e.Sys(s, stage.Mkdirat, cwd, stage.Str(work), stage.Imm(0o755))
	}
	e.Sys(s, stage.Mount, stage.Str("overlay"), stage.Str(at), stage.Str("overlay"), stage.Imm(unix.MS_NOSUID|unix.MS_NODEV), stage.Str(o.data(upper, work)))
	e.SysTo(e.src, s, stage.OpenTree, cwd, stage.Str(at), stage.Imm(unix.OPEN_TREE_CLOEXEC))
	e.Sys(s, stage.Fchdir, e.root)
	e.attach(o.Dest, e.dir(o.Dest))
	e.set(o.Dest, &node{kind: unknown})
}

// data is the mount option string; upper and work name the layers in memory.
func (o Overlay) data(upper, work string) string {
	var b strings.Builder
	b.WriteString("lowerdir=")
	for i := len(o.Lower) - 1; i >= 0; i-- {
		b.WriteString(escapeLayer(o.Lower[i]))
		if i > 0 {
			b.WriteByte(':')
		}
	}
	if o.Upper != "" {
		upper, work = o.Upper, o.Work
	}
	if !o.ReadOnly {
		b.WriteString(",upperdir=" + escapeLayer(upper) + ",workdir=" + escapeLayer(work))
	}
	b.WriteString(",userxattr")
	return b.String()
}

// escapeLayer quotes what overlayfs would take for a separator.
func escapeLayer(p string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(p)
}
