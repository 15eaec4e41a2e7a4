package workspace

import (
	"context"
	"errors"
	"io/fs"
)

// Sanitize takes from the workspace, in place, what could give its finder a
// privilege on the host: set-user-ID and set-group-ID bits and file capabilities are
// removed from regular files and directories, and device nodes are deleted. The
// report's Changed lists all of it; Skipped lists what could not be dealt with: files that
// may have names outside (their inode is not touched) and what cannot be opened or changed.
//
// A guest that is still running can plant more at once.
func (w *Workspace) Sanitize(ctx context.Context) (Report, error) {
	var report Report
	c := newCollector(ctx, w, "sanitize", Selection{Limits: Limits{Unlimited, Unlimited, Unlimited, Unlimited}}, &report)
	err := w.walk("", bounds{depth: maxDepth, names: Unlimited}, func(e *Entry, err error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err == nil {
			err = c.sanitize(e)
		}
		if err != nil {
			return c.unreadable(e.path, err)
		}
		return nil
	})
	return report, wrap("sanitize", "", err)
}

func (c *collector) sanitize(e *Entry) error {
	switch refusal(e.typ) {
	case Device:
		err := unlinkAt(e.d.fd(), e.Name())
		if err == nil {
			c.report.Change(e.path, Device)
		}
		return gone(err)
	case "":
	default:
		return nil
	}
	st, err := e.stat()
	if err != nil {
		return gone(err)
	}
	privileged := st.mode&(fs.ModeSetuid|fs.ModeSetgid) != 0
	if st.mode.IsDir() && !privileged {
		return nil
	}
	fd, st, err := c.w.r.openFile(e.d.fd(), e.Name(), read)
	if errors.Is(err, fs.ErrPermission) && privileged && refusal(st.mode) == "" {
		// Its owner need not be able to read a file to change its mode, which drops nothing else.
		if err = changeable(e.d.fd(), e.Name()); err == nil {
			err = chmodAt(e.d.fd(), e.Name(), uint32(st.mode.Perm()))
		}
		if err == nil {
			c.report.stripped(e.path, st.mode, false)
		}
		return err
	}
	if err != nil {
		return gone(err)
	}
	defer closeFD(fd)
	capability := !st.mode.IsDir() && hasCapability(fd)
	if st.mode&(fs.ModeSetuid|fs.ModeSetgid) == 0 && !capability {
		return nil
	}
	if outside, err := c.linkedOutside(&st); err != nil {
		return err
	} else if outside {
		return Hardlink
	}
	if st.mode&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		sticky := uint32(0)
		if st.mode&fs.ModeSticky != 0 {
			sticky = 0o1000
		}
		if err := chmodFD(fd, uint32(st.mode.Perm())|sticky); err != nil {
			return err
		}
	}
	if capability {
		if err := dropCapability(fd); err != nil {
			return err
		}
	}
	c.report.stripped(e.path, st.mode, capability)
	return nil
}
