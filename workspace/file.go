package workspace

import (
	"io"
	"io/fs"
	"os"
)

// File is an open regular file or directory of a workspace. It is an
// [fs.ReadDirFile], an [io.ReadWriteSeeker] and an [io.ReaderAt].
//
// It is not an [os.File], because one of those that is a directory looks up its
// entries by path again, in the current directory of the process.
type File struct {
	f    *os.File
	path string
	st   stat

	keep    func(fs.DirEntry) bool // which entries ReadDir shows; nil for all
	entries []fs.DirEntry
	listed  bool
}

// Open opens a regular file or a directory for reading. Anything else, or a name
// that leads through a symbolic link or a mount point, is refused with its [Reason].
// It never blocks; a file on which the guest holds a lease fails with EAGAIN.
func (w *Workspace) Open(name string) (*File, error) {
	path, err := clean(name)
	if err != nil {
		return nil, wrap("open", name, err)
	}
	f, err := w.open(path, read)
	return f, wrap("open", path, err)
}

func (w *Workspace) open(path string, how how) (f *File, err error) {
	err = w.withRoot(func(root int) error {
		fd, st, err := w.r.openFile(root, path, how)
		if err != nil {
			return err
		}
		f = &File{f: newFile(fd, path), path: path, st: st}
		return nil
	})
	return f, err
}

// MaxReadFile is the size, in bytes, of the largest file [Workspace.ReadFile]
// reads: a guest can make a sparse file of any size at no cost.
const MaxReadFile = 1 << 30

// ReadFile reads a regular file of up to [MaxReadFile] bytes.
func (w *Workspace) ReadFile(name string) ([]byte, error) {
	f, err := w.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.st.mode.IsDir() {
		return nil, wrap("read", f.path, Directory)
	}
	tooLong := &LimitError{"file", "max_read_file", MaxReadFile}
	if f.st.size > MaxReadFile {
		return nil, wrap("read", f.path, tooLong)
	}
	data := make([]byte, 0, f.st.size+1)
	for {
		n, err := f.f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case err == io.EOF:
			return data, nil
		case err != nil:
			return nil, wrap("read", f.path, plain(err))
		case len(data) > MaxReadFile:
			return nil, wrap("read", f.path, tooLong)
		case len(data) == cap(data):
			data = append(data, 0)[:len(data)]
		}
	}
}

// Name is the name inside the workspace, "." for its root.
func (f *File) Name() string {
	if f.path == "" {
		return "."
	}
	return f.path
}

// Stat describes the open file.
func (f *File) Stat() (fs.FileInfo, error) {
	var st stat
	err := f.control(func(fd int) (err error) { st, err = statFD(fd); return err })
	if err != nil {
		return nil, wrap("stat", f.path, err)
	}
	return newInfo(f.path, st), nil
}

// ReadDir lists an open directory, sorted by name: the next n entries and [io.EOF]
// after the last if n > 0, else all that remain.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) {
	if !f.listed {
		if !f.st.mode.IsDir() {
			return nil, wrap("readdir", f.path, NotDirectory)
		}
		err := f.control(func(fd int) (err error) { f.entries, err = readDir(fd); return err })
		if err != nil {
			return nil, wrap("readdir", f.path, err)
		}
		if f.keep != nil {
			kept := f.entries[:0]
			for _, e := range f.entries {
				if f.keep(e) {
					kept = append(kept, e)
				}
			}
			f.entries = kept
		}
		f.listed = true
	}
	if n > 0 && len(f.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	out := f.entries[:n:n]
	f.entries = f.entries[n:]
	return out, nil
}

func (f *File) control(use func(fd int) error) error {
	raw, err := f.f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = use(int(fd)) }); cerr != nil {
		return fs.ErrClosed
	}
	return err
}

func (f *File) Read(p []byte) (int, error) {
	n, err := f.f.Read(p)
	return n, f.wrapIO("read", err)
}

func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	return n, f.wrapIO("read", err)
}

func (f *File) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	return n, f.wrapIO("write", err)
}

func (f *File) Seek(offset int64, whence int) (int64, error) {
	n, err := f.f.Seek(offset, whence)
	return n, f.wrapIO("seek", err)
}

// Sync has the system write the file to the disk.
func (f *File) Sync() error { return f.wrapIO("sync", f.f.Sync()) }

func (f *File) Close() error { return f.wrapIO("close", f.f.Close()) }

func (f *File) wrapIO(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return wrap(op, f.path, plain(err))
}

// plain takes the errno out of an error of package os, which names the operation again.
func plain(err error) error {
	if p, ok := err.(*fs.PathError); ok {
		return p.Err
	}
	return err
}
