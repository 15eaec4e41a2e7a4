package workspace

import (
	"errors"
	"io/fs"
	"iter"
	"math"
	"runtime"
	"sync"
)

// maxDepth is how many levels [Workspace.Walk] and [Workspace.Sanitize] go down,
// and what the other limits on depth are by default. It only bounds the work a
// guest can cause; the memory and the descriptors used do not grow with it.
const maxDepth = 10_000

// Entry is something found by [Workspace.Walk]. It is an [fs.DirEntry]. Its
// methods ask the file system only while the walk is at the entry: call
// what you need before the next iteration.
type Entry struct {
	d    *descent
	path string
	base int // where the name starts in path
	typ  fs.FileMode
	st   *stat
	fd   int // of a regular file that packing has opened, else -1
	skip bool
}

// Path is the name inside the workspace.
func (e *Entry) Path() string { return e.path }

// Name is the last component of Path.
func (e *Entry) Name() string { return e.path[e.base:] }

// IsDir reports whether the entry is a directory, not a link to one.
func (e *Entry) IsDir() bool { return e.typ.IsDir() }

// Type gives the type bits of the mode.
func (e *Entry) Type() fs.FileMode { return e.typ }

// Info describes the entry; a symbolic link is not followed.
func (e *Entry) Info() (fs.FileInfo, error) {
	st, err := e.stat()
	if err != nil {
		return nil, wrap("stat", e.path, err)
	}
	return &fileInfo{e.Name(), st}, nil
}

func (e *Entry) stat() (stat, error) {
	if e.st != nil {
		return *e.st, nil
	}
	if e.d == nil {
		return stat{}, errWalkedOn
	}
	st, err := statAt(e.d.fd(), e.Name())
	if err == nil {
		e.st = &st
	}
	return st, err
}

var errWalkedOn = errors.New("the walk has gone on to another entry")

// Open opens a regular file or a directory for reading, as [Workspace.Open] does.
func (e *Entry) Open() (*File, error) {
	if e.d == nil {
		return nil, wrap("open", e.path, errWalkedOn)
	}
	fd, st, err := e.d.r.openFile(e.d.fd(), e.Name(), read)
	if err != nil {
		return nil, wrap("open", e.path, err)
	}
	return &File{f: newFile(fd, e.path), path: e.path, st: st}, nil
}

// SkipDir keeps the walk out of the directory that the entry is.
func (e *Entry) SkipDir() { e.skip = true }

// Walk iterates over everything below a directory: each directory's entries
// sorted by name, a directory before what is in it. Only real directories are
// gone into. The directory itself is not among the entries.
//
// An entry that could not be read, or a directory 10,000 levels down, comes with an
// error, after which the walk goes on. With a nil entry the walk is over: its
// directory could not be opened.
//
// The descriptors held do not grow with the depth, nor the memory with the
// number of files, save for one list of names per level.
func (w *Workspace) Walk(name string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		path, err := clean(name)
		if err != nil {
			yield(nil, wrap("walk", name, err))
			return
		}
		err = w.walk(path, bounds{depth: maxDepth, names: Unlimited}, func(e *Entry, err error) error {
			if !yield(e, wrap("walk", e.path, err)) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(nil, wrap("walk", path, err))
		}
	}
}

var errStop = errors.New("stop")

// bounds limits a walk: the levels it goes down, and the names in one directory,
// all of which it has to hold to sort them. Negative is no limit. With stat the
// entries of a directory are looked at as it is listed, several at a time.
type bounds struct {
	depth, names int64
	stat         bool
}

// walk calls visit for everything below a directory; see Walk. A directory that
// cannot be entered is visited twice, the second time with the error. An error of
// visit ends the walk.
func (w *Workspace) walk(path string, max bounds, visit func(*Entry, error) error) error {
	start, err := w.dup(path, list)
	if err != nil {
		return err
	}
	defer closeFD(start)
	d := newDescent(w.r, start)
	defer d.close()
	names, err := max.list(start, 0)
	if err != nil {
		return err
	}
	if path != "" {
		path += "/"
	}
	for {
		rest := &names
		if len(d.levels) > 0 {
			rest = &d.top().rest
		}
		if len(*rest) == 0 {
			if len(d.levels) == 0 {
				return nil
			}
			if lost, ok := d.leave(); !ok {
				if err := visit(lostEntry(path+lost), Unreadable); err != nil {
					return err
				}
			}
			continue
		}
		n := (*rest)[0]
		*rest = (*rest)[1:]
		e := &Entry{d: d, path: path + d.path(n.name), typ: n.typ, st: n.st, fd: -1}
		e.base = len(e.path) - len(n.name)
		if n.typ == typeUnknown {
			st, err := e.stat()
			if err != nil {
				if err := visit(e, err); err != nil {
					return err
				}
				continue
			}
			e.typ = st.mode.Type()
		}
		if err := visit(e, nil); err != nil {
			return err
		}
		if e.typ.IsDir() && !e.skip {
			err := d.descend(n.name, max)
			if err != nil {
				err = visit(e, err)
			}
			if err != nil {
				return err
			}
		}
		e.d = nil
	}
}

func lostEntry(path string) *Entry {
	dir, _ := split(path)
	e := &Entry{path: path, typ: fs.ModeDir, fd: -1}
	if dir != "" {
		e.base = len(dir) + 1
	}
	return e
}

// descend enters a directory and reads its names.
func (d *descent) descend(name string, max bounds) error {
	if err := d.enter(name, list); err != nil {
		return err
	}
	names, err := max.list(d.fd(), len(d.levels))
	if err != nil {
		d.leave()
		return err
	}
	d.top().rest = names
	return nil
}

// list reads the names of a directory, sorted. level is the number of directories above.
func (b bounds) list(fd, level int) ([]dirent, error) {
	most := -1
	if b.names >= 0 {
		most = int(min(b.names, math.MaxInt32)) + 1
	}
	names, err := readNames(fd, most)
	switch {
	case err != nil:
		return nil, err
	case b.names >= 0 && int64(len(names)) > b.names:
		return nil, &LimitError{"workspace", "max_entries", b.names}
	case b.depth >= 0 && int64(level) >= b.depth && len(names) > 0:
		return nil, &LimitError{"workspace", "max_depth", b.depth}
	}
	sortNames(names)
	if b.stat {
		statAll(fd, names)
	}
	return names, nil
}

// statAll looks at many files at once. One that cannot be looked at is left for later.
func statAll(fd int, names []dirent) {
	const share = 32 // worth a goroutine
	stats := make([]stat, len(names))
	size := max(share, (len(names)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for from := 0; from < len(names); from += size {
		look := func() {
			for i := from; i < min(from+size, len(names)); i++ {
				if st, err := statAt(fd, names[i].name); err == nil {
					stats[i], names[i].st = st, &stats[i]
				}
			}
		}
		if from+size < len(names) {
			wg.Go(look)
		} else {
			look()
		}
	}
	wg.Wait()
}
