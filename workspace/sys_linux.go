package workspace

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	lookUpFlags = unix.O_PATH | unix.O_DIRECTORY
	statFlags   = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT

	resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

	// maxPath is what one system call takes, less the NUL; longer names are opened in parts.
	maxPath = unix.PathMax - 1
)

// noOpenat2 makes every Workspace opened from now on walk by component.
// Only tests set it.
var noOpenat2 bool

// resolver opens names below a directory descriptor.
type resolver struct {
	openat2 bool
	mount   mountID
}

func newResolver(root int) (*resolver, error) {
	if !noOpenat2 {
		fd, err := openat2(root, ".", lookUpFlags, 0)
		if err == nil {
			unix.Close(fd)
			return &resolver{openat2: true}, nil
		}
		// EPERM is how container runtimes used to say that they do not know the call.
		if err != unix.ENOSYS && err != unix.EPERM {
			return nil, err
		}
	}
	m, err := mountOf(root)
	return &resolver{mount: m}, err
}

func (r *resolver) open(dirfd int, path string, how how) (int, error) {
	flags, perm := lookUpFlags, uint32(0)
	switch how {
	case list:
		flags = unix.O_RDONLY | unix.O_DIRECTORY
	case createNew:
		flags, perm = unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_LARGEFILE, 0o600
	case readListed:
		flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_LARGEFILE
	case read, write:
		flags = unix.O_PATH
	}
	fd, err := r.resolve(dirfd, path, flags, perm)
	return fd, refine(err)
}

func (r *resolver) resolve(dirfd int, path string, flags int, perm uint32) (int, error) {
	if !r.openat2 {
		return r.mount.walk(dirfd, path, flags, perm)
	}
	if path == "" {
		path = "."
	}
	at := dirfd
	for len(path) > maxPath {
		cut := strings.LastIndexByte(path[:maxPath], '/')
		fd, err := openat2(at, path[:cut], lookUpFlags, 0)
		if at != dirfd {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, path = fd, path[cut+1:]
	}
	fd, err := openat2(at, path, flags, perm)
	if at != dirfd {
		unix.Close(at)
	}
	return fd, err
}

func openat2(dirfd int, path string, flags int, perm uint32) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Mode: uint64(perm), Resolve: resolve}
	for {
		fd, err = unix.Openat2(dirfd, path, &how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// openFile opens a regular file or a directory for reading, or a regular file
// for writing. The name is looked up once, without opening what is there; only
// after its type is known is that very inode opened.
func (r *resolver) openFile(dirfd int, path string, how how) (int, stat, error) {
	pin, err := r.open(dirfd, path, how)
	if err != nil {
		return -1, stat{}, err
	}
	defer unix.Close(pin)
	st, err := statFD(pin)
	if err != nil {
		return -1, st, err
	}
	if why := refusal(st.mode); why != "" {
		return -1, st, why
	}
	flags := unix.O_RDONLY
	if how == write {
		if st.mode.IsDir() {
			return -1, st, Directory
		}
		flags = unix.O_WRONLY
	}
	// Even a regular file can block: its owner may hold a lease on it (F_SETLEASE).
	fd, err := openat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(pin), flags|unix.O_NONBLOCK, 0)
	return fd, st, err
}

// openListed opens what a directory says is a regular file, and looks afterwards
// whether it is. That takes half the time of openFile; a guest that has swapped in a FIFO
// sees it opened, without blocking, and closed again.
func (r *resolver) openListed(dirfd int, name string) (int, stat, error) {
	fd, err := r.open(dirfd, name, readListed)
	if err != nil {
		return -1, stat{}, err
	}
	st, err := statFD(fd)
	if err == nil && refusal(st.mode) != "" {
		err = refusal(st.mode)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// mountID is the mount a workspace lies on, as far as the kernel tells.
type mountID struct {
	dev uint64
	id  uint64
	ok  bool // id is known (Linux 5.8)
}

func mountOf(fd int) (mountID, error) {
	var sx unix.Statx_t
	err := retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &sx)
	})
	if err == nil && sx.Mask&unix.STATX_MNT_ID != 0 {
		return mountID{id: sx.Mnt_id, ok: true}, nil
	}
	st, err := statFD(fd)
	return mountID{dev: st.Dev}, err
}

func (m mountID) check(fd int) error {
	got, err := mountOf(fd)
	if err == nil && got != m {
		err = Mount
	}
	return err
}

// readNames reads up to max names of a directory, all of them if max is negative.
// The order is the file system's.
func readNames(fd, max int) ([]dirent, error) {
	const nameOffset = 19 // of linux_dirent64: ino u64, off s64, reclen u16, type u8, name
	var names []dirent
	buf := make([]byte, 32<<10)
	for {
		var n int
		err := retry(func() (err error) { n, err = unix.Getdents(fd, buf); return err })
		if err != nil || n <= 0 {
			return names, err
		}
		for b := buf[:n]; len(b) >= nameOffset; {
			length := int(binary.NativeEndian.Uint16(b[16:]))
			name, _, _ := bytes.Cut(b[nameOffset:length], []byte{0})
			typ := direntType(b[18])
			b = b[length:]
			if string(name) == "." || string(name) == ".." {
				continue
			}
			if len(names) == max {
				return names, nil
			}
			names = append(names, dirent{name: string(name), typ: typ})
		}
	}
}

func direntType(t byte) fs.FileMode {
	switch t {
	case unix.DT_REG:
		return 0
	case unix.DT_DIR:
		return fs.ModeDir
	case unix.DT_LNK:
		return fs.ModeSymlink
	case unix.DT_FIFO:
		return fs.ModeNamedPipe
	case unix.DT_SOCK:
		return fs.ModeSocket
	case unix.DT_BLK:
		return fs.ModeDevice
	case unix.DT_CHR:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return typeUnknown
}

// chmodAt never follows a link.
func chmodAt(dirfd int, name string, mode uint32) error {
	err := retry(func() error { return unix.Fchmodat(dirfd, name, mode, unix.AT_SYMLINK_NOFOLLOW) })
	if err != unix.EOPNOTSUPP {
		return err
	}
	// Linux before 6.6: the descriptor, whatever it refers to, has a name in /proc.
	pin, err := openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pin)
	st, err := statFD(pin)
	if err != nil {
		return err
	}
	if st.mode.Type() == fs.ModeSymlink {
		return Symlink
	}
	return retry(func() error { return unix.Chmod("/proc/self/fd/"+strconv.Itoa(pin), mode) })
}

const capabilityXattr = "security.capability"

func hasCapability(fd int) bool {
	n, err := unix.Fgetxattr(fd, capabilityXattr, nil)
	return err == nil && n > 0
}

// dropCapability needs no privilege beyond owning the file: a chown that changes
// nothing makes the kernel drop the attribute.
func dropCapability(fd int) error {
	if err := unix.Fremovexattr(fd, capabilityXattr); err == nil || err == unix.ENODATA {
		return nil
	}
	if err := chownFD(fd, -1, -1); err != nil {
		return err
	}
	if hasCapability(fd) {
		return unix.EPERM
	}
	return nil
}
