//go:build linux

package main

import (
	"bytes"
	"io"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// inheritedFDs are the descriptors from 3 up that this process was started
// with. Whatever else is open is its own, and none of the caller's business.
type inheritedFDs struct {
	open []int
	all  []int // those too that something else than the command is to use
}

// inherited lists them. What the caller handed down is not close-on-exec: it
// would not have survived; everything of our own is.
func inherited() *inheritedFDs {
	var f inheritedFDs
	check := func(fd int) (open bool) {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			f.open = append(f.open, fd)
		}
		return err == nil
	}
	if !checkAll(check) {
		f.open = nil
		names, err := openNumbers()
		if err != nil { // no /proc: try the numbers
			var rl unix.Rlimit
			last := uint64(1 << 16)
			if unix.Getrlimit(unix.RLIMIT_NOFILE, &rl) == nil {
				last = min(last, rl.Cur)
			}
			for fd := range int(last) {
				check(fd)
			}
		}
		for _, n := range names {
			if fd, err := strconv.Atoi(n); err == nil {
				check(fd)
			}
		}
		slices.Sort(f.open)
	}
	f.all = slices.Clone(f.open)
	return &f
}

// checkAll checks all numbers up to the last that is open, if the kernel, which
// does since Linux 6.2, tells how many are and they are low, as they mostly are.
func checkAll(check func(fd int) (open bool)) bool {
	const low = 32
	var st unix.Stat_t
	if unix.Stat("/proc/self/fd", &st) != nil || st.Size == 0 {
		return false
	}
	found := int64(0)
	for fd := range low {
		if check(fd) {
			if found++; found == st.Size {
				return true
			}
		}
	}
	return false
}

// openNumbers lists /proc/self/fd without the runtime's poller, which would take
// descriptors of its own and longer than all the rest.
func openNumbers() (names []string, err error) {
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	buf := make([]byte, 4096)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n == 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

func (f *inheritedFDs) has(fd int) bool { return fd <= 2 || slices.Contains(f.open, fd) }

// forget drops a descriptor that has been closed.
func (f *inheritedFDs) forget(fd int) {
	f.open = slices.DeleteFunc(f.open, func(o int) bool { return o == fd })
}

// closeAll closes every one that is still open, except for some.
func (f *inheritedFDs) closeAll(except ...*int) {
	for _, fd := range f.all {
		if !slices.ContainsFunc(except, func(e *int) bool { return e != nil && *e == fd }) {
			unix.Close(fd)
		}
	}
	f.all = nil
}

// ReadAll reads a descriptor of the caller's to its end and closes it.
func (f *inheritedFDs) ReadAll(fd int) ([]byte, error) {
	if !f.has(fd) {
		return nil, unix.EBADF
	}
	var st unix.Stat_t
	unix.Fstat(fd, &st) // what has no size is left to grow
	data := bytes.NewBuffer(make([]byte, 0, min(st.Size, 1<<20)+bytes.MinRead))
	_, err := data.ReadFrom(rawFD(fd))
	f.close(fd)
	return data.Bytes(), err
}

func (f *inheritedFDs) close(fd int) {
	unix.Close(fd)
	f.forget(fd)
	f.all = slices.DeleteFunc(f.all, func(o int) bool { return o == fd })
}

// A rawFD reads and writes a descriptor that stays the caller's: no os.File,
// which would close it behind our back or change its mode.
type rawFD int

func (fd rawFD) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := fd.wait(unix.POLLIN); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (fd rawFD) Write(b []byte) (int, error) {
	for done := 0; ; {
		n, err := unix.Write(int(fd), b[done:])
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := fd.wait(unix.POLLOUT); err != nil {
				return done, err
			}
		case err != nil:
			return done, err
		default:
			if done += n; done == len(b) {
				return done, nil
			}
		}
	}
}

func (fd rawFD) wait(events int16) error {
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, -1)
	if err == unix.EINTR {
		return nil
	}
	return err
}
