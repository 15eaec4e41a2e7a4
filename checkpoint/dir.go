package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

// Dir is a [Store] in a directory of the host, which no guest may reach. An object
// is a file. It is written under another name, synced, and renamed; the directory is synced
// after that. So a crash at any moment leaves the old object or the new one.
type Dir struct{ root *os.Root }

// OpenDir opens a directory as a store, creating it, with mode 0700, if it is missing.
func OpenDir(dir string) (*Dir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{root}, nil
}

// Close releases the directory; the store must not be used any more.
func (d *Dir) Close() error { return d.root.Close() }

// tempPrefix marks objects that are being written. No object's name starts with it.
const tempPrefix = ".tmp-"

// Put implements [Store].
func (d *Dir) Put(ctx context.Context, name string, r io.Reader) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	temp := tempPrefix + rand.Text()
	f, err := d.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, contextReader{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	dir := path.Dir(name)
	if err == nil {
		err = d.root.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = d.root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, ignoreNotExist(d.root.Remove(temp)))
	}
	for {
		if err := d.syncDir(dir); err != nil || dir == "." {
			return err
		}
		dir = path.Dir(dir)
	}
}

// syncDir makes a rename in a directory survive a crash.
func (d *Dir) syncDir(name string) error {
	if runtime.GOOS == "windows" {
		return nil // has no such call; renames go through the journal
	}
	f, err := d.root.Open(name)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// Get implements [Store].
func (d *Dir) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.root.Open(name)
}

// Delete implements [Store].
func (d *Dir) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return ignoreNotExist(d.root.Remove(name))
}

// List implements [Store].
func (d *Dir) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		err := fs.WalkDir(d.root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			if e.IsDir() {
				// Directories off the way to the prefix need not be read.
				if in := name + "/"; name != "." && !strings.HasPrefix(in, prefix) && !strings.HasPrefix(prefix, in) {
					return fs.SkipDir
				}
				return nil
			}
			if !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, tempPrefix) {
				return nil
			}
			info, err := e.Info()
			if err != nil {
				return ignoreNotExist(err)
			}
			if !yield(Object{name, info.Size(), info.ModTime()}, nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield(Object{}, err)
		}
	}
}

// Clean removes what interrupted Puts have left, if it is older than that.
func (d *Dir) Clean(ctx context.Context, olderThan time.Duration) error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > olderThan {
			err = d.root.Remove(e.Name())
		}
		if ignoreNotExist(err) != nil {
			return err
		}
	}
	return nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// contextReader stops reading when the context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
