package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// maxHeld bounds the descriptors held for one tree, however deep it is.
const maxHeld = 64

// descent is a position in a tree: the chain of open directories from where it
// started down to where it is. Only the deepest maxHeld of them and the first
// keep their descriptors. Going back up to one that has lost its descriptor takes the ".." of
// the one below, which counts only if it is the very directory that was left.
type descent struct {
	r      *resolver
	base   int // not ours to close
	levels []level
	prefix []byte // the path of the deepest level, with a final slash unless empty
}

type level struct {
	fd   int // -1 once given up
	id   inode
	path int // length of the prefix
	rest []dirent
}

func newDescent(r *resolver, base int) *descent {
	return &descent{r: r, base: base}
}

// fd is the descriptor of the directory that the descent has reached.
func (d *descent) fd() int {
	if len(d.levels) == 0 {
		return d.base
	}
	return d.levels[len(d.levels)-1].fd
}

func (d *descent) top() *level { return &d.levels[len(d.levels)-1] }

func (d *descent) path(name string) string { return string(d.prefix) + name }

// enter goes down into a directory.
func (d *descent) enter(name string, how how) error {
	fd, err := d.r.open(d.fd(), name, how)
	if err != nil {
		return err
	}
	st, err := statFD(fd)
	if err != nil {
		closeFD(fd)
		return err
	}
	if n := len(d.levels) - maxHeld; n >= 0 && d.levels[n].fd >= 0 {
		closeFD(d.levels[n].fd)
		d.levels[n].fd = -1
	}
	d.prefix = append(append(d.prefix, name...), '/')
	d.levels = append(d.levels, level{fd: fd, id: st.inode(), path: len(d.prefix)})
	return nil
}

// leave goes up one level. If the guest has moved the directory meanwhile, the way
// back is lost: the descent goes up to the nearest directory it still holds, and
// leave returns the path of the one it could not return to.
func (d *descent) leave() (lost string, ok bool) {
	below := d.top().fd
	d.pop()
	if len(d.levels) == 0 || d.top().fd >= 0 {
		closeFD(below)
		return "", true
	}
	fd, err := openParent(below)
	closeFD(below)
	if err == nil {
		st, err := statFD(fd)
		if err == nil && st.inode() == d.top().id {
			d.top().fd = fd
			return "", true
		}
		closeFD(fd)
	}
	lost = strings.TrimSuffix(string(d.prefix), "/")
	for len(d.levels) > 0 && d.top().fd < 0 {
		d.pop()
	}
	return lost, false
}

func (d *descent) pop() {
	d.levels = d.levels[:len(d.levels)-1]
	n := 0
	if len(d.levels) > 0 {
		n = d.top().path
	}
	d.prefix = d.prefix[:n]
}

func (d *descent) close() {
	for _, l := range d.levels {
		if l.fd >= 0 {
			closeFD(l.fd)
		}
	}
	d.levels, d.prefix = nil, d.prefix[:0]
}

// reach moves the descent to the directory of this clean path, creating what is
// missing. made, if not nil, is called for each directory that was created.
// The descriptor returned is the descent's.
func (d *descent) reach(path string, made func(fd int, path string) error) (int, error) {
	for !under(path, d.prefix) {
		if _, ok := d.leave(); !ok {
			d.close()
		}
	}
	rest := path[min(len(d.prefix), len(path)):]
	for rest != "" {
		name, after, _ := strings.Cut(rest, "/")
		created := false
		err := d.enter(name, lookUp)
		if errors.Is(err, fs.ErrNotExist) {
			if err = mkdirAt(d.fd(), name); err == nil || errors.Is(err, fs.ErrExist) {
				created = err == nil
				err = d.enter(name, lookUp)
			}
		}
		if err != nil {
			if st, serr := statAt(d.fd(), name); serr == nil && !st.mode.IsDir() {
				err = notDirectory(st.mode)
			}
			return -1, wrap("mkdir", d.path(name), err)
		}
		if created && made != nil {
			if err := made(d.fd(), strings.TrimSuffix(string(d.prefix), "/")); err != nil {
				return -1, err
			}
		}
		rest = after
	}
	return d.fd(), nil
}

// under reports whether the directory with this prefix is path or above it.
func under(path string, prefix []byte) bool {
	n := len(prefix)
	switch {
	case n == 0:
		return true
	case n == len(path)+1:
		return path == string(prefix[:n-1])
	}
	return n <= len(path) && path[:n] == string(prefix)
}

// notDirectory says what is there instead of a directory.
func notDirectory(mode fs.FileMode) error {
	if why := refusal(mode); why != "" {
		return fmt.Errorf("%w: it %w", NotDirectory, why)
	}
	return NotDirectory
}
