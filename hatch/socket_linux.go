package hatch

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// place is a socket in the file system: the directory and the socket itself,
// both held open. That keeps their inode numbers from being used again, so
// whether a path still leads to them can be asked for certain.
type place struct {
	path    string
	dir     *os.File
	node    *os.File
	madeDir bool
}

const openPath = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// listen makes a listening socket of mode 0666 at path, or as name in a new
// private directory if path is empty.
func listen(path, name string, backlog int) (_ *net.UnixListener, _ place, err error) {
	p := place{path: path}
	if path == "" {
		dir, err := privateDir()
		if err != nil {
			return nil, place{}, err
		}
		p.path, p.madeDir = filepath.Join(dir, name), true
	}
	if p.path, err = filepath.Abs(p.path); err != nil {
		return nil, place{}, &SocketError{Step: "find the absolute path of", Path: path, Err: err}
	}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	if n := len(p.path); n > MaxPath {
		hint := "choose a shorter one"
		if p.madeDir {
			hint = "choose one, or set TMPDIR to a shorter directory"
		}
		return nil, place{}, &SocketError{"listen on", p.path, hint, fmt.Errorf("%w: %d bytes, of at most %d", ErrPathTooLong, n, MaxPath)}
	}

	dir := filepath.Dir(p.path)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, place{}, &SocketError{Step: "open the socket's directory", Path: dir, Err: err}
	}
	p.dir = os.NewFile(uintptr(fd), dir)

	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, place{}, &SocketError{Step: "make a socket for", Path: p.path, Err: err}
	}
	file := os.NewFile(uintptr(sock), p.path)
	defer file.Close()

	if err := p.bind(sock); err != nil {
		return nil, place{}, err
	}
	// Through the descriptor, because a link put in the socket's place would
	// have its target's mode changed; and chmod(2), because the umask, which
	// bind honours, belongs to all threads of the process.
	if err := os.Chmod(fdPath(p.node), 0o666); err != nil {
		return nil, place{}, &SocketError{Step: "set the mode of", Path: p.path, Err: errno(err)}
	}
	if err := unix.Listen(sock, backlog); err != nil {
		return nil, place{}, &SocketError{Step: "listen on", Path: p.path, Err: err}
	}
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, place{}, &SocketError{Step: "listen on", Path: p.path, Err: err}
	}
	unixListener := listener.(*net.UnixListener)
	// The path is not the one it was bound by, and place removes it.
	unixListener.SetUnlinkOnClose(false)
	return unixListener, p, nil
}

func privateDir() (string, error) {
	dir, err := os.MkdirTemp("", "postern-")
	if err != nil {
		return "", &SocketError{Step: "make a directory for the socket in", Path: os.TempDir(), Err: errno(err)}
	}
	// MkdirTemp's 0700 is what the umask leaves of it.
	if err := os.Chmod(dir, 0o700); err != nil {
		os.Remove(dir)
		return "", &SocketError{Step: "set the mode of", Path: dir, Err: errno(err)}
	}
	return dir, nil
}

// bind gives the socket its path and opens what is now there.
func (p *place) bind(sock int) error {
	base := filepath.Base(p.path)
	// The directory that was opened, whatever has become of its path.
	addr := &unix.SockaddrUnix{Name: fdPath(p.dir) + "/" + base}
	if n := len(addr.Name); n > MaxPath {
		return &SocketError{"bind", p.path, "choose a shorter file name", fmt.Errorf("%w: the file name has %d bytes, of at most %d", ErrPathTooLong, len(base), MaxPath-(n-len(base)))}
	}
	err := unix.Bind(sock, addr)
	if err == unix.EADDRINUSE {
		if err := p.removeStale(base); err != nil {
			return err
		}
		err = unix.Bind(sock, addr)
	}
	if err != nil {
		return &SocketError{Step: "bind", Path: p.path, Err: err}
	}
	node, err := p.open(base)
	if err != nil {
		return &SocketError{Step: "open the new socket", Path: p.path, Err: err}
	}
	// Not necessarily the new socket, if others can write to the directory,
	// and then its mode is not ours to change.
	var st unix.Stat_t
	if err := unix.Fstat(int(node.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Nlink != 1 {
		node.Close()
		return &SocketError{"bind", p.path, "choose a directory that only you can write to", errors.Join(ErrInUse, err)}
	}
	p.node = node
	return nil
}

func (p *place) open(base string) (*os.File, error) {
	fd, err := unix.Openat(int(p.dir.Fd()), base, openPath, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

// removeStale removes a socket that nobody listens on. That is what a killed
// process leaves behind.
func (p *place) removeStale(base string) error {
	inUse := func(what string) error {
		return &SocketError{"bind", p.path, "remove it, or choose another path", fmt.Errorf("%w: %s is there", ErrInUse, what)}
	}
	node, err := p.open(base)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return &SocketError{Step: "open what is at", Path: p.path, Err: err}
	}
	defer node.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(node.Fd()), &st); err != nil {
		return &SocketError{Step: "stat", Path: p.path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return inUse("something other than a socket")
	}
	probe, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return &SocketError{Step: "make a socket to probe", Path: p.path, Err: err}
	}
	defer unix.Close(probe)
	if err := unix.Connect(probe, &unix.SockaddrUnix{Name: fdPath(node)}); err != unix.ECONNREFUSED {
		return inUse("a socket that is in use")
	}
	if err := unix.Unlinkat(int(p.dir.Fd()), base, 0); err != nil && err != unix.ENOENT {
		return &SocketError{Step: "remove the unused socket", Path: p.path, Err: err}
	}
	return nil
}

// remove undoes listen, as far as that got.
func (p *place) remove() error {
	var errs []error
	if p.node != nil {
		defer p.node.Close()
		base := filepath.Base(p.path)
		if there, err := p.open(base); err == nil {
			if same(there, p.node) {
				if err := unix.Unlinkat(int(p.dir.Fd()), base, 0); err != nil && err != unix.ENOENT {
					errs = append(errs, &SocketError{Step: "remove", Path: p.path, Err: err})
				}
			}
			there.Close()
		}
	}
	if p.madeDir {
		dir := filepath.Dir(p.path)
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, &SocketError{Step: "remove", Path: dir, Err: errno(err)})
		}
	}
	if p.dir != nil {
		p.dir.Close()
	}
	return errors.Join(errs...)
}

func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// errno drops what package os says around an errno and SocketError says too.
func errno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
