package workspace

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
)

// RestoreOptions are the options of [Workspace.RestoreTar].
type RestoreOptions struct {
	OnUnsafe OnUnsafe
	Limits

	// PreserveModes gives files and directories the permissions the archive has for
	// them, less set-user-ID and the like; a directory always stays usable for its
	// owner. Otherwise they are 0600 and 0700.
	PreserveModes bool
	// PreserveTimes gives files, not directories, the modification times of the archive.
	PreserveTimes bool
	// Owner, if not nil, gets all files and directories that are made. It takes a
	// privileged host, whose guest runs under another user ID and could not read them otherwise.
	Owner *Owner
}

// Owner is a user and a group ID, as the host knows them.
type Owner struct{ UID, GID int }

// RestoreTar unpacks a tar archive into the workspace. Compression by gzip, bzip2
// or zstd is recognised; any other is a [*CompressionError].
//
// Only regular files and directories are made, missing parents included. Members
// with names that escape, links and special files are left out and reported, or
// an error under [Fail]. What is in the workspace already is never followed and never written
// through: a file takes the place of a file of the same name, whose permissions it keeps,
// and of a link or special file, which is reported. A file where a directory is, or a directory
// where anything else is, is an error.
//
// After an error the report tells what has been restored; no file is left
// half-written. The archive is read to its end mark, and up to a megabyte of what
// follows.
func (w *Workspace) RestoreTar(ctx context.Context, src io.Reader, opts RestoreOptions) (Report, error) {
	var report Report
	root, err := w.dup("", lookUp)
	if err != nil {
		return report, wrap("restore", "", err)
	}
	defer closeFD(root)
	limits := meter{what: "archive", max: opts.Limits.effective()}
	r := restorer{
		ctx: ctx, opts: opts, report: &report, tree: newDescent(w.r, root),
		written: limits, dropped: limits, buf: make([]byte, restoreBuffer),
	}
	defer r.tree.close()
	err = r.restore(src)
	return report, wrap("restore", "", err)
}

const restoreBuffer = 1 << 20

type restorer struct {
	ctx     context.Context
	opts    RestoreOptions
	report  *Report
	tree    *descent
	written meter
	dropped meter // contents of members that are skipped are read all the same
	buf     []byte
}

func (r *restorer) restore(src io.Reader) error {
	plain, release, err := decompress(src)
	if err != nil {
		return err
	}
	defer release()
	overhead := &throttle{r: plain, left: maxOverhead}
	archive := tar.NewReader(overhead)
	for {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if err == io.EOF {
			return drain(plain)
		}
		if err != nil {
			return readError(err)
		}
		if err := r.written.entry(); err != nil {
			return err
		}
		overhead.left = maxOverhead
		if hasContent(h.Typeflag) {
			overhead.left += min(h.Size, math.MaxInt64-maxOverhead)
		}
		if h.Typeflag != tar.TypeXGlobalHeader {
			if err := r.member(h, archive); err != nil {
				return err
			}
		}
	}
}

// maxOverhead bounds, in bytes, what precedes one member: its headers with their
// extensions, which the tar reader would go on reading for ever.
const maxOverhead = 8 << 20

// throttle fails when more is read than allowed.
type throttle struct {
	r    io.Reader
	left int64
}

func (t *throttle) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, &LimitError{"archive", "max_header", maxOverhead}
	}
	n, err := t.r.Read(p[:min(int64(len(p)), t.left)])
	t.left -= int64(n)
	return n, err
}

// drain reads on behind the archive's end, where the checksum of a compressed stream is.
func drain(r io.Reader) error {
	_, err := io.CopyN(io.Discard, r, 1<<20)
	if err == io.EOF {
		return nil
	}
	return readError(err)
}

func readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading the archive: %w", err)
}

// hasContent reports whether a member of this type is followed by its content; the
// size in the header means nothing otherwise.
func hasContent(typ byte) bool {
	switch typ {
	case tar.TypeLink, tar.TypeSymlink, tar.TypeChar, tar.TypeBlock, tar.TypeDir, tar.TypeFifo, tar.TypeXGlobalHeader:
		return false
	}
	return true
}

