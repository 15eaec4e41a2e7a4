package workspace

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// Workspace is a directory whose contents a guest controls. Its methods may be
// used by several goroutines at once.
//
// A Workspace that becomes unreachable without [Workspace.Close] is closed by the
// garbage collector, some time later, with a warning to [slog.Default].
type Workspace struct {
	dir     string
	root    *os.File
	raw     syscall.RawConn
	r       *resolver
	cleanup runtime.Cleanup
}

// Open opens an existing directory as a workspace. Symbolic links in dir itself,
// which the host chose, are followed; below it none is.
func Open(dir string) (*Workspace, error) {
	fd, r, err := openRoot(dir)
	if err != nil {
		if errors.Is(err, ErrUnsupported) {
			return nil, err
		}
		return nil, &fs.PathError{Op: "open workspace", Path: dir, Err: err}
	}
	root := newFile(fd, dir)
	raw, err := root.SyscallConn()
	if err != nil {
		root.Close()
		return nil, &fs.PathError{Op: "open workspace", Path: dir, Err: err}
	}
	w := &Workspace{dir: dir, root: root, raw: raw, r: r}
	w.cleanup = runtime.AddCleanup(w, func(root *os.File) {
		slog.Warn("a workspace was not closed; it is closed now", "workspace", root.Name())
		root.Close()
	}, root)
	return w, nil
}

// Close releases the workspace; methods called later fail with [ErrClosed]. Files
// opened from it stay open. Closing twice is no error.
func (w *Workspace) Close() error {
	w.cleanup.Stop()
	if err := w.root.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return wrap("close", "", err)
	}
	return nil
}

// HostRoot is the directory as it was given to [Open], for a log or a bind mount.
// Never join a name to it: that undoes everything this package does.
func (w *Workspace) HostRoot() string { return w.dir }

// withRoot lends out the root's descriptor, which cannot be closed meanwhile.
func (w *Workspace) withRoot(use func(fd int) error) error {
	var err error
	if w.raw.Control(func(fd uintptr) { err = use(int(fd)) }) != nil {
		return ErrClosed
	}
	return err
}

// dup opens a directory once more, so that closing the workspace does not disturb
// a long operation.
func (w *Workspace) dup(path string, how how) (fd int, err error) {
	err = w.withRoot(func(root int) (err error) {
		fd, err = w.r.open(root, path, how)
		return err
	})
	return fd, err
}

// at checks a name and lends out its directory and its last component.
func (w *Workspace) at(op, name string, use func(dirfd int, base string) error) error {
	path, err := clean(name)
	if err != nil {
		return wrap(op, name, err)
	}
	dir, base := split(path)
	if base == "" {
		return wrap(op, path, Directory)
	}
	err = w.withRoot(func(root int) error {
		if dir == "" {
			return use(root, base)
		}
		fd, err := w.r.open(root, dir, lookUp)
		if err != nil {
			return err
		}
		defer closeFD(fd)
		return use(fd, base)
	})
	return wrap(op, path, err)
}

// Stat describes what is at name, a symbolic link included; it never follows one.
func (w *Workspace) Stat(name string) (fs.FileInfo, error) {
	path, err := clean(name)
	if err != nil {
		return nil, wrap("stat", name, err)
	}
	st, err := w.stat(path)
	if err != nil {
		return nil, wrap("stat", path, err)
	}
	return newInfo(path, st), nil
}

func (w *Workspace) stat(path string) (st stat, err error) {
	if path == "" {
		err = w.withRoot(func(root int) (err error) { st, err = statFD(root); return err })
		return st, err
	}
	err = w.at("stat", path, func(dirfd int, base string) (err error) {
		st, err = statAt(dirfd, base)
		return err
	})
	return st, err
}

func (w *Workspace) is(name string, match func(fs.FileMode) bool) bool {
	path, err := clean(name)
	if err != nil {
		return false
	}
	st, err := w.stat(path)
	return err == nil && match(st.mode)
}

// Exists reports whether anything is at name, a dangling symbolic link included.
// It is false behind a symbolic link, for a refused name and on any error.
func (w *Workspace) Exists(name string) bool {
	return w.is(name, func(fs.FileMode) bool { return true })
}

