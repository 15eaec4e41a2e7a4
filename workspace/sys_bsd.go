//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package workspace

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	lookUpFlags = unix.O_RDONLY | unix.O_DIRECTORY
	statFlags   = unix.AT_SYMLINK_NOFOLLOW
)

// resolver opens names below a directory descriptor, component by component.
type resolver struct{ mount mountID }

func newResolver(root int) (*resolver, error) {
	st, err := statFD(root)
	return &resolver{mountID{st.Dev}}, err
}

func (r *resolver) open(dirfd int, path string, how how) (int, error) {
	flags, perm := lookUpFlags, uint32(0)
	switch how {
	case read, readListed:
		flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	case write:
		flags = unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY
	case createNew:
		flags, perm = unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600
	}
	fd, err := r.mount.walk(dirfd, path, flags, perm)
	return fd, refine(err)
}

// openFile opens a regular file or a directory for reading, or a regular file
// for writing. What is there is inspected before it is opened, and again after.
func (r *resolver) openFile(dirfd int, path string, how how) (int, stat, error) {
	dir, base := split(path)
	parent, err := r.open(dirfd, dir, lookUp)
	if err != nil {
		return -1, stat{}, err
	}
	defer unix.Close(parent)
	if base == "" {
		base = "."
	}
	st, err := statAt(parent, base)
	if err == nil {
		err = openable(st.mode, how)
	}
	if err != nil {
		return -1, st, err
	}
	fd, err := r.open(parent, base, how)
	if err != nil {
		return -1, st, err
	}
	if st, err = statFD(fd); err == nil {
		err = openable(st.mode, how)
	}
	if err != nil {
		unix.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

func (r *resolver) openListed(dirfd int, name string) (int, stat, error) {
	return r.openFile(dirfd, name, readListed)
}

func openable(mode fs.FileMode, how how) error {
	if why := refusal(mode); why != "" {
		return why
	}
	if how == write && mode.IsDir() {
		return Directory
	}
	return nil
}

// mountID is the device a workspace lies on.
type mountID struct{ dev uint64 }

func (m mountID) check(fd int) error {
	st, err := statFD(fd)
	if err == nil && st.Dev != m.dev {
		err = Mount
	}
	return err
}

// readNames reads up to max names of a directory, all of them if max is negative.
// The order is the file system's.
func readNames(fd, max int) ([]dirent, error) {
	own, err := openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(own), ".")
	defer f.Close()
	var entries []dirent
	names, err := f.Readdirnames(max)
	for _, name := range names {
		entries = append(entries, dirent{name: name, typ: typeUnknown})
	}
	if len(names) == 0 && max >= 0 {
		err = nil // io.EOF: the directory is empty
	}
	return entries, err
}

// chmodAt never follows a link.
func chmodAt(dirfd int, name string, mode uint32) error {
	return retry(func() error { return unix.Fchmodat(dirfd, name, mode, unix.AT_SYMLINK_NOFOLLOW) })
}

// File capabilities are a Linux thing.
func hasCapability(int) bool   { return false }
func dropCapability(int) error { return nil }
