package workspace

import (
	"io/fs"
	"time"
)

// Stat is what Sys returns of every [fs.FileInfo] of this package.
type Stat struct {
	Dev, Ino, Nlink uint64
	UID, GID        uint32
	// ChangeTime is the inode's ctime, which a guest cannot set.
	ChangeTime time.Time
}

type stat struct {
	Stat
	mode  fs.FileMode
	size  int64
	mtime time.Time
}

// inode tells two files apart.
type inode struct{ dev, ino uint64 }

func (st *stat) inode() inode { return inode{st.Dev, st.Ino} }

// refusal is the reason not to open something of this mode, "" for regular files
// and directories.
func refusal(mode fs.FileMode) Reason {
	switch mode.Type() {
	case 0, fs.ModeDir:
		return ""
	case fs.ModeSymlink:
		return Symlink
	case fs.ModeNamedPipe:
		return FIFO
	case fs.ModeSocket:
		return Socket
	case fs.ModeDevice, fs.ModeDevice | fs.ModeCharDevice:
		return Device
	}
	return Special
}

// fileInfo is a [fs.FileInfo] and a [fs.DirEntry].
type fileInfo struct {
	name string
	st   stat
}

func newInfo(path string, st stat) *fileInfo {
	_, base := split(path)
	if base == "" {
		base = "."
	}
	return &fileInfo{base, st}
}

func (i *fileInfo) Name() string               { return i.name }
func (i *fileInfo) Size() int64                { return i.st.size }
func (i *fileInfo) Mode() fs.FileMode          { return i.st.mode }
func (i *fileInfo) ModTime() time.Time         { return i.st.mtime }
func (i *fileInfo) IsDir() bool                { return i.st.mode.IsDir() }
func (i *fileInfo) Sys() any                   { return &i.st.Stat }
func (i *fileInfo) Type() fs.FileMode          { return i.st.mode.Type() }
func (i *fileInfo) Info() (fs.FileInfo, error) { return i, nil }
func (i *fileInfo) String() string             { return fs.FormatFileInfo(i) }
