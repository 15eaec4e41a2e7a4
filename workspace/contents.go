package workspace

import (
	"context"
	"errors"
	"io/fs"
	"iter"
)

// Selection says which contents of a workspace are wanted.
type Selection struct {
	// Exclude, if not nil, is asked about every path. What it returns true for is left
	// out and not reported, a directory with all that is in it.
	Exclude  func(path string) bool
	OnUnsafe OnUnsafe
	Limits
}

// Contents iterates over what can be carried elsewhere: the regular files and
// directories that [Workspace.PackTar] would archive, in its order. What cannot is
// added to the report, or an error under [Fail]; so are the set-user-ID and set-group-ID
// bits that a copy must not have. The iteration ends with its first
// error, whose entry is nil. It does not count Files, Dirs and Bytes.
//
// A regular file with more links than names inside the workspace is left out. One
// that is completely inside appears under each of its names.
func (w *Workspace) Contents(ctx context.Context, sel Selection, report *Report) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		c := newCollector(ctx, w, "checkpoint", sel, report)
		c.stat = true
		err := c.run(func(e *Entry) error {
			st, err := e.stat()
			if err != nil {
				return c.unreadable(e.path, err)
			}
			if why := refusal(st.mode); why != "" {
				return c.skip(e.path, why)
			}
			if st.mode.Type() != e.typ {
				return c.skip(e.path, Unreadable)
			}
			if outside, err := c.linkedOutside(&st); err != nil {
				return err
			} else if outside {
				return c.skip(e.path, Hardlink)
			}
			report.stripped(e.path, st.mode, false)
			if !yield(e, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(nil, err)
		}
	}
}

// collector finds what can be carried elsewhere.
type collector struct {
	ctx    context.Context
	w      *Workspace
	op     string
	sel    Selection
	meter  meter
	report *Report
	stat   bool             // whether visit wants every entry's
	inside map[inode]uint64 // names per inode, counted when first needed
}

func newCollector(ctx context.Context, w *Workspace, op string, sel Selection, report *Report) *collector {
	return &collector{
		ctx: ctx, w: w, op: op, sel: sel, report: report,
		meter: meter{what: "workspace", max: sel.Limits.effective()},
	}
}

// run calls visit for every entry that claims to be a regular file or a directory.
func (c *collector) run(visit func(*Entry) error) error {
	err := c.w.walk("", bounds{c.meter.max.MaxDepth, c.meter.max.MaxEntries, c.stat}, func(e *Entry, err error) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		if err != nil {
			return c.unreadable(e.path, err)
		}
		if c.sel.Exclude != nil && c.sel.Exclude(e.path) {
			e.SkipDir()
			return nil
		}
		if err := c.meter.entry(); err != nil {
			return err
		}
		if err := c.meter.name(e.path); err != nil {
			return wrap(c.op, e.path, err)
		}
		if why := refusal(e.typ); why != "" {
			return c.skip(e.path, why)
		}
		return visit(e)
	})
	if err == errStop {
		return err
	}
	return wrap(c.op, "", err)
}

func (c *collector) skip(path string, why Reason) error {
	return c.sel.OnUnsafe.refuse(c.op, c.report.Skip, path, why)
}

// unreadable takes an error of one entry for a finding, unless it must end it all.
func (c *collector) unreadable(path string, err error) error {
	if limit := (*LimitError)(nil); errors.As(err, &limit) || errors.Is(err, ErrClosed) {
		return wrap(c.op, path, err)
	}
	why := Unreadable
	if r := Reason(""); errors.As(err, &r) {
		why = r
	}
	return c.skip(path, why)
}

// linkedOutside reports whether a file may have a name outside the workspace.
func (c *collector) linkedOutside(st *stat) (bool, error) {
	if st.mode.IsDir() || st.Nlink <= 1 {
		return false, nil
	}
	if c.inside == nil {
		var err error
		if c.inside, err = c.w.countLinks(c.ctx); err != nil {
			return false, err
		}
	}
	return st.Nlink > c.inside[st.inode()], nil
}

// countLinks counts the names of the files that have more than one. It counts what is excluded
// from packing too.
func (w *Workspace) countLinks(ctx context.Context) (map[inode]uint64, error) {
	names := map[inode]uint64{}
	err := w.walk("", bounds{depth: maxDepth, names: Unlimited, stat: true}, func(e *Entry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err != nil || e.typ != 0 {
			return nil // what cannot be read has no names inside
		}
		if st, err := e.stat(); err == nil && st.Nlink > 1 {
			names[st.inode()]++
		}
		return nil
	})
	return names, err
}

// stripped reports the privileges that a copy of a file will not have.
func (r *Report) stripped(path string, mode fs.FileMode, capability bool) {
	if mode&fs.ModeSetuid != 0 {
		r.Change(path, Setuid)
	}
	if mode&fs.ModeSetgid != 0 {
		r.Change(path, Setgid)
	}
	if capability {
		r.Change(path, Capability)
	}
}
