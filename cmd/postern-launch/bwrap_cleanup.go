//go:build linux

package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/populationgenomics/postern-go/mounts"
	"golang.org/x/sys/unix"
)

// Mountpoints are files and directories of the host that had to be made for
// something to be mounted on them.
type mountpoints []mountpoint

type mountpoint struct {
	parent   int // descriptor of the directory it is in
	name     string
	dir      bool
	dev, ino uint64
}

// makeMountpoints makes those mount points of the tree that the launch would
// have to make below a writable bind, that is, on the host. Making them here,
// and only where nothing is, is what tells them from what was there before.
// What cannot be made is left to the launch, which says why.
//
// Destinations that lead through symbolic links are not followed; the launch
// makes those, and they stay.
func makeMountpoints(ops []mounts.Op) mountpoints {
	old := unix.Umask(0)
	defer unix.Umask(old)
	var made mountpoints
	for i, op := range ops {
		dest, dir := mountsOn(op)
		if dest == "" {
			continue
		}
		if root, rest := hostDir(ops[:i], dest); root != "" {
			made = append(made, makeBelow(root, rest, dir)...)
		}
	}
	return made
}

// mountsOn returns where an operation mounts something, if it does, and
// whether that has to be a directory.
func mountsOn(op mounts.Op) (dest string, dir bool) {
	switch op := op.(type) {
	case mounts.Bind:
		var st unix.Stat_t
		err := unix.Stat(op.Source, &st)
		if op.FD != nil {
			err = unix.Fstat(*op.FD, &st)
		}
		if err != nil {
			return "", false
		}
		return op.Dest, st.Mode&unix.S_IFMT == unix.S_IFDIR
	case mounts.BindData:
		return op.Dest, false
	case mounts.Tmpfs:
		return op.Dest, true
	case mounts.Overlay:
		return op.Dest, true
	case mounts.Proc:
		return op.Dest, true
	case mounts.Dev:
		return op.Dest, true
	case mounts.Mqueue:
		return op.Dest, true
	}
	return "", false
}

// hostDir returns the writable directory of the host that a destination lies
// in, and the path below it, or nothing.
func hostDir(before []mounts.Op, dest string) (root string, rest []string) {
	if strings.Contains(dest, "..") {
		return "", nil
	}
	dest = filepath.Clean(dest)
	for _, op := range slices.Backward(before) {
		at, _ := mountsOn(op)
		if at == "" {
			continue
		}
		rel, err := filepath.Rel(filepath.Clean(at), dest)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		bind, ok := op.(mounts.Bind)
		if !ok || bind.Mode == mounts.ReadOnly || bind.FD != nil || rel == "." {
			return "", nil
		}
		return bind.Source, strings.Split(rel, "/")
	}
	return "", nil
}

func makeBelow(root string, names []string, dir bool) mountpoints {
	var made mountpoints
	const open = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	at, err := unix.Open(root, open, 0)
	for i, name := range names {
		if err != nil {
			return made
		}
		last := i == len(names)-1
		isDir := dir || !last
		var create error
		switch {
		case last && dir:
			create = unix.Mkdirat(at, name, 0o755)
		case last:
			create = unix.Mknodat(at, name, unix.S_IFREG|0o444, 0)
		default:
			create = unix.Mkdirat(at, name, 0o700)
		}
		var st unix.Stat_t
		if create == nil && unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			made = append(made, mountpoint{at, name, isDir, st.Dev, st.Ino})
		}
		if last || create != nil && create != unix.EEXIST {
			return made // the descriptors stay open for as long as they are needed
		}
		at, err = unix.Openat(at, name, open|unix.O_NOFOLLOW, 0)
	}
	return made
}

// remove removes those that still are what was made: the same file, and empty.
func (m mountpoints) remove() {
	for _, p := range slices.Backward(m) {
		var st unix.Stat_t
		if unix.Fstatat(p.parent, p.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Dev != p.dev || st.Ino != p.ino {
			continue
		}
		switch {
		case p.dir:
			unix.Unlinkat(p.parent, p.name, unix.AT_REMOVEDIR) // fails if it is not empty
		case st.Size == 0 && st.Nlink == 1:
			unix.Unlinkat(p.parent, p.name, 0)
		}
	}
}