func (r *restorer) skip(path string, why Reason) error {
	return r.opts.OnUnsafe.refuse("restore", r.report.Skip, path, why)
}

func (r *restorer) member(h *tar.Header, content io.Reader) error {
	path, err := clean(h.Name)
	why := refusalOfType(h.Typeflag)
	if err != nil {
		errors.As(err, &why)
	}
	if why != "" {
		if hasContent(h.Typeflag) {
			if err := r.dropped.content(h.Size); err != nil {
				return wrap("restore", h.Name, err)
			}
		}
		return r.skip(h.Name, why)
	}
	if path == "" {
		return nil
	}
	if err := r.written.name(path); err != nil {
		return wrap("restore", path, err)
	}
	r.report.stripped(path, h.FileInfo().Mode(), carriesCapability(h))
	if h.Typeflag == tar.TypeDir {
		err = r.dir(path, h)
	} else if err = r.written.content(h.Size); err == nil {
		err = r.file(path, h, content)
	}
	if err != nil {
		return wrap("restore", path, err)
	}
	r.report.Last = path
	return nil
}

func (r *restorer) dir(path string, h *tar.Header) error {
	fd, err := r.tree.reach(path, r.made)
	if err != nil || !r.opts.PreserveModes {
		return err
	}
	return chmodAt(fd, ".", uint32(h.Mode&0o777|0o700))
}

// made is called for each directory that had to be made.
func (r *restorer) made(fd int, path string) error {
	r.report.Dirs++
	if r.opts.Owner == nil {
		return nil
	}
	return wrap("chown", path, chownAt(fd, ".", r.opts.Owner.UID, r.opts.Owner.GID))
}

func (r *restorer) file(path string, h *tar.Header, content io.Reader) error {
	dir, base := split(path)
	dirfd, err := r.tree.reach(dir, r.made)
	if err != nil {
		return err
	}
	fill := func(fd int) error { return r.fill(fd, h, content) }
	fd, err := r.tree.r.open(dirfd, base, createNew)
	switch {
	case err == nil:
		err = fill(fd)
		if cerr := closeFD(fd); err == nil {
			err = cerr
		}
		if err != nil {
			_ = unlinkAt(dirfd, base)
		}
	case errors.Is(err, fs.ErrExist):
		err = r.replace(dirfd, base, path, fill)
	}
	if err == nil && r.opts.PreserveTimes {
		err = setTimeAt(dirfd, base, h.ModTime.UnixNano())
	}
	if err != nil {
		return err
	}
	r.report.Files++
	r.report.Bytes += h.Size
	return nil
}

// replace puts a file where something is already.
func (r *restorer) replace(dirfd int, base, path string, fill func(fd int) error) error {
	old, err := statAt(dirfd, base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && old.mode.IsDir() {
		return Directory
	}
	var like *stat
	if err == nil {
		why := refusal(old.mode)
		if why == "" && old.Nlink > 1 {
			why = Hardlink
		}
		if why != "" {
			if err := r.opts.OnUnsafe.refuse("restore", r.report.Change, path, why); err != nil {
				return err
			}
		} else if !r.opts.PreserveModes {
			like = &old
		}
	}
	return r.tree.r.replace(dirfd, base, like, fill)
}

func (r *restorer) fill(fd int, h *tar.Header, content io.Reader) error {
	for left := h.Size; left > 0; {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(content, r.buf[:min(left, restoreBuffer)])
		if err != nil {
			return readError(err)
		}
		if _, err := writeFD(fd, r.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if o := r.opts.Owner; o != nil {
		if err := chownFD(fd, o.UID, o.GID); err != nil {
			return err
		}
	}
	if r.opts.PreserveModes {
		return chmodFD(fd, uint32(h.Mode&0o777))
	}
	return nil
}
