//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package workspace

import (
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// retry repeats a call that a signal has interrupted, which slow file systems
// (FUSE, NFS) let happen.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func openRoot(dir string) (int, *resolver, error) {
	var fd int
	err := retry(func() (err error) {
		fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, nil, err
	}
	r, err := newResolver(fd)
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, r, nil
}

func openat(dirfd int, name string, flags int, perm uint32) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Openat(dirfd, name, flags|unix.O_CLOEXEC, perm)
		return err
	})
	return fd, err
}

// walk opens path one component at a time, following no link and crossing no mount.
func (m mountID) walk(dirfd int, path string, flags int, perm uint32) (int, error) {
	at := dirfd
	leave := func() {
		if at != dirfd {
			unix.Close(at)
		}
	}
	for {
		name, rest, more := strings.Cut(path, "/")
		f := flags
		if more {
			f = lookUpFlags
		}
		if name == "" {
			name = "."
		}
		fd, err := openat(at, name, f|unix.O_NOFOLLOW, perm)
		if err == nil {
			if err = m.check(fd); err != nil {
				unix.Close(fd)
			}
		} else if err != unix.EEXIST {
			// Systems differ in the errno they have for a link.
			if st, serr := statAt(at, name); serr == nil && st.mode.Type() == fs.ModeSymlink {
				err = Symlink
			}
		}
		leave()
		if err != nil || !more {
			return fd, err
		}
		at, path = fd, rest
	}
}

// refine gives the errno of a refused open its reason.
func refine(err error) error {
	switch err {
	case unix.ELOOP:
		return Symlink
	case unix.EXDEV:
		return Mount
	case unix.ENXIO:
		return Special
	}
	return err
}

// openParent opens the parent of a directory; the caller must check that it is the one expected.
func openParent(fd int) (int, error) { return openat(fd, "..", lookUpFlags, 0) }

func fromUnix(s *unix.Stat_t) stat {
	mode := fs.FileMode(s.Mode & 0o777)
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		mode |= fs.ModeDir
	case unix.S_IFLNK:
		mode |= fs.ModeSymlink
	case unix.S_IFIFO:
		mode |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		mode |= fs.ModeSocket
	case unix.S_IFBLK:
		mode |= fs.ModeDevice
	case unix.S_IFCHR:
		mode |= fs.ModeDevice | fs.ModeCharDevice
	default:
		mode |= fs.ModeIrregular
	}
	if s.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if s.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if s.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return stat{
		Stat: Stat{
			Dev: uint64(s.Dev), Ino: uint64(s.Ino), Nlink: uint64(s.Nlink), UID: s.Uid, GID: s.Gid,
			ChangeTime: time.Unix(s.Ctim.Unix()),
		},
		mode: mode, size: s.Size, mtime: time.Unix(s.Mtim.Unix()),
	}
}

func statFD(fd int) (stat, error) {
	var s unix.Stat_t
	if err := retry(func() error { return unix.Fstat(fd, &s) }); err != nil {
		return stat{}, err
	}
	return fromUnix(&s), nil
}

func statAt(dirfd int, name string) (stat, error) {
	var s unix.Stat_t
	if err := retry(func() error { return unix.Fstatat(dirfd, name, &s, statFlags) }); err != nil {
		return stat{}, err
	}
	return fromUnix(&s), nil
}

func readFD(fd int, p []byte) (n int, err error) {
	err = retry(func() (err error) { n, err = unix.Read(fd, p); return err })
	return max(n, 0), err
}

// writeFD writes all of p.
func writeFD(fd int, p []byte) (written int, err error) {
	for len(p) > 0 && err == nil {
		var n int
		err = retry(func() (err error) { n, err = unix.Write(fd, p); return err })
		n = max(n, 0)
		written, p = written+n, p[n:]
	}
	return written, err
}

func truncateFD(fd int) error           { return retry(func() error { return unix.Ftruncate(fd, 0) }) }
func chmodFD(fd int, mode uint32) error { return retry(func() error { return unix.Fchmod(fd, mode) }) }
func chownFD(fd int, uid, gid int) error {
	return retry(func() error { return unix.Fchown(fd, uid, gid) })
}
func closeFD(fd int) error { return unix.Close(fd) }

func mkdirAt(dirfd int, name string) error {
	return retry(func() error { return unix.Mkdirat(dirfd, name, 0o700) })
}

func unlinkAt(dirfd int, name string) error {
	return retry(func() error { return unix.Unlinkat(dirfd, name, 0) })
}

func rmdirAt(dirfd int, name string) error {
	return retry(func() error { return unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR) })
}

func renameAt(fromfd int, from string, tofd int, to string) error {
	return retry(func() error { return unix.Renameat(fromfd, from, tofd, to) })
}

func chownAt(dirfd int, name string, uid, gid int) error {
	return retry(func() error { return unix.Fchownat(dirfd, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
}

// setTimeAt sets access and modification time, in nanoseconds since 1970.
func setTimeAt(dirfd int, name string, ns int64) error {
	ts := unix.NsecToTimespec(ns)
	return retry(func() error {
		return unix.UtimesNanoAt(dirfd, name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// newFile hands a descriptor over to an os.File, in blocking mode as usual.
func newFile(fd int, name string) *os.File {
	unix.SetNonblock(fd, false)
	return os.NewFile(uintptr(fd), name)
}
