package workspace

import (
	"errors"
	"io/fs"
)

// FS is the workspace as a read-only file system for [fs.WalkDir], [net/http.FS],
// [html/template.ParseFS] and the like. It shows regular files and
// directories only: what [Workspace.Open] would refuse is not listed, and opening it
// by name fails with its [Reason]. Names that are not valid UTF-8 are not shown
// either, as package fs demands.
//
// It implements [fs.ReadDirFS], [fs.ReadFileFS] and [fs.StatFS], and stops working when
// the workspace is closed.
func (w *Workspace) FS() fs.FS { return view{w} }

type view struct{ w *Workspace }

func (v view) Open(name string) (fs.File, error) {
	f, err := v.open("open", name)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (v view) open(op, name string) (*File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	f, err := v.w.Open(name)
	if err != nil {
		return nil, asPathError(err)
	}
	f.keep = shown
	return f, nil
}

func shown(e fs.DirEntry) bool {
	return refusal(e.Type()) == "" && fs.ValidPath(e.Name())
}

func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := v.open("readdir", name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	return entries, asPathError(err)
}

func (v view) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	data, err := v.w.ReadFile(name)
	return data, asPathError(err)
}

func (v view) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	info, err := v.w.Stat(name)
	if err != nil {
		return nil, asPathError(err)
	}
	if why := refusal(info.Mode()); why != "" {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: why}
	}
	return info, nil
}

// asPathError gives package fs the type it asks for.
func asPathError(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p
	}
	return err
}
