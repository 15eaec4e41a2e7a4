package workspace

import (
	"errors"
	"io/fs"
	"syscall"
)

// RemoveAll removes what is at name and, if that is a directory, everything in it,
// however deep; a link itself, never what it points to. Nothing there is no error.
// With "." the workspace is emptied. Directories of the host's own user that the
// guest has left without permissions are removed too.
//
// It fails if the guest keeps adding files meanwhile.
func (w *Workspace) RemoveAll(name string) error {
	path, err := clean(name)
	if err != nil {
		return wrap("remove", name, err)
	}
	if path == "" {
		return wrap("remove", path, w.empty())
	}
	dir, _ := split(path)
	err = w.at("remove", path, func(dirfd int, base string) error { return removeTree(w.r, dirfd, dir, base) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *Workspace) empty() error {
	fd, err := w.dup("", list)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	names, err := readNames(fd, -1)
	for _, n := range names {
		if err == nil {
			err = removeTree(w.r, fd, "", n.name)
		}
	}
	return err
}

// maxRefills is how often a directory is emptied again because it was not empty
// when all its names had been removed.
const maxRefills = 8

var everything = bounds{depth: Unlimited, names: Unlimited}

// removal removes a tree depth first.
type removal struct {
	*descent
	dirs []doomed // one for each level of the descent
}

type doomed struct {
	name    string
	refills int
}

// removeTree removes base from the directory dirfd, whose path is dir.
func removeTree(r *resolver, dirfd int, dir, base string) error {
	t := removal{descent: newDescent(r, dirfd)}
	defer t.close()
	if dir != "" {
		dir += "/"
	}
	fail := func(name string, err error) error { return wrap("remove", dir+t.path(name), err) }

	if err := t.remove(base); err != nil {
		return fail(base, err)
	}
	for len(t.dirs) > 0 {
		if top := t.top(); len(top.rest) > 0 {
			name := top.rest[0].name
			top.rest = top.rest[1:]
			if err := t.remove(name); err != nil {
				return fail(name, err)
			}
			continue
		}
		if lost, ok := t.leave(); !ok {
			return wrap("remove", dir+lost, Unreadable)
		}
		last := &t.dirs[len(t.dirs)-1]
		err := gone(rmdirAt(t.fd(), last.name))
		if isNotEmpty(err) && last.refills < maxRefills {
			last.refills++
			if err = t.descend(last.name, everything); err == nil {
				continue
			}
		}
		if gone(err) != nil {
			return fail(last.name, err)
		}
		t.dirs = t.dirs[:len(t.dirs)-1]
	}
	return nil
}

// remove removes one name, or goes down into it if it is a directory with something in it.
func (t *removal) remove(name string) error {
	err := gone(unlinkAt(t.fd(), name))
	if err == nil {
		return nil
	}
	st, serr := statAt(t.fd(), name)
	if serr != nil {
		return gone(serr)
	}
	if !st.mode.IsDir() {
		return err
	}
	if err = gone(rmdirAt(t.fd(), name)); !isNotEmpty(err) {
		return err
	}
	if st.mode.Perm()&0o700 != 0o700 {
		// If that is not allowed the next step says so.
		_ = chmodAt(t.fd(), name, 0o700)
	}
	if err := t.descend(name, everything); err != nil {
		return gone(err)
	}
	t.dirs = append(t.dirs, doomed{name: name})
	return nil
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func isNotEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}