// IsDir reports whether a directory is at name; a link to one does not count.
func (w *Workspace) IsDir(name string) bool { return w.is(name, fs.FileMode.IsDir) }

// IsFile reports whether a regular file is at name; a link to one does not count.
func (w *Workspace) IsFile(name string) bool { return w.is(name, fs.FileMode.IsRegular) }

// IsSymlink reports whether a symbolic link is at name.
func (w *Workspace) IsSymlink(name string) bool {
	return w.is(name, func(m fs.FileMode) bool { return m.Type() == fs.ModeSymlink })
}

// ReadDir lists a directory, sorted by name, with everything that is in it. Names
// that vanish meanwhile are left out. A guest decides how long the list is; use
// [Workspace.Walk] to stop early.
func (w *Workspace) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := w.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// readDir lists an open directory.
func readDir(fd int) ([]fs.DirEntry, error) {
	names, err := readNames(fd, -1)
	if err != nil {
		return nil, err
	}
	sortNames(names)
	infos := make([]fs.DirEntry, 0, len(names))
	for _, n := range names {
		if st, err := statAt(fd, n.name); err == nil {
			infos = append(infos, &fileInfo{n.name, st})
		}
	}
	return infos, nil
}

func sortNames(names []dirent) {
	slices.SortFunc(names, func(a, b dirent) int { return strings.Compare(a.name, b.name) })
}

// Mkdir creates a directory of mode 0700 (less the umask).
func (w *Workspace) Mkdir(name string) error {
	return w.at("mkdir", name, mkdirAt)
}

// MkdirAll creates a directory and those above it that are missing, each of mode
// 0700. It is no error if it is there already.
func (w *Workspace) MkdirAll(name string) error {
	path, err := clean(name)
	if err != nil {
		return wrap("mkdir", name, err)
	}
	root, err := w.dup("", lookUp)
	if err != nil {
		return wrap("mkdir", path, err)
	}
	defer closeFD(root)
	d := newDescent(w.r, root)
	defer d.close()
	_, err = d.reach(path, nil)
	return wrap("mkdir", path, err)
}

// Remove removes a file of any kind, a link itself, or an empty directory.
func (w *Workspace) Remove(name string) error {
	return w.at("remove", name, func(dirfd int, base string) error {
		err := unlinkAt(dirfd, base)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// Systems differ in the errno unlink has for a directory.
		rerr := rmdirAt(dirfd, base)
		if errors.Is(rerr, syscall.ENOTDIR) {
			return err
		}
		return rerr
	})
}

// Rename moves what is at oldname, a link itself, to newname, in place of what is there.
func (w *Workspace) Rename(oldname, newname string) error {
	return w.at("rename", oldname, func(fromfd int, from string) error {
		return w.at("rename", newname, func(tofd int, to string) error {
			return renameAt(fromfd, from, tofd, to)
		})
	})
}

// Chmod sets the permission bits of a regular file or a directory. Other bits in
// perm (set-user-ID and the like) are refused, and so is a file with hard links,
// since one of them may lie outside.
func (w *Workspace) Chmod(name string, perm fs.FileMode) error {
	if perm&^fs.ModePerm != 0 {
		return wrap("chmod", name, syscall.EINVAL)
	}
	return w.at("chmod", name, func(dirfd int, base string) error {
		if err := changeable(dirfd, base); err != nil {
			return err
		}
		return chmodAt(dirfd, base, uint32(perm))
	})
}

// Chown sets the owner of a regular file or a directory, under the rules of [Workspace.Chmod].
// A host that runs guests under another user ID needs it to hand files over.
func (w *Workspace) Chown(name string, uid, gid int) error {
	return w.at("chown", name, func(dirfd int, base string) error {
		if err := changeable(dirfd, base); err != nil {
			return err
		}
		return chownAt(dirfd, base, uid, gid)
	})
}

func changeable(dirfd int, base string) error {
	st, err := statAt(dirfd, base)
	if err != nil {
		return err
	}
	if why := refusal(st.mode); why != "" {
		return why
	}
	if !st.mode.IsDir() && st.Nlink > 1 {
		return Hardlink
	}
	return nil
}
